"""The scheduler: fires what is due. Any number of them may run; the store lets one of them win each tick."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from rowlock.errors import RowlockError, StoreError
from rowlock.jobs.enqueue import Enqueuer, softened
from rowlock.jobs.schedule import Missed, Schedule
from rowlock.observe.metrics import Measures
from rowlock.storage.base import Store
from rowlock.storage.records import NewJob
from rowlock.storage.reliability import ScheduleRecord, Tick

_LOOK_SECONDS = 10.0  # for pauses, and for what others declared anew
_AGAIN_SECONDS = 1.0
_ROUND_MAX = 1_000  # ticks of one schedule that are made up for in one round
_CLOSED_MAX = 1_000


class Scheduler:
    """Fires the schedules of one application."""

    def __init__(
        self, store: Store, enqueuer: Enqueuer, schedules: Mapping[str, Schedule], measures: Measures, log: Any
    ) -> None:
        self._store = store
        self._enqueuer = enqueuer
        self._schedules = schedules
        self._measures = measures
        self._log = log
        self._started = time.monotonic()
        self._declared = False

    async def run(self) -> None:
        """Fire what is due until cancelled; survives a store that goes away."""
        while self._schedules:
            try:
                delay = await self.round()
            except StoreError as error:
                self._log.warning("schedule.delayed", reason=str(error))
                delay = _AGAIN_SECONDS
            await asyncio.sleep(delay)

    async def round(self) -> float:
        """Fire everything that is due now; in how many seconds to look again."""
        now = await self._store.now()
        if not self._declared:
            first = [(s.name, s.spec, s.next_after(now)) for s in self._schedules.values()]
            await self._store.declare_schedules(first)
            self._declared = True
        delay = _LOOK_SECONDS
        for record in await self._store.schedules():
            schedule = self._schedules.get(record.name)
            if schedule is None or record.paused_at is not None or record.spec != schedule.spec:
                continue
            wait = schedule.start_delay_seconds - (time.monotonic() - self._started)
            if wait > 0:
                delay = min(delay, wait)
                continue
            next_at = await self._fire(schedule, record, now)
            delay = min(delay, (next_at - now).total_seconds())
        await self.close_runs()
        return max(delay, 0.01)

    async def close_runs(self) -> None:
        """Note how runs ended."""
        for run in await self._store.close_runs(_CLOSED_MAX):
            self._measures.add("schedule_run", {"schedule": run.name, "status": run.status.value})
            level = self._log.info if run.error is None else self._log.warning
            level("schedule.ended", schedule=run.name, job=run.job_id, status=run.status.value, reason=run.error)

    async def _fire(self, schedule: Schedule, record: ScheduleRecord, now: datetime) -> datetime:
        """Fire the ticks of one schedule that are due; the next one after them."""
        due = record.next_at
        for _ in range(_ROUND_MAX):
            if due > now:
                break
            tick = self._tick(schedule, due, now)
            receipt = await self._store.fire(tick)
            if receipt is not None:
                self._log.info("schedule.fired", schedule=schedule.name, tick=tick.at.isoformat(), job=receipt.job_id)
            elif tick.job is None:
                self._measures.add("schedule_run", {"schedule": schedule.name, "status": "missed"})
                self._log.warning("schedule.missed", schedule=schedule.name, tick=tick.at.isoformat())
            due = tick.next_at
        return due

    def _tick(self, schedule: Schedule, due: datetime, now: datetime) -> Tick:
        """What to do about a tick that is due."""
        late = now - due > timedelta(seconds=schedule.grace_seconds)
        at, next_at = due, schedule.next_after(due)
        if late and schedule.missed is not Missed.CATCH_UP:
            at, next_at = _last_until(schedule, due, now), schedule.next_after(now)
        job = None if late and schedule.missed is Missed.SKIP else self._job(schedule, at)
        return Tick(schedule.name, at, due, next_at, job)

    def _job(self, schedule: Schedule, tick: datetime) -> NewJob | None:
        try:
            made = self._enqueuer.prepare(schedule.type, schedule.payload, **schedule.options)
        except RowlockError as error:  # a payload that its handler no longer takes must not hold up the others
            self._log.error("schedule.refused", schedule=schedule.name, tick=tick.isoformat(), reason=str(error))
            return None
        # A run that is still under way, or has been done, is what this tick finds: not a reason to stop ticking.
        return softened(made)


def _last_until(schedule: Schedule, due: datetime, now: datetime) -> datetime:
    """The last tick that is not after now, found without walking over years of them."""
    low, high = due, now
    while (high - low).total_seconds() > 1:
        middle = low + (high - low) / 2
        if schedule.next_after(middle) <= now:
            low = middle
        else:
            high = middle
    tick = schedule.next_after(low)
    return tick if due < tick <= now else due
