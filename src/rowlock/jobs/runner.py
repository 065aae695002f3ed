"""A runner: one of the N places in a worker process where a job runs."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import threading
import time
from collections.abc import Sequence
from contextvars import copy_context
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rowlock.errors import BadPayload, RateLimited, StoreError, UnknownJobType
from rowlock.jobs.guard import Lock
from rowlock.jobs.isolate import isolated
from rowlock.jobs.job import Job
from rowlock.jobs.payload import encode_result
from rowlock.jobs.registry import JobType
from rowlock.jobs.verdict import ShuttingDown, after_error
from rowlock.observe import trace
from rowlock.storage.records import Claimed, Outcome, Settlement

if TYPE_CHECKING:
    from rowlock.jobs.lane import Lane

_YIELD_EVERY = 64  # jobs that never wait must not keep the loop from settling and claiming


class Runner:
    """Takes jobs from its lane, runs them one call at a time, and hands in how they ended."""

    def __init__(self, lane: Lane, base: int) -> None:
        self._lane = lane
        self._base = base  # its first slot; a batch uses as many as it has jobs
        self.task: asyncio.Task[None] | None = None
        self.current: list[Job] = []
        self.began = 0.0
        self.deadline: float | None = None
        self._stop_reason: BaseException | None = None
        self._stop_target: Job | None = None
        self._thread: int | None = None
        self._hand_over = threading.Lock()  # an exception must not hit a thread that has left its handler
        self._in_handler = False

    async def run(self) -> None:
        """Work until the lane is closed and empty."""
        lane, turns = self._lane, 0
        while True:
            claimed = lane.take()
            if claimed is None:
                if lane.closed:
                    return
                await lane.wait_for_work()
                continue
            declared = lane.types.get(claimed.type)
            if declared is not None and declared.batch is not None:
                more = [] if claimed.deaths else lane.take_more(declared.name, declared.batch - 1)
                lane.ahead.unit = declared.batch
                await self._run_batch(declared, [claimed, *more])
            else:
                lane.ahead.unit = 1
                await self._run_one(declared, claimed)
            if lane.suspects.waiting:
                lane.suspect_ended()
            turns += 1
            if turns % _YIELD_EVERY == 0:
                await asyncio.sleep(0)

    def stop(self, reason: BaseException, target: Job | None = None) -> None:
        """Stop what runs now, for one job of the call or for all: cancel an async handler, raise in a plain one."""
        if not self._in_handler or self._stop_reason is not None:
            return
        self._stop_reason, self._stop_target = reason, target
        for job in self.current:
            job._stop_reason = reason
        with self._hand_over:
            thread = self._thread
            if thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(type(reason)))
        if thread is None and self.task is not None:
            self.task.cancel()

    async def _run_one(self, declared: JobType | None, claimed: Claimed) -> None:
        lane = self._lane
        job = Job(claimed, lane.context)
        self.current = [job]
        began = self._begin(declared, (claimed,))
        try:
            if declared is None:
                raise UnknownJobType(f"no handler is registered here for job type {claimed.type!r}")
            arguments = declared.arguments
            given: dict[str, Any] = {} if arguments is None else arguments(claimed[7])
            if claimed[10] is not None or declared.guard is not None:
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
            text = None if result is None else encode_result(result, claimed.type, lane.context.result_bytes_max)
        except BaseException as error:
            await self._failed(declared, [job], self._cause(error), time.monotonic() - began)
        else:
            if not job._settled:
                lane.finished(_success(claimed, time.monotonic() - began, text, lane.context.queue))
            else:
                lane.completed_by_itself(declared.name, claimed.id)
        self._end(1)

    async def _run_batch(self, declared: JobType, batch: list[Claimed]) -> None:
        lane = self._lane
        self.current = jobs = [Job(claimed, lane.context) for claimed in batch]
        began = self._begin(declared, batch)
        try:
            results = await self._call(declared, jobs, {})
            self._in_handler = False
            if results is not None and (not isinstance(results, list) or len(results) != len(jobs)):
                raise BadPayload(f"{declared.name}: a batch handler returns None or a list with one entry per job")
        except BaseException as error:
            await self._failed(declared, jobs, self._cause(error), time.monotonic() - began)
        else:
            seconds = (time.monotonic() - began) / len(jobs)
            for claimed, job, result in zip(batch, jobs, results or [None] * len(jobs), strict=True):
                if job._settled:
                    lane.completed_by_itself(declared.name, claimed.id)
                    continue
                try:
                    if job._stopped and self._stop_reason is not None:
                        raise self._stop_reason
                    if isinstance(result, BaseException):
                        raise result
                    text = (
                        None if result is None else encode_result(result, claimed.type, lane.context.result_bytes_max)
                    )
                except BaseException as error:
                    await self._failed(declared, [job], error, seconds)
                else:
                    lane.finished(_success(claimed, seconds, text, lane.context.queue))
        self._end(len(jobs))

    async def _call_within(self, declared: JobType, job: Job, given: dict[str, Any]) -> Any:
        """Call the handler within the trace and the guard that its job has."""
        claimed = job._claimed
        with (
            contextlib.nullcontext()
            if claimed.trace is None
            else trace.continued(claimed.trace, declared.name, job_id=claimed.id)
        ):
            if declared.guard is None:
                return await self._call(declared, job, given)
            key = declared.guard.key(job.payload, job.company_id)
            async with Lock(self._lane.guarding, key, job.payload, job.id) as lock:
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
        result = await asyncio.get_running_loop().run_in_executor(self._lane.threads, context.run, in_thread)
        # An async handler behind a decorator that is not.
        return await isolated(result) if inspect.iscoroutine(result) else result

    def _begin(self, declared: JobType | None, batch: Sequence[Claimed]) -> float:
        lane = self._lane
        self.began = lane.took_at = now = time.monotonic()
        limit = declared.deadline_seconds if declared else None
        self.deadline = None if limit is None else now + limit
        index, begin = self._base, lane.slots.begin
        for claimed in batch:
            begin(index, claimed[0], claimed[1], now, self.deadline)
            lane.started.append(claimed[0])
            index += 1
        return now

    def _end(self, count: int) -> None:
        end = self._lane.slots.end
        for index in range(self._base, self._base + count):
            end(index)
        self.current = []
        self.deadline = None
        self._in_handler = False
        if self._stop_reason is not None:
            while self.task is not None and self.task.cancelling():  # the next job knows nothing of this one's stop
                self.task.uncancel()
            self._stop_reason = self._stop_target = None
        self._thread = None

    def _cause(self, error: BaseException) -> BaseException:
        """Why the handler ended: our reason to stop it, where there was one, or its own."""
        reason = self._stop_reason
        self._in_handler = False
        if self._lane.abandoned and isinstance(error, asyncio.CancelledError):
            raise error  # its job was given back already
        if reason is None:
            return error
        return reason if isinstance(error, asyncio.CancelledError | type(reason)) else error

    def _verdict(
        self, job: Job, declared: JobType | None, error: BaseException, seconds: float, now: datetime
    ) -> Settlement | None:
        lane = self._lane
        try:
            return after_error(job._claimed, job.queue, declared, lane.fallback, error, seconds, lane.redact, now)
        except Exception as fault:  # an exception of the user's that cannot even be looked at must not end the worker
            return after_error(job._claimed, job.queue, declared, lane.fallback, fault, seconds, lane.redact, now)

    async def _store_time(self, error: BaseException) -> datetime:
        """The store's time where it matters, else this machine's: a worker's clock may be wrong."""
        if isinstance(error, RateLimited) and error.absolute:
            with contextlib.suppress(StoreError):
                return await self._lane.context.store.now()
        return datetime.now(UTC)

    async def _failed(self, declared: JobType | None, jobs: list[Job], error: BaseException, seconds: float) -> None:
        lane, now = self._lane, await self._store_time(error)
        for job in jobs:
            if job._settled:
                lane.completed_by_itself(job.type, job.id)
                continue
            cause = error
            if error is self._stop_reason and self._stop_target not in (None, job):
                cause = ShuttingDown("another job of its batch was stopped")
            if isinstance(cause, RateLimited):
                lane.settler.pause_key(cause.key, cause.wait_seconds(now))
            settlement = self._verdict(job, declared, cause, seconds, now)
            if settlement is None:
                lane.log.warning("lease.lost", jobs=[job.id], reason=str(cause))
            else:
                if settlement.outcome in (Outcome.FAILED, Outcome.RETRY):
                    lane.log.debug("job.error", job=job.id, type=job.type, exc_info=cause)
                elif settlement.outcome == Outcome.RELEASE and settlement.error is None:
                    lane.log.info("job.released", jobs=[job.id], reason=str(cause))
                lane.settler.add(settlement)


def _success(claimed: Claimed, seconds: float, text: str | None, queue: str) -> Settlement:
    # A plain tuple.__new__: the named constructor would cost as much as the rest of the settlement.
    return tuple.__new__(Settlement, (claimed[0], claimed[1], 1, seconds, 0.0, text, None, claimed[6], queue, None))
