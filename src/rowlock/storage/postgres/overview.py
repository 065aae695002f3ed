"""The dashboard's verbs in the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import orjson

from rowlock.clock import Clock
from rowlock.ids import is_uuid
from rowlock.storage.overview import DeadGroup, DeadGroups, History, Minute, Running
from rowlock.storage.postgres.connection import SQL, Connections
from rowlock.storage.postgres.listen import Notifier
from rowlock.storage.records import JobFilter, JobId


class Overview:
    """The verbs for running jobs, dead-letter groups and history."""

    _connections: Connections
    _notifier: Notifier
    clock: Clock

    @property
    def _now(self) -> datetime | None:
        return self.clock.now()

    async def running(self, limit: int) -> list[Running]:
        return [Running._make(row) for row in await self._connections.fetch("running", limit)]

    async def run_now(self, job_id: JobId) -> bool:
        rows = await self._connections.fetch("run_now", job_id, self._now) if is_uuid(job_id) else []
        self._notifier.ring({row[0] for row in rows})
        return bool(rows)

    async def dead_groups(self, where: JobFilter, look_at: int, limit: int) -> DeadGroups:
        found = SQL["dead_groups" if where.company_id is None else "dead_groups_of_company"]
        if where.type_prefix is not None:
            found = found.replace("j.type = $1", "starts_with(j.type, $1)")
        asked = (where.type or where.type_prefix, where.queue, where.company_id, look_at, limit)
        rows = await self._connections.run(found, *asked)
        return DeadGroups([DeadGroup(*row[:6]) for row in map(tuple, rows)], rows[0][6] if rows else 0)

    async def history(self, minutes: int) -> History:
        first, *rows = await self._connections.fetch("history", minutes, self._now)
        happened = [Minute._make(row[:5]) for row in map(tuple, rows) if row[5] is None]
        return History(first[0], happened, {row[0]: orjson.loads(row[5]) for row in rows if row[5] is not None})

    async def note_lags(self, lags: Mapping[str, float]) -> bool:
        return bool(await self._connections.fetch("note_lags", orjson.dumps(dict(lags)).decode(), self._now))
