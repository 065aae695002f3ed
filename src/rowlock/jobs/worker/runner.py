"""A runner: one of the N slots of a worker process in which a handler runs."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import threading
import time
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rowlock.errors import JobCancelled, LeaseLost, RateLimited, StoreError
from rowlock.jobs.job import Job
from rowlock.jobs.locks import Lock, stopped_early
from rowlock.jobs.outcome import ShuttingDown, after_error, deadline_error
from rowlock.jobs.payload import encode_result
from rowlock.jobs.registry import JobType
from rowlock.jobs.worker.context import WorkerContext
from rowlock.jobs.worker.isolate import isolated
from rowlock.observe import logs, trace
from rowlock.storage.records import Claimed, Held, JobId, Outcome, Settlement

if TYPE_CHECKING:
    from rowlock.jobs.worker.consumer import Consumer

_YIELD_EVERY = 64  # jobs that never wait must not keep the loop from settling and claiming


class Runner:
    """Takes jobs from its consumer, runs them one call at a time, and passes on their settlements."""

    def __init__(self, worker: WorkerContext, consumer: Consumer, first_slot: int) -> None:
        self._worker = worker
        self._consumer = consumer
        self._context = consumer.context
        self._first_slot = first_slot  # a batch uses one per job
        self._task: asyncio.Task[None] | None = None
        self.current: list[Job] = []
        self.began = 0.0
        self._deadline: float | None = None
        self._stop_reason: BaseException | None = None
        self._stop_target: Job | None = None
        self._abandoned = False  # its jobs were released
        self._thread: int | None = None
        self._hand_over = threading.Lock()  # an exception must not hit a thread that has left its handler
        self._in_handler = False

    def start(self) -> asyncio.Task[None]:
        """Start to work; the task ends when the consumer is closed and empty."""
        self._task = asyncio.create_task(self._run())
        return self._task

    async def _run(self) -> None:
        consumer, jobs, quarantine = self._consumer, self._consumer.jobs, self._worker.quarantine
        prefetch, types, turns = consumer.prefetch, self._worker.types, 0
        stopped_early.set(self._stopped_early)  # once, for all handlers in this task or its children
        while True:
            claimed = jobs.take()
            if claimed is None:
                if consumer.closed:
                    return
                await jobs.wait()
                continue
            declared = types.get(claimed.type)
            if declared is None:
                consumer.release_unknown(claimed)
            elif declared.batch is not None:
                more = [] if claimed.deaths else jobs.take_more(declared.name, declared.batch - 1)
                prefetch.set_unit(declared.batch)
                await self._run_batch(declared, [claimed, *more])
            else:
                if prefetch.unit != 1:
                    prefetch.set_unit(1)
                await self._run_one(declared, claimed)
            if quarantine.pending:
                quarantine.job_ended(claimed)
            turns += 1
            if turns % _YIELD_EVERY == 0:
                await asyncio.sleep(0)

    # -- stopping ----------------------------------------------------------------------------------

    def check_deadline(self, now: float) -> None:
        """Stop the running call if it is past its deadline."""
        if self._deadline is not None and now > self._deadline and self.current:
            declared = self._worker.types[self.current[0].type]
            self.stop(deadline_error(declared.deadline_seconds or 0))

    def note_held(self, held: Mapping[JobId, Held], asked_at: float) -> None:
        """Compare with the leases in the store: stop jobs that were cancelled or have lost their lease."""
        for job in self.current:
            lease = held.get(job.id)
            if lease is not None and lease.lease == job.lease:
                if lease.cancel_requested:
                    self.cancel(job.id)
            elif self.began < asked_at and not job._settled:
                self.stop(LeaseLost("the lease of this job was lost"), job)

    def cancel(self, job_id: JobId) -> None:
        """Stop this job if it runs here."""
        for job in self.current:
            if job.id == job_id:
                self.stop(JobCancelled("cancelled while it ran"), job)

    def stop(self, reason: BaseException, target: Job | None = None) -> None:
        """Stop the running call because of one of its jobs or all: cancel an async handler, raise in a plain one."""
        if not self._in_handler or self._stop_reason is not None:
            return
        self._stop_reason, self._stop_target = reason, target
        for job in self.current:
            job._stop(reason)
        with self._hand_over:
            thread = self._thread
            if thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(type(reason)))
        if thread is None and self._task is not None:
            self._task.cancel()

    def abandon(self) -> list[Job]:
        """Give up on a handler that does not stop: returns its jobs, which the caller settles. Else returns nothing."""
        if self._task is None or self._task.done():
            return []
        self._abandoned = True
        return [job for job in self.current if not job._settled]

    def _stopped_early(self) -> bool:
        return any(job._stopped and not job._settled for job in self.current)

    # -- handler calls -----------------------------------------------------------------------------

    async def _run_one(self, declared: JobType, claimed: Claimed) -> None:
        consumer, context = self._consumer, self._context
        job = Job(claimed, context)
        self.current = [job]
        logs.current_jobs.set((claimed[0], claimed[6]))
        began = self._begin(declared, (claimed,))
        try:
            arguments = declared.arguments
            given: dict[str, Any] = {} if arguments is None else arguments(claimed[7])
            if claimed[10] is not None or declared.lock is not None:
                result = await self._call_within(declared, job, given)
            elif declared.is_async:
                self._in_handler = True
                result = await isolated(declared.handler(job, **given))
            else:
                result = await self._call(declared, job, given)
            self._in_handler = False
            if job._stopped and not job._settled:
                assert self._stop_reason is not None
                raise self._stop_reason
            text = None if result is None else encode_result(result, claimed.type, context.result_bytes_max)
        except BaseException as error:
            await self._failed(declared, [job], self._cause(error), time.monotonic() - began)
        else:
            if not job._settled:
                consumer.finished(_success(claimed, time.monotonic() - began, text, context.queue))
            else:
                self._log_completed(job)
        self._end(1)

    async def _run_batch(self, declared: JobType, batch: list[Claimed]) -> None:
        consumer, context = self._consumer, self._context
        self.current = jobs = [Job(claimed, context) for claimed in batch]
        logs.current_jobs.set(([job.id for job in jobs], declared.name))
        began = self._begin(declared, batch)
        try:
            returned = await self._call(declared, jobs, {})
            self._in_handler = False
            results = declared.results(returned, len(jobs))
        except BaseException as error:
            await self._failed(declared, jobs, self._cause(error), time.monotonic() - began)
        else:
            seconds = (time.monotonic() - began) / len(jobs)
            for claimed, job, result in zip(batch, jobs, results, strict=True):
                if job._settled:
                    self._log_completed(job)
                    continue
                try:
                    if job._stopped and self._stop_reason is not None:
                        raise self._stop_reason
                    if isinstance(result, BaseException):
                        raise result
                    limit = context.result_bytes_max
                    text = None if result is None else encode_result(result, claimed.type, limit)
                except BaseException as error:
                    await self._failed(declared, [job], error, seconds)
                else:
                    consumer.finished(_success(claimed, seconds, text, context.queue))
        self._end(len(jobs))

    async def _call_within(self, declared: JobType, job: Job, given: dict[str, Any]) -> Any:
        """Call the handler within the trace and the idempotency lock of its job."""
        claimed = job._claimed
        with (
            contextlib.nullcontext()
            if claimed.trace is None
            else trace.continued(claimed.trace, declared.name, job_id=claimed.id)
        ):
            if declared.lock is None:
                return await self._call(declared, job, given)
            key = declared.lock.key(job.payload, job.company_id)
            async with Lock(self._worker.lock_context, key, job.payload, job.id) as lock:
                if lock.skipped:
                    return {"skipped": True, "reason": lock.reason}
                result = await self._call(declared, job, given)
                self._in_handler = False
                return result

    async def _call(self, declared: JobType, first: Any, given: dict[str, Any]) -> Any:
        self._in_handler = True
        if declared.is_async:
            return await isolated(declared.handler(first, **given))

        def in_thread() -> Any:
            self._thread = threading.get_ident()
            try:
                return declared.handler(first, **given)
            finally:
                with self._hand_over:
                    self._thread = None

        context = copy_context()
        result = await asyncio.get_running_loop().run_in_executor(self._worker.threads, context.run, in_thread)
        # An async handler behind a synchronous decorator.
        return await isolated(result) if inspect.iscoroutine(result) else result

    def _begin(self, declared: JobType, batch: Sequence[Claimed]) -> float:
        self.began = now = time.monotonic()
        limit = declared.deadline_seconds
        self._deadline = None if limit is None else now + limit
        index, begin, log_start = self._first_slot, self._worker.slots.begin, self._consumer.starts.add
        for claimed in batch:
            begin(index, claimed[0], claimed[1], now, self._deadline)
            log_start(claimed)
            index += 1
        return now

    def _end(self, count: int) -> None:
        end = self._worker.slots.end
        for index in range(self._first_slot, self._first_slot + count):
            end(index)
        self.current = []
        self._deadline = None
        self._in_handler = False
        if self._stop_reason is not None:
            while self._task is not None and self._task.cancelling():  # the next job must not see this one's stop
                self._task.uncancel()
            self._stop_reason = self._stop_target = None
        self._thread = None

    def _cause(self, error: BaseException) -> BaseException:
        """Return why the handler ended: the reason why it was stopped, if it was, or its own error."""
        reason = self._stop_reason
        self._in_handler = False
        if self._abandoned and isinstance(error, asyncio.CancelledError):
            raise error  # its job was released already
        if reason is None:
            return error
        return reason if isinstance(error, asyncio.CancelledError | type(reason)) else error

    def _settlement(
        self, job: Job, declared: JobType, error: BaseException, seconds: float, now: datetime
    ) -> Settlement | None:
        redact = self._worker.engine.redact
        try:
            return after_error(job._claimed, job.queue, declared, error, seconds, redact, now)
        except Exception as fault:  # a user's exception that cannot even be inspected must not end the worker
            return after_error(job._claimed, job.queue, declared, fault, seconds, redact, now)

    async def _store_time(self, error: BaseException) -> datetime:
        """Return the store's time if the error names a time, since this machine's may be wrong; else this machine's."""
        if isinstance(error, RateLimited) and error.absolute:
            with contextlib.suppress(StoreError):
                return await self._context.store.now()
        return datetime.now(UTC)

    async def _failed(self, declared: JobType, jobs: list[Job], error: BaseException, seconds: float) -> None:
        settler, log, now = self._worker.settler, self._worker.log, await self._store_time(error)
        for job in jobs:
            if job._settled:
                self._log_completed(job)
                continue
            cause = error
            if error is self._stop_reason and self._stop_target not in (None, job):
                cause = ShuttingDown("another job of the same batch was stopped")
            if isinstance(cause, RateLimited):
                settler.pause_key(cause.key, cause.wait_seconds(now))
            settlement = self._settlement(job, declared, cause, seconds, now)
            if settlement is None:
                log.warning("lease.lost", jobs=[job.id], reason=str(cause))
            else:
                if settlement.outcome == Outcome.RELEASE and settlement.error is None:
                    log.info("job.released", jobs=[job.id], reason=str(cause))
                settler.add_failed(settlement, job._claimed.company_id)

    def _log_completed(self, job: Job) -> None:
        """Log a job that its handler completed in a job.transaction()."""
        self._worker.log.info("job.succeeded", count=1, types={job.type: 1}, jobs=[job.id])


def _success(claimed: Claimed, seconds: float, text: str | None, queue: str) -> Settlement:
    # A plain tuple.__new__: the named constructor would cost as much as the rest of the settlement.
    return tuple.__new__(Settlement, (claimed[0], claimed[1], 1, seconds, 0.0, text, None, claimed[6], queue, None))
