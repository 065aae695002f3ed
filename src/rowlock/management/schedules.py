"""Schedules and their runs."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Annotated

from rowlock.control import schedules as control
from rowlock.errors import ScheduleNotFound, StoreUnavailable
from rowlock.jobs.schedule import Schedule
from rowlock.management.company_scope import CompanyScope
from rowlock.management.endpoint import Parameter, get, post
from rowlock.management.parameters import LimitParameter, ScheduleParameter
from rowlock.management.schemas.base import Name
from rowlock.management.schemas.schedules import (
    RunSchema,
    RunsSchema,
    SchedulePausedSchema,
    ScheduleResumedSchema,
    ScheduleRunSchema,
    ScheduleSchema,
    SchedulesSchema,
)
from rowlock.storage.access import RequestAnswer, RequestState
from rowlock.storage.reliability import Tick

_TRIES = 5


class Schedules(CompanyScope):
    """Queries and commands about schedules."""

    @get("/api/v1/schedules", "schedules", "List schedules with their next time and last run", fleet=True)
    async def schedules(self) -> SchedulesSchema:
        """Those of the application, and others that the database knows."""
        app, found = self._app, []
        now = await app.store.now()
        stored = {record.name: record for record in await control.listed(app.store)}
        for name in sorted(stored.keys() | app.schedules.keys()):
            record, declared = stored.get(name), app.schedules.get(name)
            last = await control.list_runs(app.store, name, 1)
            found.append(
                ScheduleSchema(
                    name=name,
                    job_type=declared and declared.type,
                    spec=declared.spec if declared else record and record.spec,
                    missed=declared and declared.missed.value,
                    paused=record is not None and record.paused_at is not None,
                    next_at=record.next_at if record else declared.first_after(now) if declared else None,
                    last_run=RunSchema.of(last[0], app.redact) if last else None,
                )
            )
        return SchedulesSchema(schedules=found)

    @get("/api/v1/schedules/runs", "schedules", "List runs, newest first", fleet=True)
    async def runs(
        self,
        name: Annotated[str | None, Parameter("Only runs of this schedule.", Name | None)] = None,
        *,
        limit: LimitParameter = 50,
    ) -> RunsSchema:
        """Of all schedules, or of one."""
        found = await control.list_runs(self._app.store, name, limit)
        return RunsSchema(runs=[RunSchema.of(run, self._app.redact) for run in found])

    @post("/api/v1/schedules/{name:path}/pause", "schedules", "Pause a schedule", fleet=True, fails=(404,))
    async def pause_schedule(self, name: ScheduleParameter) -> SchedulePausedSchema:
        """No tick of it fires, on any machine, until it is resumed."""
        await self._declare_schedules()
        if not await control.pause(self._app.store, name):
            raise self._no_schedule(name)
        return SchedulePausedSchema(name=name, paused=True)

    @post("/api/v1/schedules/{name:path}/resume", "schedules", "Resume a schedule", fleet=True, fails=(404,))
    async def resume_schedule(self, name: ScheduleParameter) -> ScheduleResumedSchema:
        """It continues with its next time; times that passed meanwhile are skipped."""
        schedule = self._schedule(name)
        await self._declare_schedules()
        now = await self._app.store.now()
        tick = next((record.next_at for record in await control.listed(self._app.store) if record.name == name), None)
        next_at = schedule.next_after(now, tick)
        await control.resume(self._app.store, name, next_at)
        return ScheduleResumedSchema(name=name, paused=False, next_at=next_at)

    @post("/api/v1/schedules/{name:path}/run", "schedules", "Run the job of a schedule now", fleet=True, fails=(404,))
    async def run_schedule(self, name: ScheduleParameter) -> ScheduleRunSchema:
        """Enqueues its job, outside its timetable."""
        return await self.run_schedule_once(name, None)

    async def run_schedule_once(self, name: str, reserved: RequestAnswer | None) -> ScheduleRunSchema:
        """Enqueue the job of a schedule; with a `reserved` id (see begin_request), a second try returns the first."""
        schedule = self._schedule(name)
        job = self._app.engine.builder.new(schedule.type, schedule.payload, schedule.options)
        if reserved is not None:
            job = job._replace(id=reserved.job_id)
            if reserved.state is RequestState.BROKEN_OFF and await self._reader.get(job.id) is not None:
                return ScheduleRunSchema(name=name, job_id=job.id)
        for _ in range(_TRIES):
            # A tick fires once, so random microseconds keep two calls at the same moment apart.
            now = await self._app.store.now() + timedelta(microseconds=secrets.randbelow(1_000_000))
            receipt = await control.fire(self._app.store, Tick(name, now, None, now, job))
            if receipt is not None:
                return ScheduleRunSchema(name=name, job_id=receipt.job_id)
        raise StoreUnavailable(f"schedule {name!r} was run at the same moment again and again; try later")

    async def _declare_schedules(self) -> None:
        """Declare the application's schedules in the store, as no worker may have started yet."""
        now = await self._app.store.now()
        declared = [(s.name, s.spec, s.first_after(now)) for s in self._app.schedules.values()]
        await control.declare(self._app.store, declared)

    def _schedule(self, name: str) -> Schedule:
        found = self._app.schedules.get(name)
        if found is None:
            raise self._no_schedule(name)
        return found

    def _no_schedule(self, name: str) -> ScheduleNotFound:
        known = ", ".join(sorted(self._app.schedules)) or "none"
        return ScheduleNotFound(f"no schedule is called {name!r}; known: {known}")
