"""The scheduler fires schedules that are due. Any number of them may run; the store lets one win each tick."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from rowlock.control import schedules as control
from rowlock.errors import RowlockError, StoreError
from rowlock.jobs.engine import Engine
from rowlock.jobs.new_jobs import softened
from rowlock.jobs.schedule import Missed, Schedule
from rowlock.storage.records import NewJob, Worker
from rowlock.storage.reliability import ScheduleRecord, Tick

_LOOK_SECONDS = 10.0  # between checks for pauses and for changes that other processes declared
_AGAIN_SECONDS = 1.0
_ROUND_MAX = 1_000  # ticks of one schedule that fire in one round
_CLOSED_MAX = 1_000


class Scheduler:
    """Fires the schedules of one application."""

    def __init__(self, engine: Engine, log: Any, workers: Callable[[], Sequence[Worker]] = tuple) -> None:
        """`workers` returns the workers of this process."""
        self._store = engine.store
        self._builder = engine.builder
        self._schedules = engine.schedules
        self._measures = engine.measures
        self._queues = engine.queues
        self._alive_seconds = engine.settings.visibility_ms / 1000  # a worker seen within this time is running
        self._log = log
        self._workers = workers
        self._started = time.monotonic()
        self._started_at: datetime | None = None  # by the store's clock
        self._declared = False

    async def run(self) -> None:
        """Fire due ticks until cancelled; survives store outages."""
        while self._schedules:
            try:
                delay = await self.round()
            except StoreError as error:
                self._log.warning("schedule.delayed", reason=str(error))
                delay = _AGAIN_SECONDS
            await asyncio.sleep(delay)

    async def round(self) -> float:
        """Fire all ticks that are due now; returns the seconds until the next round."""
        now = await self._store.now()
        if self._started_at is None:
            self._started_at = now - timedelta(seconds=time.monotonic() - self._started)
        if not self._declared:
            await self._declare(now)
            self._declared = True
        elapsed = max(time.monotonic() - self._started, (now - self._started_at).total_seconds())
        delay = _LOOK_SECONDS
        for record in await control.listed(self._store):
            schedule = self._schedules.get(record.name)
            if schedule is None or record.paused_at is not None or record.spec != schedule.spec:
                continue
            wait = schedule.start_delay_seconds - elapsed
            if wait > 0:
                delay = min(delay, wait)
                continue
            next_at = await self._fire(schedule, record, now)
            delay = min(delay, (next_at - now).total_seconds())
        await self.close_runs()
        return max(delay, 0.01)

    async def _declare(self, now: datetime) -> None:
        """Declare the schedules in the store; if no other worker runs, restart those that count from start-up."""
        schedules = self._schedules.values()
        before = {record.name: record for record in await control.listed(self._store)}
        await control.declare(self._store, [(s.name, s.spec, s.first_after(now)) for s in schedules])
        starting = [s for s in schedules if s.from_start and s.name in before and before[s.name].spec == s.spec]
        if not starting or await self._fleet_runs(now):
            return
        for schedule in starting:
            expected, first = before[schedule.name].next_at, schedule.first_after(now)
            owed = expected <= now and schedule.missed is Missed.CATCH_UP
            if not owed and not now < expected <= first:
                await control.move(self._store, schedule.name, expected, first)

    async def _fleet_runs(self, now: datetime) -> bool:
        """Return whether this process joins a running fleet: workers of its queues that started before it.

        Processes that start together do not count each other, so each applies the rule of the start-up.
        """
        assert self._started_at is not None
        ours, queues = {worker.id for worker in self._workers()}, set(self._queues())
        alive_from = now - timedelta(seconds=self._alive_seconds)
        return any(
            w.seen_at >= alive_from and w.started_at < self._started_at and w.id not in ours
            for w in await self._store.workers()
            if queues.intersection(w.queues)
        )

    async def close_runs(self) -> None:
        """Record, count and log how runs ended."""
        for run in await control.close_runs(self._store, _CLOSED_MAX):
            self._measures.add("schedule_run", {"schedule": run.name, "status": run.status.value})
            level = self._log.info if run.error is None else self._log.warning
            level("schedule.ended", schedule=run.name, job=run.job_id, status=run.status.value, reason=run.error)

    async def _fire(self, schedule: Schedule, record: ScheduleRecord, now: datetime) -> datetime:
        """Fire the due ticks of one schedule; returns the next tick after them."""
        due = record.next_at
        for _ in range(_ROUND_MAX):
            if due > now:
                break
            tick = self._tick(schedule, due, now)
            receipt = await control.fire(self._store, tick)
            if receipt is not None:
                self._log.info("schedule.fired", schedule=schedule.name, tick=tick.at.isoformat(), job=receipt.job_id)
            elif tick.job is None:
                self._measures.add("schedule_run", {"schedule": schedule.name, "status": "missed"})
                self._log.warning("schedule.missed", schedule=schedule.name, tick=tick.at.isoformat())
            due = tick.next_at
        return due

    def _tick(self, schedule: Schedule, due: datetime, now: datetime) -> Tick:
        """Decide what to do about a due tick."""
        late = now - due > timedelta(seconds=schedule.grace_seconds)
        at, next_at = due, schedule.next_after(due, due)
        if late and schedule.missed is not Missed.CATCH_UP:
            at, next_at = _last_until(schedule, due, now), schedule.next_after(now, due)
        job = None if late and schedule.missed is Missed.SKIP else self._job(schedule, at)
        return Tick(schedule.name, at, due, next_at, job)

    def _job(self, schedule: Schedule, tick: datetime) -> NewJob | None:
        try:
            made = self._builder.new(schedule.type, schedule.payload, schedule.options)
        except RowlockError as error:  # a payload that its handler no longer accepts must not block the others
            self._log.error("schedule.refused", schedule=schedule.name, tick=tick.isoformat(), reason=str(error))
            return None
        # A duplicate, an earlier run that is still running or done, is an answer: not a reason to stop ticking.
        return softened(made)


def _last_until(schedule: Schedule, due: datetime, now: datetime) -> datetime:
    """Return the last tick up to `now`, by bisection instead of walking over years of ticks."""
    low, high = due, now
    while (high - low).total_seconds() > 1:
        middle = low + (high - low) / 2
        if schedule.next_after(middle, due) <= now:
            low = middle
        else:
            high = middle
    tick = schedule.next_after(low, due)
    return tick if due < tick <= now else due
