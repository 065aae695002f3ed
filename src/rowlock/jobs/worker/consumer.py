"""A consumer claims jobs of one queue for one worker process, ahead of its runners as far as their speed justifies."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.errors import StoreError
from rowlock.jobs.engine import Engine
from rowlock.jobs.job import JobContext
from rowlock.jobs.outcome import ShuttingDown
from rowlock.jobs.registry import JobType
from rowlock.jobs.worker.claimed_jobs import ClaimedJobs
from rowlock.jobs.worker.context import WorkerContext
from rowlock.jobs.worker.prefetch import Prefetch
from rowlock.jobs.worker.quarantine import AGAIN_SECONDS
from rowlock.jobs.worker.runner import Runner
from rowlock.storage.records import Claimed, Held, JobId, Outcome, Progress, Settlement

_ASIDE_SECONDS = 1.0  # without a start, after which a quarantine candidate that waits for other jobs is released
_BLOCKED_SECONDS = 0.25  # before jobs that a limit held back are tried again
_DRAIN_SECONDS = 0.005  # between claims, while the last jobs run
_RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
_UNKNOWN_SECONDS_MAX = 60.0  # delay of a released job of an unknown type; starts at 1 s, doubles each time
_UNKNOWN_LOG_SECONDS = 60.0  # between log lines about one unknown type


@dataclass(frozen=True, slots=True)
class ConsumerSize:
    """How much a consumer does at once, and how often it polls."""

    queue: str
    concurrency: int
    buffer_max: int
    poll_seconds: float


def size_of(engine: Engine, queue: str, concurrency: int | None) -> ConsumerSize:
    """Return the size of a queue's consumer: its profile's values, else those of the settings."""
    profile, settings = engine.profiles.get(queue), engine.settings
    buffer_max = profile.buffer_max if profile and profile.buffer_max is not None else settings.buffer_max
    poll_seconds = profile.poll_seconds if profile and profile.poll_seconds else settings.poll_ms / 1000
    return ConsumerSize(queue, concurrency or engine.concurrency(queue), buffer_max, poll_seconds)


class StartLog:
    """Logs the started jobs of a consumer, many in one line."""

    def __init__(self, log: Any, queue: str) -> None:
        self._log = log
        self._queue = queue
        self._started: list[Claimed] = []
        self.add = self._started.append  # called for every job

    def write(self) -> None:
        """Log the jobs that have started since the last such line."""
        if self._started:
            types = Counter([job.type for job in self._started])
            jobs = [job.id for job in self._started]
            self._started.clear()
            self._log.info("job.started", queue=self._queue, count=len(jobs), types=types, jobs=jobs)


class Consumer:
    """Claims the jobs of one queue, and has its runners run them."""

    def __init__(self, worker: WorkerContext, size: ConsumerSize, first_slot: int) -> None:
        self.size = size
        self.context = JobContext(worker.engine, worker.owner, size.queue)
        self.prefetch = Prefetch(size.concurrency, size.buffer_max)
        self.jobs = ClaimedJobs(worker, self.prefetch)
        self.starts = StartLog(worker.log, size.queue)
        width = slots_per_runner(worker.types)
        self.runners = [Runner(worker, self, first_slot + index * width) for index in range(size.concurrency)]
        self._worker = worker
        self._store = worker.engine.store
        self._settler = worker.settler
        self._quarantine = worker.quarantine
        self._log = worker.log
        self._measures = worker.engine.measures
        self._received_at = 0.0  # when the last claim was answered
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._fruitless = False  # the last claim found nothing
        self._woken_by_poll = False  # since the last claim that found jobs
        self._unknown_logged: dict[str, float] = {}  # by type: time of the last log line
        self.claiming_since = math.inf
        self.resting = False

    # -- the runners' side -------------------------------------------------------------------------

    def finished(self, settlement: Settlement) -> None:
        """Settle a job whose handler returned."""
        self.prefetch.ended(settlement[3] or 0.0)
        self._settler.add(settlement)

    def release_unknown(self, job: Claimed) -> None:
        """Release a job that this worker has no handler for: during a deployment another worker may have one."""
        reason = f"this worker has no handler for job type {job.type!r}; the job waits for a worker that has one"
        now = time.monotonic()
        if now - self._unknown_logged.get(job.type, -math.inf) >= _UNKNOWN_LOG_SECONDS:
            self._unknown_logged[job.type] = now
            self._log.warning("job.type_unknown", queue=self.size.queue, type=job.type, job=job.id, reason=reason)
        self.prefetch.ended(0.0)  # lets claims grow, so that many such jobs do not delay known types
        delay_seconds = min(2.0 ** min(job.releases, 10), _UNKNOWN_SECONDS_MAX)
        self._settler.add(self._unstarted(job, Outcome.RELEASE, delay_seconds=delay_seconds, error=reason))

    @property
    def closed(self) -> bool:
        """Whether no more jobs are claimed."""
        return self._closing.is_set()

    @property
    def running(self) -> bool:
        """Whether a job runs now."""
        return any(runner.current for runner in self.runners)

    @property
    def _busy(self) -> bool:
        return bool(self.jobs) or self.jobs.has_candidate or self.running

    # -- the store's side --------------------------------------------------------------------------

    def wake(self) -> None:
        """Claim again, since there may be work."""
        self._wake.set()

    def on_ready_job(self) -> None:
        """Claim again, since a poll has found a ready job; later if a limit held it back when it was last tried."""
        if self._fruitless and self._woken_by_poll:
            asyncio.get_running_loop().call_later(_BLOCKED_SECONDS, self.wake)
        else:
            self._woken_by_poll = True
            self.wake()

    def on_settled(self) -> None:
        """Check for room again, since a batch was settled; jobs that a limit held back may start now."""
        self.starts.write()
        self.jobs.wanted.set()
        if self._fruitless:
            self.wake()

    def nudge(self) -> None:
        """Wake the claim loop and the runners that waited for a quarantine candidate."""
        self.jobs.wanted.set()
        self.jobs.wake_runners()

    async def feed(self, *, drain: bool = False) -> bool:
        """Claim while there is room and work, rest otherwise, until closed; with `drain`, until nothing is ready.

        Returns whether it found any jobs.
        """
        failures, found = 0, False
        while not self.closed:
            want = self._room()
            if want <= 0:
                self.jobs.wanted.clear()
                if self._room() <= 0:
                    await self.jobs.wanted.wait()
                continue
            self._wake.clear()
            self.claiming_since = time.monotonic()
            try:
                claimed = await self._store.claim(self.size.queue, self._worker.owner, want)
            except StoreError as error:
                self.claiming_since = math.inf
                await self._claim_failed(error, failures)
                failures += 1
                continue
            took_seconds = time.monotonic() - self.claiming_since
            self._measures.observe("claim_seconds", {}, [took_seconds])
            self.claiming_since = math.inf
            failures = 0
            filled = len(claimed) == want
            self._fruitless = not claimed
            self.jobs.expect_more(filled)
            if claimed:
                found = True
                self._woken_by_poll = False
                self._receive(claimed)
            self.jobs.wake_runners()
            if filled:
                self.prefetch.filled(want, took_seconds)
            elif drain and not claimed and not self._busy:
                if self._settler.idle:
                    break
                await self._settler.flushed()
            else:
                await self._rest(drain)
        return found

    async def _claim_failed(self, error: StoreError, failures: int) -> None:
        """Wait after a store error, until the next try or until closed."""
        delay = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
        self._log.warning("claim.delayed", queue=self.size.queue, reason=str(error), retry_in_seconds=delay)
        self.jobs.expect_more(False)
        self.jobs.wake_runners()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._closing.wait()

    def _room(self) -> int:
        """Return how many jobs to claim; 0 while a quarantine candidate waits or runs."""
        if self._quarantine.pending:
            return 0
        free = min(self.jobs.free_runners, self.size.concurrency)
        return self.prefetch.room(free, len(self.jobs), self._settler.unsettled)

    def _receive(self, claimed: list[Claimed]) -> None:
        # Log after the runners have been woken, or a lone job would wait for its log line.
        asyncio.get_running_loop().call_soon(self._log_claimed, claimed)
        if self.closed:
            self._release(claimed, "the worker is stopping")
            return
        self.jobs.add(claimed)
        self._received_at = now = time.monotonic()
        self.prefetch.received(len(claimed), sum([len(job[7]) for job in claimed]), now)

    def _log_claimed(self, claimed: list[Claimed]) -> None:
        types = Counter([job.type for job in claimed])
        jobs = [job.id for job in claimed]
        self._log.info("job.claimed", queue=self.size.queue, count=len(claimed), types=types, jobs=jobs)

    async def _rest(self, drain: bool) -> None:
        """Wait for a hint, a due job or the poll interval: the worker's poller sets the event."""
        if drain:
            # Other workers may hold the last jobs, or settle one that is available again at once.
            await asyncio.sleep(_DRAIN_SECONDS if self._busy else 0)
            return
        self.resting = True
        self._worker.on_rest()
        try:
            await self._wake.wait()
        finally:
            self.resting = False

    # -- the watchdog's side -----------------------------------------------------------------------

    def watch(self, now: float) -> None:
        """Stop handlers past their deadline; release jobs that wait behind slow ones."""
        for runner in self.runners:
            runner.check_deadline(now)
        surplus = self.prefetch.surplus(now, len(self.jobs))
        self._release(self.jobs.remove_last(surplus), "prefetched, and would not have started within a second")
        if self.jobs.has_candidate and now - self._active_at() > _ASIDE_SECONDS:
            self._release_candidate()
        self.starts.write()

    def _active_at(self) -> float:
        """Return when the last job started or the last claim arrived."""
        return max(self._received_at, *(runner.began for runner in self.runners))

    def take_reports(self) -> list[Progress]:
        """Return the progress reports of its jobs since the last call."""
        return self.context.take_reports()

    def _release_candidate(self) -> None:
        reason = "the job must run alone, and this process is busy"
        self._release(self.jobs.remove_candidate(), reason, delay_seconds=AGAIN_SECONDS)

    def _release(self, jobs: Sequence[Claimed], reason: str, delay_seconds: float = 0.0) -> None:
        """Release jobs that have not started: neither their attempt nor a start of their limit key counts."""
        if jobs:
            self._log.info("job.released", count=len(jobs), jobs=[job.id for job in jobs], reason=reason)
        for job in jobs:
            self._settler.add(self._unstarted(job, Outcome.RELEASE, delay_seconds=delay_seconds))

    def _unstarted(self, job: Claimed, outcome: Outcome, **details: Any) -> Settlement:
        return Settlement(job.id, job.lease, outcome, None, type=job.type, queue=self.size.queue, **details)

    # -- leases and cancellation -------------------------------------------------------------------

    def note_held(self, held: Mapping[JobId, Held], asked_at: float) -> None:
        """Compare with the leases in the store: stop or drop jobs that were cancelled or have lost their lease."""
        for waiting in self.jobs.waiting():
            lease = held.get(waiting.id)
            if lease is not None and lease.lease == waiting.lease:
                if lease.cancel_requested:
                    self._drop(waiting, "cancelled before it started")
            elif self._received_at < asked_at:
                self.jobs.remove(waiting)
                self._log.warning("lease.lost", jobs=[waiting.id], reason="the job was rescued before it started")
        for runner in self.runners:
            runner.note_held(held, asked_at)

    def attempts(self) -> set[tuple[JobId, int]]:
        """Return the jobs that wait or run here, with their leases."""
        waiting = {(job.id, job.lease) for job in self.jobs.waiting()}
        return waiting | {(job.id, job.lease) for runner in self.runners for job in runner.current}

    def cancel(self, job_id: JobId) -> None:
        """Stop this job, or drop it if it has not started."""
        for waiting in [job for job in self.jobs.waiting() if job.id == job_id]:
            self._drop(waiting, "cancelled before it started")
        for runner in self.runners:
            runner.cancel(job_id)

    def _drop(self, waiting: Claimed, reason: str) -> None:
        self.jobs.remove(waiting)
        self._settler.add(self._unstarted(waiting, Outcome.CANCELLED, error=reason))

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Claim no more, and release the jobs that have not started."""
        self._closing.set()
        self._release(self.jobs.remove_last(len(self.jobs)), "the worker is stopping")
        self._release_candidate()
        self.jobs.wanted.set()
        self._wake.set()
        self.jobs.wake_all_runners()

    def interrupt(self) -> None:
        """Stop the handlers that still run; their attempts do not count."""
        for runner in self.runners:
            runner.stop(ShuttingDown("the worker is shutting down"))

    def abandon(self) -> None:
        """Release the jobs of handlers that do not stop when interrupted; rate limits count their start."""
        for runner in self.runners:
            jobs, seconds = runner.abandon(), time.monotonic() - runner.began
            if jobs:
                reason = "the handler did not stop before the worker"
                self._log.info("job.released", count=len(jobs), jobs=[job.id for job in jobs], reason=reason)
            for job in jobs:
                self._settler.add(
                    Settlement(job.id, job.lease, Outcome.RELEASE, seconds, type=job.type, queue=self.size.queue)
                )


def slots_per_runner(types: Mapping[str, JobType]) -> int:
    """Return the largest number of jobs in one handler call."""
    return max((declared.batch or 1 for declared in types.values()), default=1)
