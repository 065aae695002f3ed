"""A consumer claims jobs of one queue for one worker process, ahead of its runners as far as their speed justifies."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from rowlock.errors import JobCancelled, LeaseLost, StoreError
from rowlock.jobs.locks import LockContext
from rowlock.jobs.outcome import ShuttingDown, deadline_error, on_trial
from rowlock.jobs.registry import JobType
from rowlock.jobs.worker.context import Context
from rowlock.jobs.worker.prefetch import Prefetch
from rowlock.jobs.worker.quarantine import AGAIN_SECONDS, ALONE_SECONDS, QuarantineCandidates
from rowlock.jobs.worker.runner import Runner
from rowlock.jobs.worker.settler import Settler
from rowlock.jobs.worker.started_jobs import Slots
from rowlock.observe.metrics import Measures
from rowlock.observe.redaction import Redactor
from rowlock.settings import Settings
from rowlock.storage.records import Claimed, Held, JobId, Outcome, Settlement

_ASIDE_SECONDS = 1.0  # without a start, after which quarantine candidates that wait for other jobs are released
_DRAIN_SECONDS = 0.005  # between claims, while the last jobs run
_RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
_UNKNOWN_SECONDS_MAX = 60.0  # delay of a released job of an unknown type; starts at 1 s, doubles each time
_UNKNOWN_LOG_SECONDS = 60.0  # between log lines about one unknown type


@dataclass(slots=True)
class ConsumerSize:
    concurrency: int
    buffer_max: int
    poll_seconds: float


class Consumer:
    """Claims, buffers and runs the jobs of one queue."""

    def __init__(
        self,
        context: Context,
        size: ConsumerSize,
        *,
        types: Mapping[str, JobType],
        settings: Settings,
        settler: Settler,
        slots: Slots,
        first_slot: int,
        threads: Executor,
        redact: Redactor,
        log: Any,
        lock_context: LockContext,
        measures: Measures,
        candidates: QuarantineCandidates,
        on_rest: Callable[[], None],
    ) -> None:
        self.context = context
        self.size = size
        self.types = types
        self.settings = settings
        self.settler = settler
        self.slots = slots
        self.threads = threads
        self.redact = redact
        self.log = log
        self.lock_context = lock_context
        self._measures = measures
        self.closed = False  # no more jobs are claimed
        self.abandoned = False  # late jobs were released: their runners may be cancelled
        self.resting = False
        self.started: list[Claimed] = []  # since the last log line about them
        self._buffer: deque[Claimed] = deque()
        self._aside: deque[Claimed] = deque()  # quarantine candidates; the running one stays first
        self.candidates = candidates
        self._received_at = 0.0  # when the last claim was answered
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._wake = asyncio.Event()
        self._hungry = asyncio.Event()
        self._closing = asyncio.Event()
        self.took_at = time.monotonic()  # when the last job started or the last claim arrived
        self.prefetch = Prefetch(size.concurrency, size.buffer_max)
        self.claiming_since = math.inf
        self.fruitless = False  # the last claim found nothing
        self.plenty = False  # the last claim was filled: there may be more
        self.progressed = False  # a claim found jobs since this was reset
        self.woken_by_poll = False  # since the last claim that found jobs
        self.on_rest = on_rest
        self._in_batches = any(declared.batch is not None for declared in types.values())
        width = slots_per_runner(types)
        self._unknown_logged: dict[str, float] = {}  # by type: time of the last log line
        self.runners = [Runner(self, first_slot + index * width) for index in range(size.concurrency)]

    # -- runners' side -----------------------------------------------------------------------------

    def take(self) -> Claimed | None:
        """Return the next job, or None."""
        if self.candidates.waiting:
            return self._take_alone()
        if not self._buffer or (self._in_batches and self._short_of_a_batch()):
            return None
        claimed = self._buffer.popleft()
        if claimed[4] and on_trial(claimed[4], self.settings.deaths_max):
            self._aside.append(claimed)
            self.candidates.waiting += 1
            return self._take_alone()
        if len(self._buffer) <= self.prefetch.refill_at and not self._hungry.is_set():
            self._hungry.set()
        return claimed

    def _short_of_a_batch(self) -> bool:
        """Return whether the buffer holds less than one batch of its first type, and the store may have more."""
        first = self.types.get(self._buffer[0].type)
        if not self.plenty or first is None or first.batch is None or len(self._buffer) >= first.batch:
            return False
        self.prefetch.unit = first.batch
        return all(job.type == first.name and not job.deaths for job in self._buffer)

    def _take_alone(self) -> Claimed | None:
        """Return a quarantine candidate if nothing else runs; until it has ended, nothing else starts."""
        candidates = self.candidates
        if candidates.alone or not self._aside or candidates.busy():
            return None
        candidates.alone = True
        return self._aside[0]

    def candidate_ended(self) -> None:
        """Let other jobs start again."""
        if self.candidates.alone:
            self.candidates.alone = False
            self._aside.popleft()
            self.candidates.waiting -= 1
        self.candidates.on_end()

    def nudge(self) -> None:
        """Wake the claim loop and the runners that waited for a quarantine candidate."""
        self._hungry.set()
        self._wake_runners(len(self._buffer) + len(self._aside))

    def _wake_runners(self, most: int) -> None:
        for _ in range(min(len(self._waiters), most)):
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def take_more(self, type_name: str, most: int) -> list[Claimed]:
        """Return up to `most` further jobs of this type, in order, up to the first of another type or with deaths."""
        more: list[Claimed] = []
        while len(more) < most and self._buffer and self._buffer[0][6] == type_name and not self._buffer[0][4]:
            more.append(self._buffer.popleft())
        if more:
            self._hungry.set()
        return more

    async def wait_for_work(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._hungry.set()
        await waiter

    def finished(self, settlement: Settlement) -> None:
        """Settle a job whose handler returned."""
        self.prefetch.ended(settlement[3] or 0.0)
        self.settler.add(settlement)

    def completed_by_itself(self, type_name: str, job_id: JobId) -> None:
        """Log a job that its handler completed in a job.transaction()."""
        self.log.info("job.succeeded", count=1, types={type_name: 1}, jobs=[job_id])

    @property
    def busy(self) -> bool:
        return bool(self._buffer) or bool(self._aside) or self.running

    @property
    def running(self) -> bool:
        return any(runner.current for runner in self.runners)

    # -- the store's side --------------------------------------------------------------------------

    def wake(self) -> None:
        """Claim again, since there may be work."""
        self._wake.set()

    def settled(self) -> None:
        """Check for room again, since a batch was settled."""
        self._hungry.set()

    async def feed(self, *, drain: bool = False) -> None:
        """Claim while there is room and work, rest otherwise, until closed; with `drain`, until nothing is ready."""
        failures = 0
        while not self.closed:
            want = self._room()
            if want <= 0:
                self._hungry.clear()
                if self._room() <= 0:
                    await self._hungry.wait()
                continue
            self._wake.clear()
            self.claiming_since = time.monotonic()
            try:
                claimed = await self.context.store.claim(self.context.queue, self.context.owner, want)
            except StoreError as error:
                delay = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                failures += 1
                self.log.warning("claim.delayed", queue=self.context.queue, reason=str(error), retry_in_seconds=delay)
                self.claiming_since = math.inf
                self.plenty = False
                self._wake_runners(len(self._buffer))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._closing.wait()
                continue
            took_seconds = time.monotonic() - self.claiming_since
            self._measures.observe("claim_seconds", {}, [took_seconds])
            self.claiming_since = math.inf
            failures = 0
            self.fruitless = not claimed
            self.plenty = len(claimed) == want
            if claimed:
                self.progressed = True
                self.woken_by_poll = False
                self._receive(claimed)
            self._wake_runners(len(self._buffer))
            if self.plenty:
                self.prefetch.filled(want, took_seconds)
            elif drain and not claimed and not self.busy:
                if self.settler.idle:
                    return
                await self.settler.flushed()
            else:
                await self._rest(drain)

    def _room(self) -> int:
        """Return how many jobs to claim; 0 while a quarantine candidate waits or runs."""
        if self.candidates.waiting:
            return 0
        free = min(len(self._waiters), self.size.concurrency)
        return self.prefetch.room(free, len(self._buffer), self.settler.unsettled)

    def _receive(self, claimed: list[Claimed]) -> None:
        # Log after the runners have been woken, or a lone job would wait for its log line.
        asyncio.get_running_loop().call_soon(self._tell_claimed, claimed)
        if self.closed:
            self.release(claimed, "the worker is stopping")
            return
        self._buffer.extend(claimed)
        self.took_at = self._received_at = now = time.monotonic()
        self.prefetch.received(len(claimed), sum([len(job[7]) for job in claimed]), now)

    def _tell_claimed(self, claimed: list[Claimed]) -> None:
        types = Counter([job.type for job in claimed])
        self.log.info(
            "job.claimed", queue=self.context.queue, count=len(claimed), types=types, jobs=[c.id for c in claimed]
        )

    async def _rest(self, drain: bool) -> None:
        """Wait for a hint, a due job or the poll interval: the worker's poller sets the event."""
        if drain:
            # Other workers may hold the last jobs, or settle one that is available again at once.
            await asyncio.sleep(_DRAIN_SECONDS if self.busy else 0)
            return
        self.resting = True
        self.on_rest()
        try:
            await self._wake.wait()
        finally:
            self.resting = False

    # -- the watchdog's side -----------------------------------------------------------------------

    def watch(self) -> None:
        """Stop handlers past their deadline; release jobs that wait behind slow ones."""
        now = time.monotonic()
        for runner in self.runners:
            if runner.deadline is not None and now > runner.deadline and runner.current:
                declared = self.types[runner.current[0].type]
                runner.stop(deadline_error(declared.deadline_seconds or 0))
        if self.candidates.alone and self._aside and now - self.took_at > ALONE_SECONDS:
            self.candidate_ended()
        self._release(
            self.prefetch.surplus(now, len(self._buffer)), "claimed ahead, and would not have started within a second"
        )
        if self._aside and not self.candidates.alone and now - self.took_at > _ASIDE_SECONDS:
            self._release_candidates()

    def tell_started(self) -> None:
        """Log the jobs that have started since the last such line."""
        if self.started:
            started, self.started = self.started, []
            types = Counter([job.type for job in started])
            jobs = [job.id for job in started]
            self.log.info("job.started", queue=self.context.queue, count=len(started), types=types, jobs=jobs)

    def _release(self, jobs: int, reason: str) -> None:
        """Release the last `jobs` jobs of the buffer."""
        released = [self._buffer.pop() for _ in range(jobs)]
        self.release(released[::-1], reason)

    def _release_candidates(self) -> None:
        kept = 1 if self._aside and self.candidates.alone else 0
        candidates = list(self._aside)[kept:]
        for candidate in candidates:
            self._remove(candidate)
        self.release(candidates, "it must run alone, and this process is busy", AGAIN_SECONDS)
        if candidates:
            self.candidates.on_end()

    def release(self, jobs: Sequence[Claimed], reason: str, delay_seconds: float = 0.0) -> None:
        """Release jobs that have not started: neither their attempt nor a start of their limit key counts."""
        if jobs:
            self.log.info("job.released", count=len(jobs), jobs=[job.id for job in jobs], reason=reason)
        for job in jobs:
            self.settler.add(self._unstarted(job, Outcome.RELEASE, delay_seconds=delay_seconds))

    def release_unknown(self, job: Claimed) -> None:
        """Release a job that this worker has no handler for: during a deployment another worker may have one."""
        reason = f"this worker has no handler for job type {job.type!r}; the job waits for a worker that has one"
        now = time.monotonic()
        if now - self._unknown_logged.get(job.type, -math.inf) >= _UNKNOWN_LOG_SECONDS:
            self._unknown_logged[job.type] = now
            self.log.warning("job.type_unknown", queue=self.context.queue, type=job.type, job=job.id, reason=reason)
        self.prefetch.ended(0.0)  # lets claims grow, so that many such jobs do not delay known types
        delay_seconds = min(2.0 ** min(job.releases, 10), _UNKNOWN_SECONDS_MAX)
        self.settler.add(self._unstarted(job, Outcome.RELEASE, delay_seconds=delay_seconds, error=reason))

    def _unstarted(self, job: Claimed, outcome: Outcome, **details: Any) -> Settlement:
        return Settlement(job.id, job.lease, outcome, None, type=job.type, queue=self.context.queue, **details)

    def note_held(self, held: dict[JobId, Held], asked_at: float) -> None:
        """Compare with the leases in the store: stop or drop jobs that were cancelled or have lost their lease."""
        for waiting in self._waiting():
            lease = held.get(waiting.id)
            if lease is not None and lease.lease == waiting.lease:
                if lease.cancel_requested:
                    self._drop(waiting, "cancelled before it started")
            elif self._received_at < asked_at:
                self._remove(waiting)
                self.log.warning("lease.lost", jobs=[waiting.id], reason="it was taken back before it started")
        for runner in self.runners:
            for job in runner.current:
                lease = held.get(job.id)
                if lease is not None and lease.lease == job.lease:
                    if lease.cancel_requested:
                        runner.stop(JobCancelled("cancelled while it ran"), job)
                elif runner.began < asked_at and not job._settled:
                    runner.stop(LeaseLost("the lease of this job was lost"), job)

    def _waiting(self) -> list[Claimed]:
        """Return the claimed jobs that have not started."""
        started = 1 if self._aside and self.candidates.alone else 0
        return [*list(self._aside)[started:], *self._buffer]

    def _remove(self, waiting: Claimed) -> None:
        if waiting in self._aside:
            self._aside.remove(waiting)
            self.candidates.waiting -= 1
        else:
            self._buffer.remove(waiting)

    def _drop(self, waiting: Claimed, reason: str) -> None:
        self._remove(waiting)
        self.settler.add(self._unstarted(waiting, Outcome.CANCELLED, error=reason))

    def attempts(self) -> set[tuple[JobId, int]]:
        """Return the jobs that wait or run here, with their leases."""
        waiting = {(job.id, job.lease) for job in self._waiting()}
        return waiting | {(job.id, job.lease) for runner in self.runners for job in runner.current}

    def cancel(self, job_id: JobId) -> None:
        """Stop this job, or drop it if it has not started."""
        for waiting in [job for job in self._waiting() if job.id == job_id]:
            self._drop(waiting, "cancelled before it started")
        for runner in self.runners:
            for job in runner.current:
                if job.id == job_id:
                    runner.stop(JobCancelled("cancelled while it ran"), job)

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Claim no more, and release the jobs that have not started."""
        self.closed = True
        self._closing.set()
        self._release(len(self._buffer), "the worker is stopping")
        self._release_candidates()
        self._hungry.set()
        self._wake.set()
        self._wake_runners(len(self._waiters))

    def interrupt(self) -> None:
        """Stop the handlers that still run; their attempts do not count."""
        for runner in self.runners:
            runner.stop(ShuttingDown("the worker is shutting down"))


def slots_per_runner(types: Mapping[str, JobType]) -> int:
    """Return the largest number of jobs in one handler call."""
    return max((declared.batch or 1 for declared in types.values()), default=1)
