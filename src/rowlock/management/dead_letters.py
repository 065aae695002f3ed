"""Dead letters: retry, discard and count by filter. Failed attempts: list, get, retry."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Annotated, NamedTuple

from rowlock.errors import BadCursor
from rowlock.management.endpoint import Parameter, get, post
from rowlock.management.jobs import Jobs
from rowlock.management.parameters import (
    AnyId,
    CompanyFilter,
    CursorParameter,
    FailureIdParameter,
    LimitParameter,
    QueueFilter,
    ReasonFilter,
    SinceFilter,
    TypeFilter,
    UntilFilter,
    no_failure,
)
from rowlock.management.schemas.base import Name
from rowlock.management.schemas.dead_letters import (
    DiscardedSchema,
    FailureSchema,
    FailuresSchema,
    RetriedSchema,
    RetrySchema,
)
from rowlock.management.schemas.jobs import PageSchema
from rowlock.management.schemas.requests import DeadLettersRequest, RetryRequest
from rowlock.storage.access import Role
from rowlock.storage.records import JobFilter, JobId, JobRecord, Status
from rowlock.storage.reliability import FailureFilter

MATCHED_MAX = 1_000_000  # matching jobs are counted up to this number
_BATCH = 100  # whole records are read for their ids, and may be large
_BULK_SECONDS = 20.0  # then the call ends, and the caller continues with its cursor
_DATED_MAX = 1_000  # newest jobs that are checked against died_before


class _Batch(NamedTuple):
    ids: list[JobId]
    cursor: str | None
    late: int = 0  # jobs left out of these ids, as they failed after died_before


class Count(NamedTuple):
    """How many dead letters match, and the store's time before they were counted."""

    matched: int
    at: datetime


class Records(Jobs):
    """Queries and commands about dead letters and failed attempts."""

    @get("/api/v1/queue/dead-letter", "jobs", "List dead letters")
    async def dead_letters(
        self,
        *,
        type: TypeFilter = None,
        queue: QueueFilter = None,
        company_id: CompanyFilter = None,
        reason: ReasonFilter = None,
        since: SinceFilter = None,
        until: UntilFilter = None,
        limit: LimitParameter = 50,
        cursor: CursorParameter = None,
    ) -> PageSchema:
        """The jobs that failed, newest first."""
        where = {"type": type, "queue": queue, "company_id": company_id, "reason": reason}
        return await self.jobs(status=Status.FAILED, **where, since=since, until=until, limit=limit, cursor=cursor)

    @post("/api/v1/queue/dead-letter/retry", "jobs", "Retry dead letters", body=DeadLettersRequest)
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
        died_before: datetime | None = None,
    ) -> RetriedSchema:
        """With fresh attempts. `dryRun` only counts the matching jobs; repeat with `nextCursor` while there are more.

        Retries up to `limit` jobs, newest first. Jobs that failed after `died_before`, by the store's time, stay
        unchanged.
        """
        where = self._where(Status.FAILED, type, queue, company_id, ids, await self._kept_reason(reason))
        if dry_run:
            matched = await self._count(where, died_before, MATCHED_MAX)
            return RetriedSchema(dry_run=True, matched=matched, retried=0, conflicts=[], next_cursor=None)
        done, matched, retried, conflicts = _Batch([], cursor), 0, 0, list[JobId]()
        async for done in self._batches(where, limit, cursor, died_before):
            await self._app.imports.resume_of(done.ids, scoped=self._company_id is not None)
            result = await self._app.store.retry(JobFilter(Status.FAILED, ids=done.ids), len(done.ids))
            matched, retried = matched + len(done.ids), retried + len(result.retried)
            conflicts += result.conflicts
        return RetriedSchema(
            dry_run=False, matched=matched, retried=retried, conflicts=conflicts, next_cursor=done.cursor
        )

    @post("/api/v1/queue/dead-letter/discard", "jobs", "Discard dead letters", body=DeadLettersRequest)
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
        died_before: datetime | None = None,
    ) -> DiscardedSchema:
        """Deletes them and releases their unique keys.

        Deletes up to `limit` jobs, newest first; continue with `nextCursor` if there are more. Jobs that failed after
        `died_before`, by the store's time, stay unchanged.
        """
        where = self._where(Status.FAILED, type, queue, company_id, ids, await self._kept_reason(reason))
        if dry_run:
            matched = await self._count(where, died_before, MATCHED_MAX)
            return DiscardedSchema(dry_run=True, matched=matched, discarded=0, next_cursor=None)
        done, matched, discarded = _Batch([], cursor), 0, 0
        async for done in self._batches(where, limit, cursor, died_before):
            matched += len(done.ids)
            discarded += len(await self._app.store.discard(JobFilter(Status.FAILED, ids=done.ids), len(done.ids)))
        return DiscardedSchema(dry_run=False, matched=matched, discarded=discarded, next_cursor=done.cursor)

    async def count_dead(
        self,
        *,
        ids: Sequence[JobId] | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        reason: str | None = None,
        died_before: datetime | None = None,
        at_most: int = MATCHED_MAX,
    ) -> Count:
        """Count matching failed jobs, up to `at_most`."""
        where = self._where(Status.FAILED, type, queue, company_id, ids, await self._kept_reason(reason))
        now = await self._app.store.now()
        return Count(await self._count(where, died_before, at_most), now)

    @get("/api/admin/queue/failures", "administration", "List failed attempts", role=Role.ADMIN, enveloped=True)
    async def failures(
        self,
        *,
        company_id: CompanyFilter = None,
        job_name: Annotated[str | None, Parameter("Only of jobs of this type.", Name | None)] = None,
        job_id: Annotated[str | None, Parameter("Only of this job.", AnyId | None)] = None,
        final: Annotated[bool | None, Parameter("Only last attempts, or only earlier ones.")] = None,
        unresolved: Annotated[bool, Parameter("Only failures whose job was not retried since.")] = False,
        limit: LimitParameter = 50,
        cursor: CursorParameter = None,
    ) -> FailuresSchema:
        """Newest first."""
        company_id = self._own(company_id)
        where = FailureFilter(company_id, job_name, job_id, final, unresolved)
        try:
            page = await self._app.store.failures(where, limit, cursor)
        except ValueError as error:
            raise BadCursor(str(error)) from None
        failures = [FailureSchema.of(failure, self._redact) for failure in page.failures]
        return FailuresSchema(failures=failures, next_cursor=page.next_cursor)

    @get(
        "/api/admin/queue/failures/{failure_id}",
        "administration",
        "Get a failed attempt",
        role=Role.ADMIN,
        enveloped=True,
        fails=(404,),
    )
    async def failure(self, failure_id: FailureIdParameter) -> FailureSchema:
        """With its stack trace."""
        found = await self._app.store.failure(failure_id)
        if found is None or self._company_id not in (None, found.company_id):
            raise no_failure(failure_id)
        return FailureSchema.of(found, self._redact)

    @post(
        "/api/admin/queue/retry",
        "administration",
        "Retry the job of a failure",
        role=Role.ADMIN,
        enveloped=True,
        fails=(404, 409),
        body=RetryRequest,
    )
    async def retry_failure(self, failure_id: FailureIdParameter) -> RetrySchema:
        """Retries its job, with fresh attempts; the failure counts as resolved."""
        job_id = (await self.failure(failure_id)).job_id
        await self.retry(job_id)
        return RetrySchema(failure_id=failure_id, job_id=job_id)

    async def _count(self, where: JobFilter, died_before: datetime | None, at_most: int) -> int:
        """Count matching jobs, without those of the newest _DATED_MAX that failed after `died_before`."""
        matched = await self._app.store.count(where, at_most)
        if died_before is None or not matched:
            return matched
        late = 0
        async for batch in self._batches(where, _DATED_MAX, None, died_before):
            late += batch.late
        return max(0, matched - late)

    async def _batches(
        self, where: JobFilter, limit: int, cursor: str | None, died_before: datetime | None
    ) -> AsyncIterator[_Batch]:
        """Yield the ids of up to `limit` matching jobs in batches, each with a cursor; stops after _BULK_SECONDS."""
        until = time.monotonic() + _BULK_SECONDS
        while limit > 0 and time.monotonic() < until:
            page = await self._page(where, min(_BATCH, limit), cursor)
            cursor = page.next_cursor
            ids = [job.id for job in page.jobs if died_before is None or _died_at(job) <= died_before]
            yield _Batch(ids, cursor, len(page.jobs) - len(ids))
            limit -= len(page.jobs)
            if cursor is None:
                return


def _died_at(job: JobRecord) -> datetime:
    return job.finished_at or job.updated_at
