"""Resilient mode: with QUEUE_RESILIENT_MODE=true a job runs at once in the process that enqueues it, without the queue.

The store may be unavailable. While it is available, the handler's idempotency lock is taken and a failure is recorded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import UTC, datetime
from typing import Any, cast

from rowlock.clock import Clock
from rowlock.errors import StoreError, StoreUnavailable
from rowlock.jobs.classify import describe
from rowlock.jobs.engine import Engine
from rowlock.jobs.enqueue import Enqueued
from rowlock.jobs.job import Job, JobContext
from rowlock.jobs.locks import Lock
from rowlock.jobs.new_jobs import Given, Options
from rowlock.jobs.outcome import after_error
from rowlock.jobs.payload import encode_result
from rowlock.jobs.registry import JobType
from rowlock.observe import logs
from rowlock.storage.access import RequestAnswer
from rowlock.storage.contract import Store
from rowlock.storage.records import Claimed, JobRecord, NewJob, Outcome, Receipt, Status
from rowlock.storage.reliability import FailureRecord

_OWNER = "00000000-0000-7000-8000-000000000000"
_STORE_SECONDS = 2.0  # for one call; then the store counts as unavailable


class InProcess:
    """Runs jobs where they are enqueued; a `Producer`."""

    needs_store = False

    def __init__(
        self, engine: Callable[[], Engine], clock: Clock, run_blocking: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._engine = engine  # of the running event loop
        self._clock = clock
        self._run_blocking = run_blocking

    async def enqueue(
        self,
        type_name: str,
        payload: dict[str, Any],
        options: Options,
        *,
        connection: Any = None,
        reserved: RequestAnswer | None = None,
    ) -> Enqueued:
        """Run one job; its record and its handler's exception are part of the answer."""
        engine = self._engine()
        return await self._run(engine, engine.builder.new(type_name, payload, options))

    async def enqueue_many(self, jobs: Iterable[Given], options: Options, connection: Any = None) -> list[Receipt]:
        """Run the jobs one after another, until one fails: raises the exception of its handler."""
        engine, receipts = self._engine(), []
        for job in engine.builder.many(jobs, options).take_all():
            enqueued = await self._run(engine, job)
            if enqueued.error is not None:
                raise enqueued.error
            receipts.append(enqueued.receipt)
        return receipts

    def enqueue_blocking(self, jobs: Iterable[Given], options: Options, connection: Any) -> list[Receipt]:
        """Run the jobs in the event loop of `app.blocking`."""
        receipts: list[Receipt] = self._run_blocking(self.enqueue_many(jobs, options))
        return receipts

    async def _run(self, engine: Engine, job: NewJob) -> Enqueued:
        began, result, error = self._now(), None, None
        try:
            result = await run_now(engine, job, logs.get())
        except Exception as raised:
            error = raised
        record = JobRecord(
            id=job.id,
            type=job.type,
            queue=job.queue,
            status=Status.SUCCEEDED if error is None else Status.FAILED,
            payload=job.payload,
            priority=job.priority,
            attempts=1,
            max_attempts=1,
            deaths=0,
            lease=0,
            visibility_timeout_ms=job.visibility_ms,
            created_at=began,
            available_at=began,
            updated_at=(ended := self._now()),
            started_at=began,
            finished_at=ended,
            company_id=job.company_id,
            limit_key=job.limit_key,
            trace=job.trace,
            result=result,
        )
        return Enqueued(job, Receipt(job.id, True), record, error)

    def _now(self) -> datetime:
        return self._clock.now() or datetime.now(UTC)  # the store may be unavailable


async def run_now(engine: Engine, new: NewJob, log: Any) -> str | None:
    """Run the handler once and return its result, JSON text; its exception propagates. The job is not recorded."""
    declared = engine.registry.require(new.type)
    claimed = Claimed(new.id, 1, 1, 1, 0, new.priority, new.type, new.payload, new.company_id, new.limit_key, new.trace)
    log.info("job.started", jobs=[new.id], type=new.type, mode="resilient")
    began = time.monotonic()
    try:
        result = await _run(engine, declared, claimed, new.queue, log)
    except Exception as error:
        await _failed(engine, declared, claimed, new.queue, error, time.monotonic() - began, log)
        raise
    log.info("job.succeeded", count=1, types={new.type: 1}, jobs=[new.id], mode="resilient")
    return result


async def _run(engine: Engine, declared: JobType, claimed: Claimed, queue: str, log: Any) -> str | None:
    """Call the handler within the idempotency lock of its type, and return its result as JSON text."""
    job = Job(claimed, JobContext(engine, _OWNER, queue, leased=False))
    given = {} if declared.arguments is None or declared.batch is not None else declared.arguments(claimed.payload)
    if declared.lock is None:
        result = await _call(declared, job, given)
    else:
        lock_context = engine.lock_context(log, cast(Store, _Impatient(engine.store)))
        async with Lock(lock_context, declared.lock.key(job.payload, job.company_id), job.payload, job.id) as lock:
            skipped = {"skipped": True, "reason": lock.reason}
            result = skipped if lock.skipped else await _call(declared, job, given)
    if job._settled:
        return job._result
    return None if result is None else encode_result(result, claimed.type, engine.settings.payload_bytes_max)


async def _call(declared: JobType, job: Job, given: dict[str, Any]) -> Any:
    first: Any = job if declared.batch is None else [job]
    if declared.is_async:
        result = await declared.handler(first, **given)
    else:
        result = await asyncio.to_thread(declared.handler, first, **given)
    if declared.batch is None:
        return result
    (entry,) = declared.results(result, 1)
    if isinstance(entry, BaseException):
        raise entry
    return entry


async def _failed(
    engine: Engine, declared: JobType, claimed: Claimed, queue: str, error: Exception, seconds: float, log: Any
) -> None:
    """Log the failed attempt, the job's only one, and record it if the store is available."""
    reason = describe(error, engine.redact)
    end = after_error(claimed, queue, declared, error, seconds, engine.redact, datetime.now(UTC))
    failed = end is not None and end.outcome in (Outcome.FAILED, Outcome.RETRY)
    level = log.error if failed else log.warning
    level("job.failed", job=claimed.id, type=claimed.type, reason=reason, mode="resilient")
    if end is None or end.failure is None:
        return
    store = cast(Store, _Impatient(engine.store))
    try:
        await store.add_failure(
            FailureRecord(
                id=end.failure.id,
                job_id=claimed.id,
                job_name=claimed.type,
                queue_name=queue,
                company_id=claimed.company_id,
                payload=end.failure.payload,
                attempts=1,
                max_attempts=1,
                is_final_attempt=True,
                failed_reason=end.error or "",
                stack_trace=end.failure.stack,
                first_failed_at=await store.now(),
                resolved_at=None,
                owner=_OWNER,
            )
        )
    except StoreError as refused:
        log.warning("failure.not_recorded", job=claimed.id, type=claimed.type, reason=str(refused))


class _Impatient:
    """Wraps a store and limits each call to `_STORE_SECONDS`, so that a hanging store does not block the job."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        found = getattr(self._store, verb)

        async def call(*args: Any, **options: Any) -> Any:
            try:
                async with asyncio.timeout(_STORE_SECONDS):
                    return await found(*args, **options)
            except TimeoutError:
                raise StoreUnavailable(f"the store did not answer within {_STORE_SECONDS:g} s") from None

        return call
