"""A worker: the consumers of one process, and the loops around them.

hints ─▶ consumer: claim ─▶ buffer ─▶ runner × N ─▶ settler ─▶ store
poll  ─▶
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rowlock.errors import RowlockError, SettingsError, StoreError
from rowlock.ids import uuid7
from rowlock.jobs.engine import Engine
from rowlock.jobs.worker.consumer import Consumer, size_of, slots_per_runner
from rowlock.jobs.worker.context import WorkerContext
from rowlock.jobs.worker.failure_watch import FailureWatch
from rowlock.jobs.worker.maintenance import MEASURE_SECONDS, flush
from rowlock.jobs.worker.quarantine import Quarantine
from rowlock.jobs.worker.settler import Settler
from rowlock.jobs.worker.started_jobs import Slots
from rowlock.storage.records import Held, JobId, Outcome, Settlement, Worker, WorkerId

_WATCH_SECONDS = 0.2
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
        self.record = Worker(
            worker_id or uuid7(), f"{socket.gethostname()}:{os.getpid()}", tuple(queues), tuple(sorted(engine.types))
        )
        self._log = log.bind(worker=self.record.id)
        self._settler = Settler(engine, self.record.id, self._log, self._after_batch)
        self._failures = FailureWatch(engine, self._log)
        sizes = [size_of(engine, queue, concurrency) for queue in queues]
        runners = sum(size.concurrency for size in sizes)
        width = slots_per_runner(engine.types)
        self._threads = ThreadPoolExecutor(runners, "rowlock-job")
        self._strangers: set[tuple[JobId, int]] = set()
        self._hint: asyncio.Task[None] | None = None
        self._rested = asyncio.Event()
        self._stop = asyncio.Event()
        self._quarantine = Quarantine(lambda: self.running, self._nudge)
        context = WorkerContext(
            engine,
            self.record.id,
            self._log,
            settler=self._settler,
            slots=slots or Slots.private(width * runners),
            threads=self._threads,
            quarantine=self._quarantine,
            on_rest=self._rested.set,
        )
        self._consumers: list[Consumer] = []
        first_slot = 0
        for size in sizes:
            self._consumers.append(Consumer(context, size, first_slot))
            first_slot += size.concurrency * width

    def stop(self) -> None:
        """Stop gracefully: claim no more, release what has not started, wait, then interrupt."""
        self._stop.set()

    async def run(self, *, drain: bool = False) -> None:
        """Run jobs until stopped or, with `drain`, until nothing is ready; then release what is left and return."""
        store = self._engine.store
        if self._engine.limits:
            await store.define_limits(self._engine.limits)
        await store.beat([self.record])
        await self._warm(store.warm)
        background = [
            asyncio.create_task(self._settler.run()),
            asyncio.create_task(self._listen()),
            asyncio.create_task(self._poll()),
            asyncio.create_task(self._watch()),
            asyncio.create_task(self._write_measures()),
        ]
        warming = [asyncio.create_task(self._warm(warmer)) for warmer in self._engine.warmers]
        runners = [runner.start() for consumer in self._consumers for runner in consumer.runners]
        feeds: list[asyncio.Task[Any]] = [asyncio.create_task(self._drain())] if drain else [*self._feed()]
        stopping = asyncio.create_task(self._stop.wait())
        try:
            drained = asyncio.create_task(asyncio.wait(feeds, return_when=asyncio.FIRST_EXCEPTION))
            ends: list[asyncio.Future[Any]] = [drained, stopping, *background, *runners]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in (*feeds, *background, *runners):
                if task.done():
                    task.result()  # raises an internal fault; the supervisor then starts another process
        finally:
            await self._shut_down(runners, feeds, [stopping, *background, *warming])

    async def _warm(self, warmer: Callable[[], Awaitable[None]]) -> None:
        """Run a warmer and log its failure; nothing depends on it, and a job that needs the missing part says why."""
        try:
            await warmer()
        except (RowlockError, OSError) as error:
            self._log.warning("worker.warmup_failed", reason=str(error))

    def _feed(self, *, drain: bool = False) -> list[asyncio.Task[bool]]:
        return [asyncio.create_task(consumer.feed(drain=drain)) for consumer in self._consumers]

    async def _drain(self) -> None:
        """Drain all queues in rounds until one finds nothing to claim: a job may enqueue on another queue."""
        while any(await asyncio.gather(*self._feed(drain=True))):
            continue

    async def _shut_down(
        self, runners: list[asyncio.Task[None]], feeds: list[asyncio.Task[Any]], others: list[asyncio.Task[Any]]
    ) -> None:
        for consumer in self._consumers:
            consumer.close()
        if runners:
            await asyncio.wait(runners, timeout=self._engine.settings.grace_seconds)
            for consumer in self._consumers:
                consumer.interrupt()
            _, late = await asyncio.wait(runners, timeout=0.1)
            for consumer in self._consumers:
                consumer.abandon()
            for task in late:
                task.cancel()
        try:
            async with asyncio.timeout(_SETTLE_SECONDS):
                await asyncio.wait(feeds)  # a claim in flight: its jobs are released
                await self._settler.flushed()
                if self._hint is not None:
                    await asyncio.wait([self._hint])
                await self._failures.close()
                await flush(self._engine)
                await self._engine.store.retire(self.record.id)
        except (TimeoutError, StoreError) as error:
            reason = str(error) or f"not finished within {_SETTLE_SECONDS:g} s"
            self._log.warning("worker.unsettled", jobs=self._settler.unsettled, reason=reason)
        if self._hint is not None:
            others.append(self._hint)
        for task in (*feeds, *others):
            task.cancel()
        await asyncio.gather(*feeds, *others, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def running(self) -> bool:
        """Whether a job runs now."""
        return any(consumer.running for consumer in self._consumers)

    def note_held(self, held: Sequence[Held], asked_at: float) -> None:
        """Compare with the leases in the store, asked for at `asked_at` of the machine's monotonic clock."""
        mine = {lease.job_id: lease for lease in held if lease.owner == self.record.id}
        for consumer in self._consumers:
            consumer.note_held(mine, asked_at)
        self._return_strangers(mine, asked_at)

    def _return_strangers(self, mine: dict[JobId, Held], asked_at: float) -> None:
        """Release jobs that the store leases to this worker and that it does not know: the answer to a claim was lost.

        They must be seen in two heartbeats in a row, with no claim in flight that might still return them.
        """
        settling = self._settler.outstanding()
        known = set[tuple[JobId, int]]().union(*(consumer.attempts() for consumer in self._consumers))
        strangers = {(job_id, held.lease) for job_id, held in mine.items() if job_id not in settling} - known
        if any(consumer.claiming_since < asked_at for consumer in self._consumers):
            strangers = set()
        for job_id, lease_number in strangers & self._strangers:
            self._log.warning("job.released", jobs=[job_id], reason="the response to its claim was lost")
            held = mine[job_id]
            self._settler.add(Settlement(job_id, lease_number, Outcome.RELEASE, None, type=held.type, queue=held.queue))
        self._strangers = strangers

    # -- loops -------------------------------------------------------------------------------------

    def _on_hint(self, kind: str, name: str) -> None:
        for consumer in self._consumers:
            if kind == "cancel":
                consumer.cancel(name)
            elif name in ("*", consumer.size.queue):
                consumer.wake()

    async def _listen(self) -> None:
        """Listen for wake-up hints, which make an idle worker fast; without them, polling finds the jobs."""
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
        """Poll for all resting consumers with one statement per interval, or earlier if a delayed job is due."""
        while True:
            self._rested.clear()
            resting = {consumer.size.queue: consumer for consumer in self._consumers if consumer.resting}
            delay = min(consumer.size.poll_seconds for consumer in self._consumers)
            try:
                for peek in await self._engine.store.peek(list(resting)) if resting else ():
                    if peek.ready:
                        resting[peek.queue].on_ready_job()
                    else:
                        delay = min(delay, peek.due_in_seconds or delay)
            except StoreError as error:
                self._log.debug("poll.delayed", reason=str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(delay, 0.001)):
                    await self._rested.wait()

    async def _wake_others(self) -> None:
        """Wake other workers: an idle one may take at once what this worker has released."""
        for queue in self.record.queues:
            with contextlib.suppress(StoreError):
                await self._engine.store.wake(queue)

    def _nudge(self) -> None:
        for consumer in self._consumers:
            consumer.nudge()

    def _after_batch(self, batch: list[Settlement]) -> None:
        """React to settled jobs: those that a limit held back may start, and those that wait again have a due time."""
        outcomes = {settlement[2] for settlement in batch}
        if Outcome.FAILED in outcomes:
            self._failures.on_failure()
        if max(outcomes) > Outcome.CANCELLED:
            self._rested.set()
            self._hint = asyncio.create_task(self._wake_others())
        for consumer in self._consumers:
            consumer.on_settled()

    async def _write_measures(self) -> None:
        """Write the measures to the store every MEASURE_SECONDS."""
        while True:
            await asyncio.sleep(MEASURE_SECONDS)
            await flush(self._engine)

    async def _watch(self) -> None:
        """Check deadlines and stale buffers and write progress reports, a few times a second."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            self._quarantine.watch(time.monotonic())
            for consumer in self._consumers:
                consumer.watch(time.monotonic())
                if reports := consumer.take_reports():
                    try:
                        await self._engine.store.progress(self.record.id, reports)
                    except StoreError as error:
                        self._log.debug("progress.dropped", reason=str(error))
