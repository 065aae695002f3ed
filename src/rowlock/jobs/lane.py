"""A lane: one queue in one worker process. It claims ahead of its runners, as far as their speed justifies."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from rowlock.errors import JobCancelled, LeaseLost, StoreError
from rowlock.jobs.ahead import Ahead
from rowlock.jobs.context import Context
from rowlock.jobs.guard import Guarding
from rowlock.jobs.policy import Backoff
from rowlock.jobs.registry import JobType
from rowlock.jobs.runner import Runner
from rowlock.jobs.settler import Settler
from rowlock.jobs.slots import Slots
from rowlock.jobs.suspects import AGAIN_SECONDS, ALONE_SECONDS, Suspects
from rowlock.jobs.verdict import ShuttingDown, deadline_error, on_trial
from rowlock.observe.metrics import Measures
from rowlock.observe.redact import Redactor
from rowlock.settings import Settings
from rowlock.storage.records import Claimed, Held, JobId, Outcome, Settlement

_STALE_SECONDS = 1.0  # a claimed job that has not started by then is given back
_DRAIN_SECONDS = 0.005  # between looks, while the last jobs run
_RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)


@dataclass(slots=True)
class LaneSize:
    concurrency: int
    buffer_max: int
    poll_seconds: float


class Lane:
    """Claims, buffers and runs the jobs of one queue."""

    def __init__(
        self,
        context: Context,
        size: LaneSize,
        *,
        types: Mapping[str, JobType],
        settings: Settings,
        settler: Settler,
        slots: Slots,
        first_slot: int,
        threads: Executor,
        fallback: Backoff,
        redact: Redactor,
        log: Any,
        guarding: Guarding,
        measures: Measures,
        suspects: Suspects,
        on_rest: Callable[[], None],
    ) -> None:
        self.context = context
        self.size = size
        self.types = types
        self.settings = settings
        self.settler = settler
        self.slots = slots
        self.threads = threads
        self.fallback = fallback
        self.redact = redact
        self.log = log
        self.guarding = guarding
        self._measures = measures
        self.closed = False  # no more jobs will come
        self.abandoned = False  # runners may be cancelled for good
        self.resting = False
        self.started: list[JobId] = []  # since the last line about it
        self._buffer: deque[Claimed] = deque()
        self._aside: deque[Claimed] = deque()  # suspects, until nothing else runs; the running one stays first
        self.suspects = suspects
        self._received_at = 0.0  # when the last claim was answered
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._wake = asyncio.Event()
        self._hungry = asyncio.Event()
        self._closing = asyncio.Event()
        self.took_at = time.monotonic()  # when the last job began
        self.ahead = Ahead(size.concurrency, size.buffer_max)
        self.claiming_since = math.inf
        self.fruitless = False  # the last claim found nothing
        self.plenty = False  # the last claim found all that it asked for: there may be more
        self.progressed = False  # some claim found something, since someone asked
        self.woken_by_poll = False  # since the last claim that found something
        self.on_rest = on_rest
        self._in_batches = any(declared.batch is not None for declared in types.values())
        width = slots_per_runner(types)
        self.runners = [Runner(self, first_slot + index * width) for index in range(size.concurrency)]

    # -- runners' side -----------------------------------------------------------------------------

    def take(self) -> Claimed | None:
        """The next job, or None."""
        if self.suspects.waiting:
            return self._take_alone()
        if not self._buffer or (self._in_batches and self._short_of_a_batch()):
            return None
        claimed = self._buffer.popleft()
        if claimed[4] and on_trial(claimed[4], self.settings.deaths_max):
            self._aside.append(claimed)
            self.suspects.waiting += 1
            return self._take_alone()
        if len(self._buffer) <= self.ahead.refill_at and not self._hungry.is_set():
            self._hungry.set()
        return claimed

    def _short_of_a_batch(self) -> bool:
        """Whether what is here is less than one call of its type takes, and the store may have more."""
        first = self.types.get(self._buffer[0].type)
        if not self.plenty or first is None or first.batch is None or len(self._buffer) >= first.batch:
            return False
        self.ahead.unit = first.batch
        return all(job.type == first.name and not job.deaths for job in self._buffer)

    def _take_alone(self) -> Claimed | None:
        """A job that one more death would condemn, once nothing else runs; until it has ended nothing else starts."""
        suspects = self.suspects
        if suspects.alone or not self._aside or suspects.busy():
            return None
        suspects.alone = True
        return self._aside[0]

    def suspect_ended(self) -> None:
        """The others may start again."""
        if self.suspects.alone:
            self.suspects.alone = False
            self._aside.popleft()
            self.suspects.waiting -= 1
        self.suspects.on_end()

    def nudge(self) -> None:
        """Wake what waited for a suspect."""
        self._hungry.set()
        self._wake_runners(len(self._buffer) + len(self._aside))

    def _wake_runners(self, most: int) -> None:
        for _ in range(min(len(self._waiters), most)):
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def take_more(self, type_name: str, most: int) -> list[Claimed]:
        """Further jobs of the same type, in order, up to the first of another type."""
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
        """A handler returned."""
        self.ahead.ended(settlement[3])
        self.settler.add(settlement)

    def completed_by_itself(self, type_name: str, job_id: JobId) -> None:
        """A handler completed its job in a transaction of its own."""
        self.log.info("job.succeeded", count=1, types={type_name: 1}, jobs=[job_id])

    @property
    def busy(self) -> bool:
        return bool(self._buffer) or bool(self._aside) or self.running

    @property
    def running(self) -> bool:
        return any(runner.current for runner in self.runners)

    # -- the store's side --------------------------------------------------------------------------

    def wake(self) -> None:
        """There may be work."""
        self._wake.set()

    def settled(self) -> None:
        """A batch is in the store: there may be room for more."""
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
                self.ahead.filled(want, took_seconds)
            elif drain and not claimed and not self.busy:
                if self.settler.idle:
                    return
                await self.settler.flushed()
            else:
                await self._rest(drain)

    def _room(self) -> int:
        """How many to ask for; none while a suspect waits for the others to end."""
        if self.suspects.waiting:
            return 0
        free = min(len(self._waiters), self.size.concurrency)
        return self.ahead.room(free, len(self._buffer), self.settler.unsettled)

    def _receive(self, claimed: list[Claimed]) -> None:
        # After the runners have been woken, or a lone job would wait for its log line.
        asyncio.get_running_loop().call_soon(self._tell_claimed, claimed)
        if self.closed:
            self.give_back(claimed, "the worker is stopping")
            return
        self._buffer.extend(claimed)
        self.ahead.received(len(claimed), sum([len(job[7]) for job in claimed]))
        self.took_at = self._received_at = time.monotonic()

    def _tell_claimed(self, claimed: list[Claimed]) -> None:
        self.log.info("job.claimed", queue=self.context.queue, count=len(claimed), jobs=[c.id for c in claimed])

    async def _rest(self, drain: bool) -> None:
        """Wait for a hint, a due job or the poll interval: the worker's poller sets the event."""
        if drain:
            # Others may hold the last jobs, or settle one that comes straight back.
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
        """Stop handlers past their deadline; give back what waits behind slow ones."""
        now = time.monotonic()
        for runner in self.runners:
            if runner.deadline is not None and now > runner.deadline and runner.current:
                declared = self.types[runner.current[0].type]
                runner.stop(deadline_error(declared.deadline_seconds or 0))
        if self.suspects.alone and self._aside and now - self.took_at > ALONE_SECONDS:
            self.suspect_ended()
        if (self._buffer or (self._aside and not self.suspects.alone)) and now - self.took_at > _STALE_SECONDS:
            self.ahead.waited(_STALE_SECONDS)
            self.release_buffer("it was claimed ahead and did not start in time")

    def tell_started(self) -> None:
        """Say what has started since the last line about it."""
        if self.started:
            started, self.started = self.started, []
            self.log.info("job.started", queue=self.context.queue, count=len(started), jobs=started)

    def release_buffer(self, reason: str) -> None:
        """Give back every job that has not started."""
        waiting = list(self._buffer)
        self._buffer.clear()
        self.give_back(waiting, reason)
        kept = 1 if self._aside and self.suspects.alone else 0
        suspects = list(self._aside)[kept:]
        for suspect in suspects:
            self._remove(suspect)
        self.give_back(suspects, "it must run alone, and this process is busy", AGAIN_SECONDS)
        if suspects:
            self.suspects.on_end()

    def give_back(self, jobs: Sequence[Claimed], reason: str, delay_seconds: float = 0.0) -> None:
        """Return jobs with their attempt not spent."""
        if jobs:
            self.log.info("job.released", count=len(jobs), jobs=[job.id for job in jobs], reason=reason)
        for job in jobs:
            self.settler.add(self._ending(job, Outcome.RELEASE, delay_seconds=delay_seconds))

    def _ending(self, job: Claimed, outcome: Outcome, **details: Any) -> Settlement:
        return Settlement(job.id, job.lease, outcome, type=job.type, queue=self.context.queue, **details)

    def note_held(self, held: dict[JobId, Held], asked_at: float) -> None:
        """Compare with what the store says that we hold: tell handlers that were cancelled or superseded."""
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
        """What is claimed and has not started."""
        started = 1 if self._aside and self.suspects.alone else 0
        return [*list(self._aside)[started:], *self._buffer]

    def _remove(self, waiting: Claimed) -> None:
        if waiting in self._aside:
            self._aside.remove(waiting)
            self.suspects.waiting -= 1
        else:
            self._buffer.remove(waiting)

    def _drop(self, waiting: Claimed, reason: str) -> None:
        self._remove(waiting)
        self.settler.add(self._ending(waiting, Outcome.CANCELLED, error=reason))

    def attempts(self) -> set[tuple[JobId, int]]:
        """The jobs, with their leases, that wait or run here."""
        waiting = {(job.id, job.lease) for job in self._waiting()}
        return waiting | {(job.id, job.lease) for runner in self.runners for job in runner.current}

    def cancel(self, job_id: JobId) -> None:
        """Someone asked for it: stop it, or do not even start it."""
        for waiting in [job for job in self._waiting() if job.id == job_id]:
            self._drop(waiting, "cancelled before it started")
        for runner in self.runners:
            for job in runner.current:
                if job.id == job_id:
                    runner.stop(JobCancelled("cancelled while it ran"), job)

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Claim no more, and give back what has not started."""
        self.closed = True
        self._closing.set()
        self.release_buffer("the worker is stopping")
        self._hungry.set()
        self._wake.set()
        self._wake_runners(len(self._waiters))

    def interrupt(self) -> None:
        """Stop what still runs; its attempt is not spent."""
        for runner in self.runners:
            runner.stop(ShuttingDown("the worker is shutting down"))


def slots_per_runner(types: Mapping[str, JobType]) -> int:
    """As many jobs as one call may be given."""
    return max((declared.batch or 1 for declared in types.values()), default=1)
