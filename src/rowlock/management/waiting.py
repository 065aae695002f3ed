"""Wait for the end of a job or an import, by polling the management service, here or of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from rowlock.management.schemas.imports import ImportWholeSchema
from rowlock.management.schemas.jobs import JobSchema
from rowlock.storage.imports import ImportId
from rowlock.storage.records import JobId

_LOOK_SECONDS = 0.1
_LOOK_SECONDS_MAX = 1.0
_LOOK_FACTOR = 1.1

S = TypeVar("S", JobSchema, ImportWholeSchema)


class HasJobs(Protocol):
    async def job(self, job_id: JobId, *, raw: bool = False) -> JobSchema: ...


class HasImports(Protocol):
    async def import_job(self, import_id: ImportId) -> ImportWholeSchema: ...


async def wait(
    management: HasJobs, job_id: JobId, seconds: float, seen: Callable[[JobSchema], None] = lambda _: None
) -> JobSchema:
    """Poll a job until it ends or `seconds` pass, and return it; `seen` is called after each further poll."""
    return await _wait(lambda: management.job(job_id), seconds, seen)


async def wait_import(
    management: HasImports,
    import_id: ImportId,
    seconds: float,
    seen: Callable[[ImportWholeSchema], None] = lambda _: None,
) -> ImportWholeSchema:
    """Poll an import until it ends or `seconds` pass, and return it; `seen` is called after each further poll."""
    return await _wait(lambda: management.import_job(import_id), seconds, seen)


async def _wait(look: Callable[[], Awaitable[S]], seconds: float, seen: Callable[[S], None]) -> S:
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
