"""The operators' desk: everything that people and programs ask from outside, answered in the shapes of the HTTP API.

HTTP routes and commands are thin skins of it; `rowlock.client.Client` is the same desk at the other end of a wire.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from rowlock.app import Rowlock
from rowlock.errors import (
    BadCursor,
    CompanyMismatch,
    JobFailed,
    JobIsOver,
    JobNotFound,
    JobNotRetryable,
    ScheduleNotFound,
)
from rowlock.ids import uuid7
from rowlock.jobs.classify import describe
from rowlock.jobs.enqueue import Options
from rowlock.jobs.keeper import prune
from rowlock.jobs.policy import Unique
from rowlock.jobs.reader import Reader
from rowlock.jobs.registry import checked_name
from rowlock.jobs.resilient import run_now
from rowlock.jobs.schedule import Schedule
from rowlock.observe import logs
from rowlock.observe.health import failures, queue_health
from rowlock.observe.metrics import exposition
from rowlock.shapes import Shape, failure_shape, iso, job_shape, queue_shape, run_shape, worker_shape
from rowlock.storage.access import RequestAnswer, RequestState
from rowlock.storage.records import CancelResult, JobFilter, JobId, JobRecord, NewJob, Page, QueueRecord, Status
from rowlock.storage.reliability import FailureFilter, Tick

MATCHED_MAX = 1_000_000  # how far matching jobs are counted
OWN_COUNT_MAX = 10_000  # how far one company's jobs are counted
_BATCH = 100  # whole records are read for their ids: few at a time, they may be large
_BULK_SECONDS = 20.0  # then the caller goes on with the next call
_FIRST_STEP = 50
_LARGE_BYTES = 65_536
_PAGE_BYTES = 1_048_576  # of payloads and results in one page; one that is larger comes alone


class _Batch(NamedTuple):
    ids: list[JobId]
    cursor: str | None


class Desk:
    """What may be asked of an application; with a company, of that company's jobs only."""

    def __init__(self, app: Rowlock, company_id: str | None = None, reader: Reader | None = None) -> None:
        self._app = app
        self._company_id = company_id
        self._reader = reader or Reader(app.store)

    # -- jobs --------------------------------------------------------------------------------------

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
        """Enqueue a job; its record, and whether this call `created` it.

        With a `reserved` id (see begin_request), a second try finds the job of the first.
        """
        self._check_company(company_id, payload or {}, limit_key)
        app, company = self._app, self._company_id or company_id
        options = Options(queue, priority, delay_seconds, at, max_attempts, company, unique, limit_key)
        (new,) = app.engine.enqueuer.prepare_many([(type, {} if payload is None else payload)], options)
        if app.settings.resilient:
            return await self._run_now(new)
        submit = app.engine.enqueuer.submit
        if reserved is not None:
            new = new._replace(id=reserved.job_id)
            if reserved.state is RequestState.BROKEN_OFF:
                if await self._reader.get(new.id) is not None:
                    return await self.job(new.id) | {"created": True}
                submit = app.engine.enqueuer.submit_alone
        receipt = await submit(new)
        return await self.job(receipt.job_id) | {"created": receipt.created}

    async def _run_now(self, new: NewJob) -> Shape:
        began = await self._app.store.now()
        try:
            await run_now(self._app.engine, new, logs.get())
        except Exception as error:
            raise JobFailed(f"{new.type}: {describe(error, self._app.redact)}") from error
        ended = await self._app.store.now()
        record = JobRecord(
            id=new.id,
            type=new.type,
            queue=new.queue,
            status=Status.SUCCEEDED,
            payload=new.payload,
            priority=new.priority,
            attempts=1,
            max_attempts=1,
            deaths=0,
            lease=0,
            visibility_timeout_ms=new.visibility_ms,
            created_at=began,
            available_at=began,
            updated_at=ended,
            started_at=began,
            finished_at=ended,
            company_id=new.company_id,
            limit_key=new.limit_key,
            trace=new.trace,
        )
        return job_shape(record, self._app.redact) | {"created": True}

    async def job(self, job_id: JobId, *, raw: bool = False) -> Shape:
        """One job, whole; its secrets only when `raw`."""
        record = await self._found(job_id)
        return job_shape(record, None) if raw else (await self._shaped([record]))[0]

    async def jobs(
        self,
        *,
        status: Status | str | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Shape:
        """Jobs, newest first: {jobs, nextCursor}."""
        where = self._where(None if status is None else Status(status), type, queue, company_id)
        page = await self._bounded(where, limit, cursor)
        shapes = await self._shaped(page.jobs)
        return {"jobs": shapes, "nextCursor": page.next_cursor}

    async def retry(self, job_id: JobId) -> Shape:
        """Queue a failed or cancelled job again, with fresh attempts."""
        record = await self._found(job_id)
        done = await self._app.store.retry(JobFilter(ids=[record.id]), 1)
        if done.conflicts:
            raise JobNotRetryable(f"job {job_id}: another job holds its unique key now; it stays as it is")
        if not done.retried:
            record = await self._found(job_id)
            raise JobNotRetryable(f"job {job_id} is {record.status}; only failed and cancelled jobs can be retried")
        return await self.job(job_id)

    async def cancel(self, job_id: JobId) -> Shape:
        """Cancel a waiting job, or ask a running one to stop; the job as it is then."""
        record = await self._found(job_id)
        result = await self._app.store.cancel(record.id)
        if result is CancelResult.NOT_FOUND:
            raise _no_job(job_id)
        if result is CancelResult.ALREADY_FINAL:
            record = await self._found(job_id)
            raise JobIsOver(f"job {job_id} is {record.status.value} already; there is nothing to cancel")
        return await self.job(job_id)

    async def retry_dead(
        self,
        *,
        ids: Sequence[JobId] | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        dry_run: bool = False,
        limit: int = 10_000,
        cursor: str | None = None,
    ) -> Shape:
        """Queue up to `limit` failed jobs again, newest first; go on with `nextCursor` where there were more."""
        where = self._where(Status.FAILED, type, queue, company_id, ids)
        if dry_run:
            return await self._dry(where, {"retried": 0, "conflicts": []})
        done, retried, conflicts = _Batch([], cursor), 0, list[JobId]()
        matched = 0
        async for done in self._batches(where, limit, cursor):
            told = await self._app.store.retry(JobFilter(Status.FAILED, ids=done.ids), len(done.ids))
            matched, retried = matched + len(done.ids), retried + len(told.retried)
            conflicts += told.conflicts
        return {
            "dryRun": False,
            "matched": matched,
            "retried": retried,
            "conflicts": conflicts,
            "nextCursor": done.cursor,
        }

    async def discard_dead(
        self,
        *,
        ids: Sequence[JobId] | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        dry_run: bool = False,
        limit: int = 10_000,
        cursor: str | None = None,
    ) -> Shape:
        """Remove up to `limit` failed jobs for good, newest first; go on with `nextCursor` where there were more."""
        where = self._where(Status.FAILED, type, queue, company_id, ids)
        if dry_run:
            return await self._dry(where, {"discarded": 0})
        done, matched, discarded = _Batch([], cursor), 0, 0
        async for done in self._batches(where, limit, cursor):
            matched += len(done.ids)
            discarded += len(await self._app.store.discard(JobFilter(Status.FAILED, ids=done.ids), len(done.ids)))
        return {"dryRun": False, "matched": matched, "discarded": discarded, "nextCursor": done.cursor}

    async def stats(self) -> Shape:
        """How many jobs there are of each status; for all companies also what happened in the last hour."""
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

    # -- failures ----------------------------------------------------------------------------------

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
    ) -> Shape:
        """Failed attempts, newest first: {failures, nextCursor}."""
        company_id = self._own(company_id)
        where = FailureFilter(company_id, job_name, job_id, final, unresolved)
        try:
            page = await self._app.store.failures(where, limit, cursor)
        except ValueError as error:
            raise BadCursor(str(error)) from None
        shapes = [failure_shape(failure, self._app.redact) for failure in page.failures]
        return {"failures": shapes, "nextCursor": page.next_cursor}

    async def failure(self, failure_id: str) -> Shape:
        """One failed attempt, with its stack."""
        found = await self._app.store.failure(failure_id)
        if found is None or self._company_id not in (None, found.company_id):
            raise JobNotFound(f"no failure has the id {failure_id}; retention may have removed it")
        return failure_shape(found, self._app.redact)

    async def retry_failure(self, failure_id: str) -> Shape:
        """Queue the job of a failed attempt again, which resolves the failure."""
        job_id = (await self.failure(failure_id))["jobId"]
        await self.retry(job_id)
        return {"failureId": failure_id, "jobId": job_id}

    # -- queues ------------------------------------------------------------------------------------

    async def queues(self) -> Shape:
        """Every queue of the application, and all others that hold jobs or are paused: {queues}."""
        return {"queues": [queue_shape(queue) for queue in await self._queues()]}

    async def switch(self, queue: str, *, paused: bool) -> Shape:
        """Pause a queue for the whole fleet, or let it be worked on again; `known` is false where nobody uses it."""
        checked_name(queue, "queue")
        known = queue in {record.name for record in await self._queues()}
        await (self._app.store.pause(queue) if paused else self._app.store.resume(queue))
        return {"name": queue, "paused": paused, "known": known}

    async def queue_health(self, queue: str | None = None) -> Shape:
        """The health of one queue, in the shape that administrators know."""
        return await queue_health(self._app.store, self._app.settings, queue or self._app.settings.queue)

    async def health(self) -> Shape:
        """Is the store there, how many jobs are there, who works, and what is wrong?"""
        app = self._app
        queues = await self._queues()
        state = await app.store.schema()
        counts = await app.store.counts()
        now = await app.store.now()
        workers = [worker_shape(w, now, app.settings.visibility_ms) for w in await app.store.workers()]
        failed = await failures(app.store)
        warnings = _warnings(queues, {q for w in workers if w["alive"] for q in w["queues"]})
        if failed["failedLastHour"] >= app.settings.spike_threshold:
            warnings.append(
                f"{failed['failedLastHour']:,} attempts failed in the last hour: see `rowlock failures list`"
            )
        return {
            "status": "warning" if warnings else "ok",
            "database": app.store.url,
            "schema": {"current": state.current, "wanted": state.wanted},
            "jobs": {status.value: count for status, count in counts.items()},
            "failures": failed,
            "queues": [queue_shape(queue) for queue in queues],
            "workers": workers,
            "warnings": warnings,
        }

    async def metrics(self) -> bytes:
        """The metrics of the whole fleet in Prometheus's text format."""
        return await exposition(self._app.store)

    async def prune(self) -> Shape:
        """Remove what retention lets go, now: {removed} by kind."""
        removed = await prune(self._app.engine, logs.get())
        kinds = {status.value: count for status, count in removed.jobs.items()}
        return {"removed": kinds | removed.records}

    # -- schedules ---------------------------------------------------------------------------------

    async def schedules(self) -> Shape:
        """Every schedule with its next tick and last run: {schedules}."""
        app, shapes = self._app, []
        now = await app.store.now()
        stored = {record.name: record for record in await app.store.schedules()}
        for name in sorted(stored.keys() | app.schedules.keys()):
            record, declared = stored.get(name), app.schedules.get(name)
            last = await app.store.runs(name, 1)
            next_at = record.next_at if record else declared.next_after(now) if declared else None
            shapes.append(
                {
                    "name": name,
                    "jobType": declared and declared.type,
                    "spec": declared.spec if declared else record and record.spec,
                    "missed": declared and declared.missed.value,
                    "paused": record is not None and record.paused_at is not None,
                    "nextAt": iso(next_at),
                    "lastRun": run_shape(last[0], app.redact) if last else None,
                }
            )
        return {"schedules": shapes}

    async def runs(self, name: str | None = None, *, limit: int = 50) -> Shape:
        """Runs of schedules, the latest first: {runs}."""
        return {"runs": [run_shape(run, self._app.redact) for run in await self._app.store.runs(name, limit)]}

    async def pause_schedule(self, name: str) -> Shape:
        """Let no tick of a schedule fire, on any machine."""
        await self._declare_schedules()
        if not await self._app.store.pause_schedule(name):
            raise self._no_schedule(name)
        return {"name": name, "paused": True}

    async def resume_schedule(self, name: str) -> Shape:
        """Let a paused schedule go on with its next tick; what was due meanwhile is left out."""
        next_at = self._schedule(name).next_after(await self._app.store.now())
        await self._declare_schedules()
        await self._app.store.resume_schedule(name, next_at)
        return {"name": name, "paused": False, "nextAt": iso(next_at)}

    async def run_schedule(self, name: str, *, reserved: RequestAnswer | None = None) -> Shape:
        """Run the job of a schedule now, out of turn."""
        schedule = self._schedule(name)
        job = self._app.engine.enqueuer.prepare(schedule.type, schedule.payload, **schedule.options)
        if reserved is not None:
            job = job._replace(id=reserved.job_id)
            if reserved.state is RequestState.BROKEN_OFF and await self._reader.get(job.id) is not None:
                return {"name": name, "jobId": job.id}
        while True:
            # A tick runs once, so two at the same moment are made different.
            now = await self._app.store.now() + timedelta(microseconds=secrets.randbelow(1_000_000))
            receipt = await self._app.store.fire(Tick(name, now, None, now, job))
            if receipt is not None:
                return {"name": name, "jobId": receipt.job_id}

    # -- parts -------------------------------------------------------------------------------------

    def _own(self, company_id: str | None) -> str | None:
        """The company to filter by: a scoped desk that is asked for another one finds nothing."""
        if self._company_id is None:
            return company_id
        return self._company_id if company_id in (None, self._company_id) else uuid7()

    def _check_company(self, company_id: str | None, payload: dict[str, Any], limit_key: str | None) -> None:
        """A handler goes by its payload: what is enqueued for one company may not name another there either."""
        if self._company_id is None:
            return
        named = [company_id, *(payload.get(name) for name in ("companyId", "company_id"))]
        if any(other not in (None, self._company_id) for other in named):
            raise CompanyMismatch(f"company {self._company_id!r} asks, and the job names another; nothing was enqueued")
        if limit_key is not None:
            raise CompanyMismatch("a limit key counts for all companies, and one asks; nothing was enqueued")

    def _where(
        self,
        status: Status | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        ids: Sequence[JobId] | None = None,
    ) -> JobFilter:
        return JobFilter(status, type, queue, self._own(company_id), None if ids is None else list(dict.fromkeys(ids)))

    async def _found(self, job_id: JobId) -> JobRecord:
        record = await self._reader.get(job_id)
        if record is None or self._company_id not in (None, record.company_id):
            raise _no_job(job_id)
        return record

    async def _page(self, where: JobFilter, limit: int, cursor: str | None) -> Page:
        try:
            return await self._app.store.page(where, limit, cursor)
        except ValueError as error:
            raise BadCursor(str(error)) from None

    async def _bounded(self, where: JobFilter, limit: int, cursor: str | None) -> Page:
        """A page that ends early where its jobs are large."""
        jobs, size, step = list[JobRecord](), 0, _FIRST_STEP
        while True:
            page = await self._page(where, min(step, limit - len(jobs)), cursor)
            for job in page.jobs:
                size += _size(job)
                if jobs and size > _PAGE_BYTES:
                    return Page(jobs, jobs[-1].id)
                jobs.append(job)
            cursor = page.next_cursor
            if cursor is None or len(jobs) >= limit:
                return Page(jobs, cursor)
            step = max(1, min(limit, (_PAGE_BYTES - size) * len(jobs) // max(size, 1)))

    async def _shaped(self, jobs: Sequence[JobRecord]) -> list[Shape]:
        """Their shapes; large ones in a thread: to look for secrets takes long, and others wait for this one."""

        def shapes() -> list[Shape]:
            return [job_shape(job, self._app.redact) for job in jobs]

        return shapes() if sum(map(_size, jobs)) < _LARGE_BYTES else await asyncio.to_thread(shapes)

    async def _dry(self, where: JobFilter, nothing: Shape) -> Shape:
        matched = await self._app.store.count(where, MATCHED_MAX)
        return {"dryRun": True, "matched": matched, **nothing, "nextCursor": None}

    async def _batches(self, where: JobFilter, limit: int, cursor: str | None) -> AsyncIterator[_Batch]:
        """The ids of up to `limit` jobs that match, some at a time, each time with where to go on; not for too long."""
        until = time.monotonic() + _BULK_SECONDS
        while limit > 0 and time.monotonic() < until:
            page = await self._page(where, min(_BATCH, limit), cursor)
            cursor = page.next_cursor
            yield _Batch([job.id for job in page.jobs], cursor)
            limit -= len(page.jobs)
            if cursor is None:
                return

    async def _queues(self) -> list[QueueRecord]:
        """Those that the store knows, and those of the application that are empty."""
        found = {queue.name: queue for queue in await self._app.store.queues()}
        for name in self._app.engine.queues():
            found.setdefault(
                name, QueueRecord(name, paused=False, ready=0, delayed=0, processing=0, oldest_ready_seconds=None)
            )
        return [found[name] for name in sorted(found)]

    async def _declare_schedules(self) -> None:
        """Make the application's schedules known: an operator may come before the first worker."""
        now = await self._app.store.now()
        declared = [(s.name, s.spec, s.next_after(now)) for s in self._app.schedules.values()]
        await self._app.store.declare_schedules(declared)

    def _schedule(self, name: str) -> Schedule:
        found = self._app.schedules.get(name)
        if found is None:
            raise self._no_schedule(name)
        return found

    def _no_schedule(self, name: str) -> ScheduleNotFound:
        known = ", ".join(sorted(self._app.schedules)) or "none"
        return ScheduleNotFound(f"no schedule is called {name!r}; known: {known}")


def _size(job: JobRecord) -> int:
    return len(job.payload) + len(job.result or "")


def _no_job(job_id: JobId) -> JobNotFound:
    return JobNotFound(f"no job has the id {job_id}; retention may have removed it")


def _warnings(queues: list[QueueRecord], served: set[str]) -> list[str]:
    warnings = []
    for queue in queues:
        if queue.paused:
            warnings.append(f"queue {queue.name} is paused ({queue.ready:,} jobs are ready)")
        elif queue.ready and queue.name not in served:
            warnings.append(f"{queue.ready:,} jobs are ready on queue {queue.name} and no worker serves it")
    return warnings


__all__ = ["Desk"]
