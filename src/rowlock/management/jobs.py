"""Jobs: enqueue, get, list, retry, cancel, run now; and job counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

from rowlock.errors import CompanyMismatch, JobFailed, JobIsOver, JobNotWaiting
from rowlock.jobs.classify import describe
from rowlock.jobs.new_jobs import Options
from rowlock.jobs.policy import Unique
from rowlock.management.company_scope import CompanyScope
from rowlock.management.endpoint import Parameter, get, post
from rowlock.management.parameters import (
    CompanyFilter,
    CursorParameter,
    JobIdParameter,
    LimitParameter,
    QueueFilter,
    ReasonFilter,
    SinceFilter,
    StatusFilter,
    TypeFilter,
    UntilFilter,
)
from rowlock.management.schemas.jobs import EnqueuedSchema, HourSchema, JobSchema, PageSchema, StatsSchema
from rowlock.management.schemas.requests import EnqueueRequest
from rowlock.notification_job import other_sides
from rowlock.storage.access import RequestAnswer
from rowlock.storage.duplicate import duplicate
from rowlock.storage.records import CancelResult, JobId, Status

OWN_COUNT_MAX = 10_000  # one company's jobs are counted up to this number


class Jobs(CompanyScope):
    """Queries and commands about jobs."""

    @post("/api/v1/queue/enqueue", "jobs", "Enqueue a job", fails=(409, 413), status=201, body=EnqueueRequest)
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
        reserved: RequestAnswer | None = None,
    ) -> EnqueuedSchema:
        """The job is durable when this returns. 409 has the id of the job with its unique key; with `return_existing`
        that job is returned with status 200.

        The result has `created`: whether this call created the job. With a `reserved` id (see `control.requests`), a
        second try returns the job of the first.
        """
        self._check_company(company_id, payload or {}, limit_key)
        company = self._company_id or company_id
        options = Options(queue, priority, delay_seconds, at, max_attempts, company, unique, limit_key, "request")
        return await self._submitted(type, {} if payload is None else payload, options, reserved)

    async def _submitted(
        self, type: str, payload: dict[str, Any], options: Options, reserved: RequestAnswer | None
    ) -> EnqueuedSchema:
        enqueued = await self._app.engine.producer.enqueue(type, payload, options, reserved=reserved)
        receipt, error = enqueued.receipt, enqueued.error
        if error is not None:
            raise JobFailed(f"{type}: {self._redact.message(describe(error, self._redact))}") from error
        if enqueued.record is not None:
            return EnqueuedSchema.of(enqueued.record, self._redact, created=True)
        if receipt.removed:
            raise duplicate(enqueued.job, receipt)  # retention removed the key's job, so there is no record to return
        return await self._enqueued(receipt.job_id, created=receipt.created)

    async def _enqueued(self, job_id: JobId, *, created: bool) -> EnqueuedSchema:
        return await self._schema(EnqueuedSchema, await self._found(job_id), created=created)

    @get("/api/v1/queue/{job_id}", "jobs", "Get a job", fails=(404,))
    async def job(
        self,
        job_id: JobIdParameter,
        *,
        raw: Annotated[bool, Parameter("Include secrets; requires the role admin.")] = False,
    ) -> JobSchema:
        """With all fields. Secrets are redacted unless `raw` is true."""
        record = await self._found(job_id)
        if not raw:
            return await self._schema(JobSchema, record)
        if self._company_id is not None:  # its own secrets, but no internals of the server
            error, message = (text and self._redact.message(text) for text in (record.error, record.message))
            record = replace(record, error=error, message=message)
        return JobSchema.of(record, None, other_sides(self._app).get(record.type))

    @get("/api/v1/queue", "jobs", "List jobs, newest first")
    async def jobs(
        self,
        *,
        status: StatusFilter = None,
        type: TypeFilter = None,
        queue: QueueFilter = None,
        company_id: CompanyFilter = None,
        reason: ReasonFilter = None,
        since: SinceFilter = None,
        until: UntilFilter = None,
        limit: LimitParameter = 50,
        cursor: CursorParameter = None,
    ) -> PageSchema:
        """In pages: `nextCursor` leads to the next one. With a reason, only jobs that failed for it."""
        word = None if status is None else Status(status)
        if reason is not None and word not in (None, Status.FAILED):
            return PageSchema(jobs=[], next_cursor=None)
        word = word if reason is None else Status.FAILED
        reason = await self._kept_reason(reason)
        where = self._where(word, type, queue, company_id, reason=reason, since=since, until=until)
        page = await self._bounded(where, limit, cursor)
        return PageSchema(jobs=await self._schemas(page.jobs), next_cursor=page.next_cursor)

    @post("/api/v1/queue/{job_id}/retry", "jobs", "Retry a job", fails=(404, 409))
    async def retry(self, job_id: JobIdParameter) -> JobSchema:
        """Retries a failed or cancelled job, with fresh attempts, and resumes the import that failed with it."""
        await self._found(job_id)
        await self._app.retry(job_id, scoped=self._company_id is not None)
        return await self.job(job_id)

    @post("/api/v1/queue/{job_id}/cancel", "jobs", "Cancel a job", fails=(404, 409))
    async def cancel(self, job_id: JobIdParameter) -> JobSchema:
        """A waiting job will not run; a running one is asked to stop (`cancelRequested`).

        Raises JobIsOver if it has ended.
        """
        if await self._app.cancel((await self._found(job_id)).id) is CancelResult.ALREADY_FINAL:
            record = await self._found(job_id)
            raise JobIsOver(f"job {job_id} is {record.status.value} already; there is nothing to cancel")
        return await self.job(job_id)

    @post("/api/v1/queue/{job_id}/run-now", "jobs", "Run a job now", fails=(404, 409))
    async def run_now(self, job_id: JobIdParameter) -> JobSchema:
        """Makes a delayed job, or one that waits for its next attempt, available now, in its place in the queue.

        Raises JobNotWaiting if it runs or has ended.
        """
        if not await self._app.store.run_now((await self._found(job_id)).id):
            record = await self._found(job_id)
            if record.status is not Status.QUEUED:
                state = "runs already" if record.status is Status.PROCESSING else f"is {record.status.value}"
                raise JobNotWaiting(f"job {job_id} {state}: only a waiting job can be run now")
        return await self.job(job_id)

    @get("/api/v1/queue/stats", "jobs", "Count jobs")
    async def stats(self) -> StatsSchema:
        """Job counts by status; for all companies also the totals of the last hour."""
        store = self._app.store
        if self._company_id is not None:
            counts = {status: await store.count(self._where(status), OWN_COUNT_MAX) for status in Status}
            return StatsSchema(counts=counts, counted_up_to=OWN_COUNT_MAX, last_hour=None)
        hour = await store.activity(3_600)
        succeeded, failed = sum(each.succeeded for each in hour), sum(each.failed for each in hour)
        ended = succeeded + failed
        return StatsSchema(
            counts=await store.counts(),
            counted_up_to=None,
            last_hour=HourSchema(
                succeeded=succeeded,
                failed=failed,
                cancelled=sum(each.cancelled for each in hour),
                failed_attempts=sum(each.failures for each in hour),
                retries=sum(each.retries for each in hour),
                rescues=sum(each.rescues for each in hour),
                mean_seconds=sum(each.seconds for each in hour) / ended if ended else None,
            ),
        )

    def _check_company(self, company_id: str | None, payload: dict[str, Any], limit_key: str | None) -> None:
        """Raise CompanyMismatch if a scoped caller names another company, also in the payload, which handlers use."""
        if self._company_id is None:
            return
        named = [company_id, *(payload.get(name) for name in ("companyId", "company_id"))]
        if any(other not in (None, self._company_id) for other in named):
            raise CompanyMismatch(f"company {self._company_id!r} asks, and the job names another; nothing was enqueued")
        if limit_key is not None:
            raise CompanyMismatch("a limit key counts for all companies, and one asks; nothing was enqueued")
