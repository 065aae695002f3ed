"""Locks, schedules, alerts and measures of the SQLite store."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import apsw

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
from rowlock.storage.sqlite.callers import ApswCaller
from rowlock.storage.sqlite.enqueue import enqueue
from rowlock.storage.sqlite.rows import Row, duration_micros, micros, moment, moment_or_none
from rowlock.storage.sqlite.sql import run, run_each, value
from rowlock.storage.sqlite.work import Worked

_DAY_SECONDS = 24 * 3600
_ENDED = {0: RunStatus.UNKNOWN, 1: RunStatus.SUCCEEDED, 2: RunStatus.FAILED, 3: RunStatus.CANCELLED}


class _TickTaken(Exception):
    """Raised if this tick has run already, to roll back the transaction."""


class Reliability(Worked):
    """Store methods for idempotency locks, schedules, alerts and measures."""

    # -- locks -------------------------------------------------------------------------------------

    async def take_lock(self, key: LockKey, payload_hash: str, holder: str, stale_seconds: float) -> LockAnswer:
        asked = {**asdict(key), "payload_hash": payload_hash, "holder": holder}
        return await self._write(lambda connection, now: _take_lock(connection, now, asked, stale_seconds))

    async def renew_lock(self, key: LockKey, token: int) -> bool:
        asked = {**asdict(key), "token": token}
        return await self._write(lambda connection, now: bool(run(connection, "renew_lock", {**asked, "now": now})))

    async def end_lock(self, key: LockKey, token: int, completed: bool) -> bool:
        asked = {**asdict(key), "token": token, "status": "completed" if completed else "failed"}
        return await self._write(lambda connection, now: bool(run(connection, "end_lock", {**asked, "now": now})))

    async def locks(self, job_key: str | None, company_id: str | None, limit: int) -> list[LockRecord]:
        asked = {"job_key": job_key, "company_id": company_id, "limit": limit}
        rows = await self._read(lambda connection, now: run(connection, "locks", asked))
        return [_lock_record(row) for row in rows]

    async def prune_locks(self, days: float, limit: int) -> int:
        return await self._prune("prune_locks", days, limit)

    # -- schedules ---------------------------------------------------------------------------------

    async def declare_schedules(self, schedules: Sequence[tuple[str, str, datetime]]) -> None:
        rows = [(name, spec, micros(first)) for name, spec, first in schedules]
        await self._write(lambda connection, now: run_each(connection, "declare_schedule", rows))

    async def schedules(self) -> list[ScheduleRecord]:
        rows = await self._read(lambda connection, now: run(connection, "schedules"))
        return [ScheduleRecord(row[0], row[1], moment(row[2]), *map(moment_or_none, row[3:])) for row in rows]

    async def move_schedule(self, name: str, expected: datetime, next_at: datetime) -> bool:
        asked = {"name": name, "expected": micros(expected), "next_at": micros(next_at)}
        return await self._write(lambda connection, now: bool(run(connection, "move_schedule", asked)))

    async def fire(self, tick: Tick) -> Receipt | None:
        with contextlib.suppress(_TickTaken):
            return await self._write(lambda connection, now: _fire(connection, now, tick))
        # The tick has run: advance the schedule, which would otherwise wait for it for ever.
        await self._write(lambda connection, now: _advance(connection, tick))
        return None

    async def close_runs(self, limit: int) -> list[RunRecord]:
        return await self._write(lambda connection, now: _close_runs(connection, now, limit))

    async def runs(self, name: str | None, limit: int, before: datetime | None = None) -> list[RunRecord]:
        asked = {"name": name, "before": before and micros(before), "limit": limit}
        rows = await self._read(lambda connection, now: run(connection, "runs", asked))
        return [_run_record(row, RunStatus(row[3])) for row in rows]

    async def prune_runs(self, days: float, limit: int) -> int:
        return await self._prune("prune_runs", days, limit)

    async def pause_schedule(self, name: str) -> bool:
        return await self._write(
            lambda connection, now: bool(run(connection, "pause_schedule", {"name": name, "now": now}))
        )

    async def resume_schedule(self, name: str, next_at: datetime) -> bool:
        asked = {"name": name, "next_at": micros(next_at)}
        return await self._write(lambda connection, now: bool(run(connection, "resume_schedule", asked)))

    # -- alerts and measures -----------------------------------------------------------------------

    async def raise_alert(self, name: str) -> bool:
        return await self._write(
            lambda connection, now: bool(run(connection, "raise_alert", {"name": name, "now": now}))
        )

    async def clear_alert(self, name: str) -> datetime | None:
        rows = await self._write(lambda connection, now: run(connection, "clear_alert", {"name": name}))
        return moment(rows[0][0]) if rows else None

    async def unsaid_deaths(self) -> bool:
        return bool(await self._read(lambda connection, now: value(connection, "unsaid_deaths")))

    async def say_deaths(self, notice_id: str, limit: int) -> list[Deaths]:
        return await self._write(lambda connection, now: _say_deaths(connection, notice_id, limit))

    async def add_measures(self, measures: Mapping[Measure, float]) -> None:
        rows = [(*measure, number) for measure, number in measures.items()]
        if rows:
            await self._write(lambda connection, now: run_each(connection, "add_measure", rows))

    async def measures(self) -> dict[Measure, float]:
        rows = await self._read(lambda connection, now: run(connection, "measures"))
        return {Measure(name, labels): number for name, labels, number in rows}

    async def _prune(self, name: str, days: float, limit: int) -> int:
        age = duration_micros(days * _DAY_SECONDS)
        return await self._write(
            lambda connection, now: len(run(connection, name, {"before": now - age, "limit": limit}))
        )


def _take_lock(connection: apsw.Connection, now: int, asked: dict[str, Any], stale_seconds: float) -> LockAnswer:
    found = run(connection, "lock", asked)
    decision, token, holder = LockDecision.PROCEED, 0, None
    if found:
        status, payload_hash, token, holder, locked_at = found[0]
        if status == "running":
            fresh = locked_at > now - duration_micros(stale_seconds)
            others = holder != asked["holder"]
            decision = LockDecision.ALREADY_RUNNING if fresh and others else LockDecision.TAKE_OVER
        elif status == "failed":
            decision = LockDecision.RETRY
        else:
            same = payload_hash == asked["payload_hash"]
            decision = LockDecision.ALREADY_COMPLETED if same else LockDecision.RERUN
    if decision.go:
        ((token,),) = run(connection, "take_lock", {**asked, "now": now})
    return LockAnswer(decision, token, holder)


def _lock_record(row: Row) -> LockRecord:
    *fields, locked_at, ended_at = row
    fields += [moment(locked_at), moment_or_none(ended_at)]
    return LockRecord(*fields)


def _fire(connection: apsw.Connection, now: int, tick: Tick) -> Receipt | None:
    if not _advance(connection, tick):
        return None
    receipt = enqueue(ApswCaller(connection), [tick.job], now)[0] if tick.job is not None else None
    try:
        this = {"name": tick.name, "at": micros(tick.at), "job_id": receipt and receipt.job_id, "now": now}
        run(connection, "add_run", this)
    except apsw.ConstraintError as error:
        raise _TickTaken from error
    return receipt


def _advance(connection: apsw.Connection, tick: Tick) -> bool:
    """Advance the schedule if this is the tick that it expects; return whether the tick may fire."""
    if tick.expected is None:
        return True
    times = {"at": micros(tick.at), "expected": micros(tick.expected), "next_at": micros(tick.next_at)}
    return bool(run(connection, "advance_schedule", {"name": tick.name, **times}))


def _close_runs(connection: apsw.Connection, now: int, limit: int) -> list[RunRecord]:
    rows = run(connection, "ended_runs", {"limit": limit, "now": now})
    closed = [(_ENDED[row[3]].value, row[5], row[6], row[7], row[0], row[1]) for row in rows]
    run_each(connection, "close_run", closed)
    return [_run_record(row, _ENDED[row[3]]) for row in rows]


def _run_record(row: Row, status: RunStatus) -> RunRecord:
    name, tick, job_id, _, enqueued_at, started_at, ended_at, error = row
    times = (moment(enqueued_at), moment_or_none(started_at), moment_or_none(ended_at))
    return RunRecord(name, moment(tick), job_id, status, *times, error)


def _say_deaths(connection: apsw.Connection, notice_id: str, limit: int) -> list[Deaths]:
    asked = {"notice_id": notice_id}
    run(connection, "say_deaths", {**asked, "limit": limit})
    said = []
    for job_name, queue_name, count, first_at, last_at, attempts in run(connection, "said_deaths", asked):
        last = run(connection, "last_said", {**asked, "job_name": job_name, "queue_name": queue_name})
        job_ids = tuple(job_id for job_id, _ in last)
        times = (moment(first_at), moment(last_at))
        said.append(Deaths(job_name, queue_name, count, *times, attempts, job_ids, last[0][1]))
    return said
