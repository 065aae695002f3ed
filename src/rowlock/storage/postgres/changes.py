"""Recent changes of jobs in the PostgreSQL store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rowlock.clock import Clock
from rowlock.storage.access import (
    Changes,
    JobChange,
)
from rowlock.storage.postgres.connection import Connections
from rowlock.storage.records import Status


class Changing:
    """Tells which jobs have changed."""

    _connections: Connections
    clock: Clock

    @property
    def _now(self) -> datetime | None:
        return self.clock.now()

    async def changes(self, since: datetime, limit: int) -> Changes:
        rows = await self._connections.fetch("changes", since, limit + 1, self._now)
        jobs = [_change(row) for row in rows if row["id"] is not None]
        return Changes(jobs[:limit], len(jobs) > limit, rows[0]["looked_at"])


def _change(row: Any) -> JobChange:
    _, job_id, type_name, queue, status, *rest = row
    return JobChange(job_id, type_name, queue, Status(status), *rest)
