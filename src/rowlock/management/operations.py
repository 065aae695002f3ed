"""The interface of the management service, local (`ManagementService`) or of a server (`Client`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from rowlock.jobs.policy import Unique
from rowlock.management.schemas import Shape
from rowlock.storage.imports import ImportId, ImportStatus
from rowlock.storage.records import JobId, Status

_LOOK_SECONDS = 0.1
_LOOK_SECONDS_MAX = 1.0
_LOOK_FACTOR = 1.1


class Operations(Protocol):
    """Every query and command; results are the JSON objects of the HTTP API."""

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
    ) -> Shape: ...

    async def job(self, job_id: JobId, *, raw: bool = False) -> Shape: ...

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
    ) -> Shape: ...

    async def timeline(self, job_id: JobId, *, stacks: bool = True) -> Shape: ...

    async def retry(self, job_id: JobId) -> Shape: ...

    async def cancel(self, job_id: JobId) -> Shape: ...

    async def run_now(self, job_id: JobId) -> Shape: ...

    async def dead_groups(
        self, *, type: str | None = None, queue: str | None = None, company_id: str | None = None
    ) -> Shape: ...

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
    ) -> Shape: ...

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
    ) -> Shape: ...

    async def stats(self) -> Shape: ...

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
    ) -> Shape: ...

    async def failure(self, failure_id: str) -> Shape: ...

    async def retry_failure(self, failure_id: str) -> Shape: ...

    async def queues(self) -> Shape: ...

    async def history(self, minutes: int = 60) -> Shape: ...

    async def doing(self) -> Shape: ...

    async def switch(self, queue: str, *, paused: bool) -> Shape: ...

    async def queue_health(self, queue: str | None = None) -> Shape: ...

    async def health(self) -> Shape: ...

    async def metrics(self) -> bytes: ...

    async def prune(self) -> Shape: ...

    async def schedules(self) -> Shape: ...

    async def runs(self, name: str | None = None, *, limit: int = 50) -> Shape: ...

    async def pause_schedule(self, name: str) -> Shape: ...

    async def resume_schedule(self, name: str) -> Shape: ...

    async def run_schedule(self, name: str) -> Shape: ...

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
    ) -> Shape: ...

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
    ) -> Shape: ...

    async def import_job(self, import_id: ImportId) -> Shape: ...

    async def import_jobs(
        self,
        *,
        type: str | None = None,
        status: ImportStatus | str | None = None,
        company_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Shape: ...

    async def import_errors(self, import_id: ImportId, *, after_row: int = 0, limit: int = 100) -> Shape: ...

    def import_errors_csv(self, import_id: ImportId) -> AsyncGenerator[bytes]: ...

    async def resume_import(self, import_id: ImportId) -> Shape: ...

    async def cancel_import(self, import_id: ImportId) -> Shape: ...

    async def import_types(self) -> Shape: ...

    async def import_template(self, name: str) -> bytes: ...

    async def integrations(self) -> Shape: ...

    async def sync_stats(self, integration: str) -> Shape: ...

    async def sync_monitor(self, integration: str) -> Shape: ...

    async def sync_send(
        self,
        integration: str,
        operation: str,
        payload: dict[str, Any] | None = None,
        *,
        priority: int | None = None,
        delay_seconds: float = 0.0,
        company_id: str | None = None,
    ) -> Shape: ...


async def wait(
    management: Operations, job_id: JobId, seconds: float, seen: Callable[[Shape], None] = lambda _: None
) -> Shape:
    """Poll a job until it ends or `seconds` pass, and return it; `seen` is called after each further poll."""
    return await _wait(lambda: management.job(job_id), lambda word: Status(word).final, seconds, seen)


async def wait_import(
    management: Operations, import_id: ImportId, seconds: float, seen: Callable[[Shape], None] = lambda _: None
) -> Shape:
    """Poll an import until it ends or `seconds` pass, and return it; `seen` is called after each further poll."""
    return await _wait(lambda: management.import_job(import_id), lambda word: ImportStatus(word).final, seconds, seen)


async def _wait(
    look: Callable[[], Awaitable[Shape]], over: Callable[[str], bool], seconds: float, seen: Callable[[Shape], None]
) -> Shape:
    found = await look()
    pause = _LOOK_SECONDS
    try:
        async with asyncio.timeout(seconds):
            while not over(found["status"]):
                await asyncio.sleep(pause)
                pause = min(pause * _LOOK_FACTOR, _LOOK_SECONDS_MAX)
                found = await look()
                seen(found)
    except TimeoutError:
        pass
    return found


__all__ = ["Operations", "wait", "wait_import"]
