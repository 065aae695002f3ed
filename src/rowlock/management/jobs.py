"""Jobs: enqueue, get, list, retry, cancel, run now; and job counts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rowlock.errors import CompanyMismatch, JobFailed, JobIsOver, JobNotWaiting
from rowlock.jobs.classify import describe
from rowlock.jobs.new_jobs import Options
from rowlock.jobs.policy import Unique
from rowlock.management.company_scope import CompanyScope
from rowlock.management.schemas import Shape, job_shape
from rowlock.notification_job import other_sides
from rowlock.storage.access import RequestAnswer
from rowlock.storage.duplicate import duplicate
from rowlock.storage.records import CancelResult, JobId, Status

OWN_COUNT_MAX = 10_000  # one company's jobs are counted up to this number


class Jobs(CompanyScope):
    """Queries and commands about jobs."""

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
    ) -> Shape:
        """Enqueue a job; return its record, and whether this call `created` it.

        With a `reserved` id (see `control.requests`), a second try returns the job of the first.
        """
        self._check_company(company_id, payload or {}, limit_key)
        company = self._company_id or company_id
        options = Options(queue, priority, delay_seconds, at, max_attempts, company, unique, limit_key, "request")
        return await self._submitted(type, {} if payload is None else payload, options, reserved)

    async def _submitted(
        self, type: str, payload: dict[str, Any], options: Options, reserved: RequestAnswer | None
    ) -> Shape:
        enqueued = await self._app.engine.producer.enqueue(type, payload, options, reserved=reserved)
        receipt, error = enqueued.receipt, enqueued.error
        if error is not None:
            raise JobFailed(f"{type}: {self._redact.message(describe(error, self._redact))}") from error
        if enqueued.record is not None:
            return job_shape(enqueued.record, self._redact) | {"created": True}
        if receipt.removed:
            raise duplicate(enqueued.job, receipt)  # retention removed the key's job, so there is no record to return
        return await self.job(receipt.job_id) | {"created": receipt.created}

    async def job(self, job_id: JobId, *, raw: bool = False) -> Shape:
        """Return one job with all fields; its secrets are redacted unless `raw`."""
        record = await self._found(job_id)
        if raw:
            shape = job_shape(record, None, other_sides(self._app).get(record.type))
            hidden = ("error", "message") if self._company_id is not None else ()
            return shape | {name: self._redact.message(shape[name]) for name in hidden if shape[name]}
        return (await self._shaped([record]))[0]

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
    ) -> Shape:
        """Jobs, newest first: {jobs, nextCursor}; with a reason, only those that failed for it."""
        word = None if status is None else Status(status)
        if reason is not None and word not in (None, Status.FAILED):
            return {"jobs": [], "nextCursor": None}
        word = word if reason is None else Status.FAILED
        reason = await self._kept_reason(reason)
        where = self._where(word, type, queue, company_id, reason=reason, since=since, until=until)
        page = await self._bounded(where, limit, cursor)
        shapes = await self._shaped(page.jobs)
        return {"jobs": shapes, "nextCursor": page.next_cursor}

    async def retry(self, job_id: JobId) -> Shape:
        """Queue a failed or cancelled job again, with fresh attempts; resumes the import that failed with it."""
        await self._found(job_id)
        await self._app.retry(job_id, scoped=self._company_id is not None)
        return await self.job(job_id)

    async def cancel(self, job_id: JobId) -> Shape:
        """Cancel a waiting job, or ask a running one to stop; return the job. Raises JobIsOver if it has ended."""
        if await self._app.cancel((await self._found(job_id)).id) is CancelResult.ALREADY_FINAL:
            record = await self._found(job_id)
            raise JobIsOver(f"job {job_id} is {record.status.value} already; there is nothing to cancel")
        return await self.job(job_id)

    async def run_now(self, job_id: JobId) -> Shape:
        """Make a delayed job available now; return the job. Raises JobNotWaiting if it runs or has ended."""
        if not await self._app.store.run_now((await self._found(job_id)).id):
            record = await self._found(job_id)
            if record.status is not Status.QUEUED:
                state = "runs already" if record.status is Status.PROCESSING else f"is {record.status.value}"
                raise JobNotWaiting(f"job {job_id} {state}: only a waiting job can be run now")
        return await self.job(job_id)

    async def stats(self) -> Shape:
        """Job counts by status; for all companies also the totals of the last hour."""
        store = self._app.store
        if self._company_id is not None:
            counts = {s.value: await store.count(self._where(s), OWN_COUNT_MAX) for s in Status}
            return {"counts": counts, "countedUpTo": OWN_COUNT_MAX, "lastHour": None}
        counts = {status.value: count for status, count in (await store.counts()).items()}
        hour = await store.activity(3_600)
        ended = sum(a.succeeded + a.failed for a in hour)
        return {
            "counts": counts,
            "countedUpTo": None,
            "lastHour": {
                "succeeded": sum(a.succeeded for a in hour),
                "failed": sum(a.failed for a in hour),
                "cancelled": sum(a.cancelled for a in hour),
                "failedAttempts": sum(a.failures for a in hour),
                "retries": sum(a.retries for a in hour),
                "rescues": sum(a.rescues for a in hour),
                "meanSeconds": sum(a.seconds for a in hour) / ended if ended else None,
            },
        }

    def _check_company(self, company_id: str | None, payload: dict[str, Any], limit_key: str | None) -> None:
        """Raise CompanyMismatch if a scoped caller names another company, also in the payload, which handlers use."""
        if self._company_id is None:
            return
        named = [company_id, *(payload.get(name) for name in ("companyId", "company_id"))]
        if any(other not in (None, self._company_id) for other in named):
            raise CompanyMismatch(f"company {self._company_id!r} asks, and the job names another; nothing was enqueued")
        if limit_key is not None:
            raise CompanyMismatch("a limit key counts for all companies, and one asks; nothing was enqueued")
