"""Rate limits of outbound calls and locks on their subjects in the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import orjson

from rowlock.clock import Clock
from rowlock.storage.calls import (
    CallBudget,
    CallLimit,
    Marks,
    PermitId,
    checked_key,
    checked_limits,
    checked_seconds,
    ended,
    given_marks,
    kept_keys,
    kept_marks,
)
from rowlock.storage.postgres.connection import Connections


class Calling:
    """The verbs for outbound calls."""

    _connections: Connections
    clock: Clock

    @property
    def _now(self) -> datetime | None:
        return self.clock.now()

    async def take_call(self, permit_id: PermitId, limits: Sequence[CallLimit], hold_seconds: float) -> float:
        wanted = checked_limits(limits)
        columns = (
            [limit.key for limit in wanted],
            [limit.count for limit in wanted],
            [limit.seconds for limit in wanted],
            [limit.step_seconds for limit in wanted],
        )
        hold = checked_seconds(hold_seconds)
        wait = float(await self._connections.value("take_call", permit_id, *columns, hold, self._now))
        if wait < 0:
            raise ended(permit_id)
        return wait

    async def end_call(self, permit_id: PermitId, *, made: bool = True) -> None:
        await self._connections.fetch("end_call", permit_id, made, self._now)

    async def rest_calls(self, key: str, seconds: float) -> None:
        await self._connections.fetch("rest_calls", checked_key(key), checked_seconds(seconds), self._now)

    async def call_budget(self, keys: Sequence[str]) -> list[CallBudget]:
        return [CallBudget(*row) for row in await self._connections.fetch("call_budget", list(keys), self._now)]

    async def hold_subjects(self, kind: str, keys: Sequence[str], holder: str, seconds: float) -> dict[str, Marks]:
        given, held = kept_keys(keys), checked_seconds(seconds)
        rows = await self._connections.fetch("hold_subjects", kind, list(given), holder, held, self._now)
        return {given[key]: given_marks(orjson.loads(marks)) for key, marks in rows}

    async def mark_subjects(self, kind: str, holder: str, marks: Mapping[str, Mapping[str, str]]) -> list[str]:
        given = kept_keys(marks)
        told = [orjson.dumps(kept_marks(marks[name])).decode() for name in given.values()]
        rows = await self._connections.fetch("mark_subjects", kind, holder, list(given), told, self._now)
        held = {row[0] for row in rows}
        return [name for key, name in given.items() if key in held]

    async def free_subjects(self, kind: str, holder: str, keys: Sequence[str]) -> None:
        await self._connections.fetch("free_subjects", kind, holder, list(kept_keys(keys)), self._now)

    async def prune_calls(self, days: float, limit: int) -> int:
        return int(await self._connections.value("prune_calls", days, limit, self._now))
