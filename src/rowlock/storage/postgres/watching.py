"""The state of an integration's queues, in the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rowlock.clock import Clock
from rowlock.storage import watching
from rowlock.storage.calls import SyncCounts
from rowlock.storage.postgres.connection import Connections
from rowlock.storage.postgres.rows import record
from rowlock.storage.records import JobRecord
from rowlock.storage.watching import FAILURES_LOOKED_AT


class Watching(watching.Watching):
    """The verbs for operators of an integration."""

    _connections: Connections
    clock: Clock

    @property
    def _now(self) -> datetime | None:
        return self.clock.now()

    async def failing(self, queues: Sequence[str], limit: int, company_id: str | None = None) -> list[JobRecord]:
        asked = (list(queues), max(limit, 0), FAILURES_LOOKED_AT)
        if company_id is None:
            rows = await self._connections.fetch("failing", *asked)
        else:
            rows = await self._connections.fetch("failing_of_company", *asked, company_id)
        return [record(row) for row in rows]

    async def _retrying(self, queues: Sequence[str]) -> int:
        return int(await self._connections.value("retrying", list(queues)))

    async def _mean_completed(self, queues: Sequence[str]) -> float | None:
        mean: float | None = await self._connections.value("mean_completed", list(queues), self._now)
        return mean

    async def _counts_of_company(self, queues: Sequence[str], company_id: str) -> SyncCounts:
        (row,) = await self._connections.fetch("counts_of_company", list(queues), company_id, self._now)
        return SyncCounts(*row)
