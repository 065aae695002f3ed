"""Idempotency locks, schedules, alerts and measures of the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import asyncpg

from rowlock.clock import Clock
from rowlock.storage.postgres.caller import enqueue_on
from rowlock.storage.postgres.connection import SQL, Connections, own_words
from rowlock.storage.records import Receipt
from rowlock.storage.reliability import (
    Deaths,
    LockAnswer,
    LockDecision,
    LockKey,
    LockRecord,
    Measure,
    RunRecord,
    RunStatus,
    ScheduleRecord,
    Tick,
)

_ONE_RUN = "schedule_runs_pkey"


class Reliability:
    """The verbs for idempotency locks, schedules, alerts and measures."""

    _connections: Connections
    clock: Clock

    @property
    def _now(self) -> datetime | None:
        return self.clock.now()

    # -- locks -------------------------------------------------------------------------------------

    async def take_lock(self, key: LockKey, payload_hash: str, holder: str, stale_seconds: float) -> LockAnswer:
        asked = (key.company_id, key.job_key, key.scope_key, payload_hash, holder, stale_seconds, self._now)
        ((decision, token, last),) = await self._connections.fetch("take_lock", *asked)
        return LockAnswer(LockDecision(decision), token, last)

    async def renew_lock(self, key: LockKey, token: int) -> bool:
        asked = (key.company_id, key.job_key, key.scope_key, token, self._now)
        return bool(await self._connections.fetch("renew_lock", *asked))

    async def end_lock(self, key: LockKey, token: int, completed: bool) -> bool:
        status = "completed" if completed else "failed"
        asked = (key.company_id, key.job_key, key.scope_key, token, status, self._now)
        return bool(await self._connections.fetch("end_lock", *asked))

    async def locks(self, job_key: str | None, company_id: str | None, limit: int) -> list[LockRecord]:
        return [LockRecord(*row) for row in await self._connections.fetch("locks", job_key, company_id, limit)]

    async def prune_locks(self, days: float, limit: int) -> int:
        return int(await self._connections.value("prune_locks", days, limit, self._now))

    # -- schedules ---------------------------------------------------------------------------------

    async def declare_schedules(self, schedules: Sequence[tuple[str, str, datetime]]) -> None:
        if schedules:
            names, specs, firsts = zip(*schedules, strict=True)
            await self._connections.fetch("declare_schedules", names, specs, firsts)

    async def schedules(self) -> list[ScheduleRecord]:
        return [ScheduleRecord(*row) for row in await self._connections.fetch("schedules")]

    async def move_schedule(self, name: str, expected: datetime, next_at: datetime) -> bool:
        return bool(await self._connections.fetch("move_schedule", name, expected, next_at))

    async def fire(self, tick: Tick) -> Receipt | None:
        with own_words(self._connections.url):
            try:
                return await self._fire(tick)
            except asyncpg.UniqueViolationError as error:
                if error.constraint_name != _ONE_RUN:
                    raise
        # This tick has run and the transaction was rolled back; a schedule that still expects the tick must go on.
        if tick.expected is not None:
            await self._connections.fetch("advance_schedule", tick.name, tick.expected, tick.next_at, tick.at)
        return None

    async def _fire(self, tick: Tick) -> Receipt | None:
        async with self._connections.transaction() as connection:
            if tick.expected is not None and not await connection.fetch(
                SQL["advance_schedule"], tick.name, tick.expected, tick.next_at, tick.at
            ):
                return None
            receipt = (await enqueue_on(connection, [tick.job], self._now))[0] if tick.job is not None else None
            await connection.fetch(SQL["add_run"], tick.name, tick.at, receipt and receipt.job_id, self._now)
            return receipt

    async def close_runs(self, limit: int) -> list[RunRecord]:
        return [_run(row) for row in await self._connections.fetch("close_runs", limit, self._now)]

    async def runs(self, name: str | None, limit: int, before: datetime | None = None) -> list[RunRecord]:
        return [_run(row) for row in await self._connections.fetch("runs", name, before, limit)]

    async def prune_runs(self, days: float, limit: int) -> int:
        return int(await self._connections.value("prune_runs", days, limit, self._now))

    async def pause_schedule(self, name: str) -> bool:
        return bool(await self._connections.fetch("pause_schedule", name, self._now))

    async def resume_schedule(self, name: str, next_at: datetime) -> bool:
        return bool(await self._connections.fetch("resume_schedule", name, next_at))

    # -- alerts and measures -----------------------------------------------------------------------

    async def raise_alert(self, name: str) -> bool:
        return bool(await self._connections.fetch("raise_alert", name, self._now))

    async def clear_alert(self, name: str) -> datetime | None:
        rows = await self._connections.fetch("clear_alert", name)
        return rows[0][0] if rows else None

    async def unsaid_deaths(self) -> bool:
        return bool(await self._connections.value("unsaid_deaths"))

    async def say_deaths(self, notice_id: str, limit: int) -> list[Deaths]:
        async with self._connections.connection(transaction=True) as connection:
            await connection.execute(SQL["say_deaths"], notice_id, limit)
            rows = await connection.fetch(SQL["said_deaths"], notice_id)
        return [Deaths(row[0], row[1], row[2], row[3], row[4], row[5], tuple(row[6]), row[7]) for row in rows]

    async def add_measures(self, measures: Mapping[Measure, float]) -> None:
        if measures:
            names, labels = zip(*measures, strict=True)
            await self._connections.fetch("add_measures", names, labels, list(measures.values()))

    async def measures(self) -> dict[Measure, float]:
        return {Measure(row[0], row[1]): row[2] for row in await self._connections.fetch("measures")}


def _run(row: Any) -> RunRecord:
    name, tick, job_id, status, enqueued_at, started_at, ended_at, error = row
    return RunRecord(name, tick, job_id, RunStatus(status), enqueued_at, started_at, ended_at, error)
