"""A worker: the lanes of one process, and the loops around them.

hints ─▶ lane: claim ─▶ buffer ─▶ runner × N ─▶ settler ─▶ store
poll  ─▶
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rowlock.errors import RowlockError, SettingsError, StoreError
from rowlock.ids import uuid7
from rowlock.jobs.context import Context
from rowlock.jobs.engine import Engine
from rowlock.jobs.guard import Guarding
from rowlock.jobs.keeper import MEASURE_SECONDS, flush
from rowlock.jobs.lane import Lane, LaneSize, slots_per_runner
from rowlock.jobs.settler import Settler
from rowlock.jobs.slots import Slots
from rowlock.jobs.suspects import Suspects
from rowlock.jobs.watch import Watch
from rowlock.storage.records import Held, JobId, Outcome, Settlement, Worker, WorkerId

_WATCH_SECONDS = 0.2
_BLOCKED_SECONDS = 0.25  # look again at work that a limit held back
_LISTEN_AGAIN_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_SETTLE_SECONDS = 0.8  # of the second that stopping may take beyond the grace period


class WorkerProcess:
    """Runs the jobs of some queues in this process, until stopped or, when draining, until nothing is ready."""

    def __init__(
        self,
        engine: Engine,
        queues: Sequence[str],
        log: Any,
        *,
        worker_id: WorkerId | None = None,
        slots: Slots | None = None,
        concurrency: int | None = None,
    ) -> None:
        if not queues:
            raise SettingsError("a worker needs at least one queue")
        self._engine = engine
        self.record = Worker(worker_id or uuid7(), f"{socket.gethostname()}:{os.getpid()}", tuple(queues))
        self._log = log.bind(worker=self.record.id)
        self._settler = Settler(
            engine.store, self.record.id, engine.settings.settle_max, self._log, engine.measures, self._after_batch
        )
        self._failures = Watch(engine, self._log)
        guarding = Guarding(
            engine.store, engine.settings.lock_stale_minutes * 60, engine.redact, engine.measures, self._log
        )
        sizes = [self._size(queue, concurrency) for queue in queues]
        width = slots_per_runner(engine.types)
        slots = slots or Slots.private(width * sum(size.concurrency for size in sizes))
        self._threads = ThreadPoolExecutor(sum(size.concurrency for size in sizes), "rowlock-job")
        self._strangers: set[tuple[JobId, int]] = set()
        self._hint: asyncio.Task[None] | None = None
        self._rested = asyncio.Event()
        self._stop = asyncio.Event()
        self._lanes: list[Lane] = []
        suspects = Suspects(lambda: any(lane.running for lane in self._lanes), self._nudge)
        first = 0
        for queue, size in zip(queues, sizes, strict=True):
            context = Context(
                engine.store,
                self.record.id,
                queue,
                engine.enqueuer,
                asyncio.get_running_loop(),
                result_bytes_max=engine.settings.payload_bytes_max,
            )
            self._lanes.append(
                Lane(
                    context,
                    size,
                    types=engine.types,
                    settings=engine.settings,
                    settler=self._settler,
                    slots=slots,
                    first_slot=first,
                    threads=self._threads,
                    fallback=engine.backoff,
                    redact=engine.redact,
                    log=self._log,
                    guarding=guarding,
                    measures=engine.measures,
                    suspects=suspects,
                    on_rest=self._rested.set,
                )
            )
            first += size.concurrency * width

    def _size(self, queue: str, concurrency: int | None) -> LaneSize:
        profile, settings = self._engine.profiles.get(queue), self._engine.settings
        buffer_max = profile.buffer_max if profile and profile.buffer_max is not None else settings.buffer_max
        poll = profile.poll_seconds if profile and profile.poll_seconds else settings.poll_ms / 1000
        return LaneSize(concurrency or self._engine.concurrency(queue), buffer_max, poll)

    def stop(self) -> None:
        """Stop gracefully: claim no more, give back what has not started, wait, then interrupt."""
        self._stop.set()

    async def run(self, *, drain: bool = False) -> None:
        """Work. Returns when stopped or drained, with nothing held."""
        store = self._engine.store
        if self._engine.limits:
            await store.define_limits(self._engine.limits)
        await store.beat([self.record])
        await store.warm()
        background = [
            asyncio.create_task(self._settler.run()),
            asyncio.create_task(self._listen()),
            asyncio.create_task(self._poll()),
            asyncio.create_task(self._watch()),
            asyncio.create_task(self._tell_measures()),
        ]
        warming = [asyncio.create_task(self._warm(warmer)) for warmer in self._engine.warmers]
        runners = []
        for lane in self._lanes:
            for runner in lane.runners:
                runner.task = asyncio.create_task(runner.run())
                runners.append(runner.task)
        feeds = [asyncio.create_task(self._drain())] if drain else self._feed()
        stopping = asyncio.create_task(self._stop.wait())
        try:
            drained = asyncio.create_task(asyncio.wait(feeds, return_when=asyncio.FIRST_EXCEPTION))
            ends: list[asyncio.Future[Any]] = [drained, stopping, *background, *runners]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in (*feeds, *background, *runners):
                if task.done():
                    task.result()  # a fault of ours: let it be seen, the supervisor starts another process
        finally:
            await self._shut_down(runners, feeds, [stopping, *background, *warming])

    async def _warm(self, warmer: Callable[[], Awaitable[None]]) -> None:
        """Nothing depends on it: whoever needs what could not be got ready finds out why."""
        try:
            await warmer()
        except (RowlockError, OSError) as error:
            self._log.warning("worker.not_warm", reason=str(error))

    def _feed(self, *, drain: bool = False) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(lane.feed(drain=drain)) for lane in self._lanes]

    async def _drain(self) -> None:
        """Round after round, since a job of one queue may enqueue on another, until a round finds nothing to claim."""
        while True:
            for lane in self._lanes:
                lane.progressed = False
            await asyncio.gather(*self._feed(drain=True))
            if not any(lane.progressed for lane in self._lanes):
                return

    async def _shut_down(
        self, runners: list[asyncio.Task[None]], feeds: list[asyncio.Task[None]], others: list[asyncio.Task[Any]]
    ) -> None:
        for lane in self._lanes:
            lane.close()
        if runners:
            await asyncio.wait(runners, timeout=self._engine.settings.grace_seconds)
            for lane in self._lanes:
                lane.interrupt()
            _, late = await asyncio.wait(runners, timeout=0.1)
            for lane in self._lanes:
                lane.abandoned = True
                for runner in lane.runners:
                    if runner.task in late:
                        self._release_late(lane, runner)
            for task in late:
                task.cancel()
        try:
            async with asyncio.timeout(_SETTLE_SECONDS):
                await asyncio.wait(feeds)  # a claim that was under way: what it got goes back
                await self._settler.flushed()
                if self._hint is not None:
                    await asyncio.wait([self._hint])
                await self._failures.close()
                await flush(self._engine)
                await self._engine.store.retire(self.record.id)
        except (TimeoutError, StoreError) as error:
            self._log.warning("worker.unsettled", jobs=self._settler.unsettled, reason=str(error) or "no time left")
        if self._hint is not None:
            others.append(self._hint)
        for task in (*feeds, *others):
            task.cancel()
        await asyncio.gather(*feeds, *others, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _release_late(self, lane: Lane, runner: Any) -> None:
        """A handler that does not even stop when interrupted: its job goes back all the same."""
        lane.give_back([job._claimed for job in runner.current], "its handler did not stop when the worker did")

    def note_held(self, held: Sequence[Held], asked_at: float) -> None:
        """What the store says that this worker holds, asked at that moment of the machine's monotonic clock."""
        mine = {lease.job_id: lease for lease in held if lease.owner == self.record.id}
        for lane in self._lanes:
            lane.note_held(mine, asked_at)
        self._return_strangers(mine, asked_at)

    def _return_strangers(self, mine: dict[JobId, Held], asked_at: float) -> None:
        """Give back jobs that are ours and that we know nothing of: the answer to their claim was lost on the way.

        Seen in two heartbeats running, with no claim under way that might still bring them.
        """
        settling = self._settler.outstanding()
        known = set[tuple[JobId, int]]().union(*(lane.attempts() for lane in self._lanes))
        strangers = {(job_id, held.lease) for job_id, held in mine.items() if job_id not in settling} - known
        if any(lane.claiming_since < asked_at for lane in self._lanes):
            strangers = set()
        for job_id, lease_number in strangers & self._strangers:
            self._log.warning("job.released", jobs=[job_id], reason="the answer to its claim was lost")
            held = mine[job_id]
            self._settler.add(Settlement(job_id, lease_number, Outcome.RELEASE, type=held.type, queue=held.queue))
        self._strangers = strangers

    # -- loops -------------------------------------------------------------------------------------

    def _on_hint(self, kind: str, name: str) -> None:
        for lane in self._lanes:
            if kind == "cancel":
                lane.cancel(name)
            elif name in ("*", lane.context.queue):
                lane.wake()

    async def _listen(self) -> None:
        """Hints make an idle worker quick; without them polling does the work."""
        failures = 0
        while True:
            try:
                await self._engine.store.listen(self._on_hint)
            except StoreError as error:
                if failures == 0:
                    self._log.info("wake.unavailable", reason=str(error))
            await asyncio.sleep(_LISTEN_AGAIN_SECONDS[min(failures, len(_LISTEN_AGAIN_SECONDS) - 1)])
            failures += 1

    async def _poll(self) -> None:
        """One statement for all resting lanes per interval; earlier when a delayed job is due."""
        loop = asyncio.get_running_loop()
        while True:
            self._rested.clear()
            resting = {lane.context.queue: lane for lane in self._lanes if lane.resting}
            delay = min(lane.size.poll_seconds for lane in self._lanes)
            try:
                for glance in await self._engine.store.glance(list(resting)) if resting else ():
                    lane = resting[glance.queue]
                    if not glance.ready:
                        delay = min(delay, glance.due_in_seconds or delay)
                    elif lane.fruitless and lane.woken_by_poll:
                        loop.call_later(_BLOCKED_SECONDS, lane.wake)
                    else:
                        lane.woken_by_poll = True
                        lane.wake()
            except StoreError as error:
                self._log.debug("poll.delayed", reason=str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(delay, 0.001)):
                    await self._rested.wait()

    async def _tell_others(self) -> None:
        """What this worker gives back, an idle one may take at once."""
        for queue in self.record.queues:
            with contextlib.suppress(StoreError):
                await self._engine.store.wake(queue)

    def _nudge(self) -> None:
        for lane in self._lanes:
            lane.nudge()

    def _after_batch(self, batch: list[Settlement]) -> None:
        """Some jobs were settled: what a limit held back may go now, and what waits again has a time."""
        outcomes = {settlement[2] for settlement in batch}
        if Outcome.FAILED in outcomes:
            self._failures.on_failure()
        if max(outcomes) > Outcome.CANCELLED:
            self._rested.set()
            self._hint = asyncio.create_task(self._tell_others())
        for lane in self._lanes:
            lane.tell_started()
            lane.settled()
            if lane.fruitless:
                lane.wake()

    async def _tell_measures(self) -> None:
        """Hand what was measured to the store, now and then."""
        while True:
            await asyncio.sleep(MEASURE_SECONDS)
            await flush(self._engine)

    async def _watch(self) -> None:
        """Deadlines, stale buffers, progress reports: a few times a second."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            for lane in self._lanes:
                lane.watch()
                lane.tell_started()
                if lane.context.reports:
                    reports = list(lane.context.reports.values())
                    lane.context.reports.clear()
                    try:
                        await self._engine.store.progress(self.record.id, reports)
                    except StoreError as error:
                        self._log.debug("progress.dropped", reason=str(error))
