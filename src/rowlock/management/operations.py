"""The interface of the management service, local (`ManagementService`) or of a server (`Client`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rowlock.jobs.policy import Unique
from rowlock.management.schemas.dead_letters import (
    DeadGroupsSchema,
    DiscardedSchema,
    FailureSchema,
    FailuresSchema,
    RetriedSchema,
    RetrySchema,
)
from rowlock.management.schemas.fleet import (
    DoingSchema,
    HealthSchema,
    HistorySchema,
    PrunedSchema,
    QueueHealthSchema,
    QueuesSchema,
    SwitchedSchema,
)
from rowlock.management.schemas.imports import (
    ImportErrorsSchema,
    ImportSchema,
    ImportsSchema,
    ImportTypesSchema,
    ImportWholeSchema,
)
from rowlock.management.schemas.jobs import EnqueuedSchema, JobSchema, PageSchema, StatsSchema, TimelineSchema
from rowlock.management.schemas.schedules import (
    RunsSchema,
    SchedulePausedSchema,
    ScheduleResumedSchema,
    ScheduleRunSchema,
    SchedulesSchema,
)
from rowlock.management.schemas.sync import IntegrationsSchema, SyncMonitorSchema, SyncStatsSchema
from rowlock.storage.imports import ImportId, ImportStatus
from rowlock.storage.records import JobId, Status

_LOOK_SECONDS = 0.1
_LOOK_SECONDS_MAX = 1.0
_LOOK_FACTOR = 1.1


class Operations(Protocol):
    """Every query and command."""

    async def enqueue(
        self,
        type: str,
        payload: dict[str, Any] | None = None,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay_seconds: float = 0.0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        company_id: str | None = None,
        unique: Unique | None = None,
        limit_key: str | None = None,
    ) -> EnqueuedSchema: ...

    async def job(self, job_id: JobId, *, raw: bool = False) -> JobSchema: ...

    async def jobs(
        self,
        *,
        status: Status | str | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> PageSchema: ...

    async def timeline(self, job_id: JobId, *, stacks: bool = True) -> TimelineSchema: ...

    async def retry(self, job_id: JobId) -> JobSchema: ...

    async def cancel(self, job_id: JobId) -> JobSchema: ...

    async def run_now(self, job_id: JobId) -> JobSchema: ...

    async def dead_groups(
        self, *, type: str | None = None, queue: str | None = None, company_id: str | None = None
    ) -> DeadGroupsSchema: ...

    async def retry_dead(
        self,
        *,
        ids: Sequence[JobId] | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        limit: int = 10_000,
        cursor: str | None = None,
    ) -> RetriedSchema: ...

    async def discard_dead(
        self,
        *,
        ids: Sequence[JobId] | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        limit: int = 10_000,
        cursor: str | None = None,
    ) -> DiscardedSchema: ...

    async def stats(self) -> StatsSchema: ...

    async def failures(
        self,
        *,
        company_id: str | None = None,
        job_name: str | None = None,
        job_id: JobId | None = None,
        final: bool | None = None,
        unresolved: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> FailuresSchema: ...

    async def failure(self, failure_id: str) -> FailureSchema: ...

    async def retry_failure(self, failure_id: str) -> RetrySchema: ...

    async def queues(self) -> QueuesSchema: ...

    async def history(self, minutes: int = 60) -> HistorySchema: ...

    async def doing(self) -> DoingSchema: ...

    async def switch(self, queue: str, *, paused: bool) -> SwitchedSchema: ...

    async def queue_health(self, queue: str | None = None) -> QueueHealthSchema: ...

    async def health(self) -> HealthSchema: ...

    async def metrics(self) -> bytes: ...

    async def prune(self) -> PrunedSchema: ...

    async def schedules(self) -> SchedulesSchema: ...

    async def runs(self, name: str | None = None, *, limit: int = 50) -> RunsSchema: ...

    async def pause_schedule(self, name: str) -> SchedulePausedSchema: ...

    async def resume_schedule(self, name: str) -> ScheduleResumedSchema: ...

    async def run_schedule(self, name: str) -> ScheduleRunSchema: ...

    async def import_file(
        self,
        path: Path,
        *,
        type: str | None = None,
        sheet: str | None = None,
        company_id: str | None = None,
        project_id: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        sent: Callable[[int], None] | None = None,
    ) -> ImportSchema: ...

    async def import_named(
        self,
        file_name: str,
        *,
        type: str | None = None,
        sheet: str | None = None,
        company_id: str | None = None,
        project_id: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> ImportSchema: ...

    async def import_job(self, import_id: ImportId) -> ImportWholeSchema: ...

    async def import_jobs(
        self,
        *,
        type: str | None = None,
        status: ImportStatus | str | None = None,
        company_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> ImportsSchema: ...

    async def import_errors(
        self, import_id: ImportId, *, after_row: int = 0, limit: int = 100
    ) -> ImportErrorsSchema: ...

    def import_errors_csv(self, import_id: ImportId) -> AsyncGenerator[bytes]: ...

    async def resume_import(self, import_id: ImportId) -> ImportWholeSchema: ...

    async def cancel_import(self, import_id: ImportId) -> ImportWholeSchema: ...

    async def import_types(self) -> ImportTypesSchema: ...

    async def import_template(self, name: str) -> bytes: ...

    async def integrations(self) -> IntegrationsSchema: ...

    async def sync_stats(self, integration: str) -> SyncStatsSchema: ...

    async def sync_monitor(self, integration: str) -> SyncMonitorSchema: ...

    async def sync_send(
        self,
        integration: str,
        operation: str,
        payload: dict[str, Any] | None = None,
        *,
        priority: int | None = None,
        delay_seconds: float = 0.0,
        company_id: str | None = None,
    ) -> EnqueuedSchema: ...


J = TypeVar("J", JobSchema, ImportWholeSchema)


async def wait(
    management: Operations, job_id: JobId, seconds: float, seen: Callable[[JobSchema], None] = lambda _: None
) -> JobSchema:
    """Poll a job until it ends or `seconds` pass, and return it; `seen` is called after each further poll."""
    return await _wait(lambda: management.job(job_id), seconds, seen)


async def wait_import(
    management: Operations,
    import_id: ImportId,
    seconds: float,
    seen: Callable[[ImportWholeSchema], None] = lambda _: None,
) -> ImportWholeSchema:
    """Poll an import until it ends or `seconds` pass, and return it; `seen` is called after each further poll."""
    return await _wait(lambda: management.import_job(import_id), seconds, seen)


async def _wait(look: Callable[[], Awaitable[J]], seconds: float, seen: Callable[[J], None]) -> J:
    found = await look()
    pause = _LOOK_SECONDS
    try:
        async with asyncio.timeout(seconds):
            while not found.status.final:
                await asyncio.sleep(pause)
                pause = min(pause * _LOOK_FACTOR, _LOOK_SECONDS_MAX)
                found = await look()
                seen(found)
    except TimeoutError:
        pass
    return found


__all__ = ["Operations", "wait", "wait_import"]
