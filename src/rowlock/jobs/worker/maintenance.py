"""Maintenance: heartbeats, rescue, schedules, retention. It runs no user code and survives store outages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rowlock.control import locks, requests, schedules, tokens
from rowlock.errors import RowlockError, StoreError, StoreUnavailable
from rowlock.jobs.engine import Engine
from rowlock.jobs.scheduler import Scheduler
from rowlock.jobs.worker.failure_watch import FailureWatch
from rowlock.storage.contract import Store
from rowlock.storage.records import Held, KeepPolicy, Status, Worker, WorkerId

_AGAIN_SECONDS = 1.0  # after a store error
_COMPACT_SECONDS = 15.0
_COMPACT_BATCH = 10_000
_LEASES_SECONDS = 0.4  # between checks for leases that are shorter than those of the types declared here
_BEATS_PER_LEASE = 3
_LAG_SECONDS = 55.0  # the first process of each minute records the lag: often enough that no minute is left out
_LAG_AFTER_SECONDS = 2.0  # from start-up, which is busy, to the first record
_WATCH_SECONDS = 60.0
MEASURE_SECONDS = 15.0
_BEATS_TO_WAIT = 2  # heartbeats after an outage, before anything is rescued
_BACK_SECONDS = 2.0  # and at least this: drivers check every 0.5 s whether the store is back


class Maintenance:
    """Renews the leases of some workers, and runs the periodic chores of the store."""

    def __init__(
        self,
        engine: Engine,
        workers: Callable[[], Sequence[Worker]],
        on_held: Callable[[list[Held], float], None],
        running: Callable[[], Sequence[WorkerId]],
        log: Any,
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._on_held = on_held
        self._running = running  # the workers that run a job now
        self._log = log
        self._rescue_from = 0.0
        self._failures = FailureWatch(engine, log)
        self._scheduler = Scheduler(engine, log, workers)

    async def run(self) -> None:
        """Run all chores until cancelled."""
        settings = self._engine.settings
        chores = [
            asyncio.create_task(self._every(self._engine.heartbeat_seconds(), self.beat, pauses=False)),
            asyncio.create_task(self._every(settings.rescue_ms / 1000, self.rescue)),
            asyncio.create_task(self._every(settings.prune_minutes * 60, self.prune)),
            asyncio.create_task(self._every(_COMPACT_SECONDS, self.compact)),
            asyncio.create_task(self._every(_LAG_SECONDS, self.note_lags, after=_LAG_AFTER_SECONDS)),
            asyncio.create_task(self._every(_WATCH_SECONDS, self._failures.check)),
            asyncio.create_task(self._every(MEASURE_SECONDS, self.tell_measures)),
        ]
        chores += [asyncio.create_task(self._every(seconds, chore)) for seconds, chore in self._engine.chores]
        chores += [asyncio.create_task(self._once(starter)) for starter in self._engine.starters]
        if self._engine.schedules:
            chores.append(asyncio.create_task(self._scheduler.run()))
        try:
            await asyncio.gather(*chores)
        finally:
            for chore in chores:
                chore.cancel()
            await asyncio.gather(*chores, return_exceptions=True)

    async def _every(
        self, seconds: float, chore: Callable[[], Awaitable[object]], after: float = 0.0, *, pauses: bool = True
    ) -> None:
        if after:
            await asyncio.sleep(after)
        while True:
            try:
                await chore()
                delay = seconds if pauses else 0.0
            except StoreError as error:
                self._log.warning("chore.delayed", chore=chore.__name__, reason=str(error))
                delay = min(seconds, _AGAIN_SECONDS)
                self._wait_for_others()
            await asyncio.sleep(delay)

    async def _once(self, starter: Callable[[], Awaitable[object]]) -> None:
        """Run a starter once; retry while the store is unavailable."""
        while True:
            try:
                await starter()
                return
            except StoreUnavailable as error:
                self._log.warning("start.delayed", starter=starter.__qualname__, reason=str(error))
            except RowlockError as error:
                self._log.error("start.refused", starter=starter.__qualname__, reason=str(error))
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _beat(self) -> None:
        """Renew all leases with one statement, and pass on the leases that are held."""
        workers = self._workers()
        if workers:
            asked_at = time.monotonic()
            self._on_held(await self._engine.store.beat(workers), asked_at)
            if time.monotonic() - asked_at > self._engine.heartbeat_seconds():
                self._wait_for_others()

    async def beat(self) -> None:
        """Renew all leases, and return when it is time to do so again: after a third of the shortest one, or sooner.

        The process that enqueues a job sets its visibility timeout, so a lease may be shorter than any declared here.
        Other processes do the claims; so check often while jobs run, which costs less than frequent heartbeats.
        """
        await self._beat()
        beaten = time.monotonic()
        wait = self._engine.heartbeat_seconds()
        while (left := beaten + wait - time.monotonic()) > 0:
            began = time.monotonic()
            owners = self._running()
            if owners and left > _LEASES_SECONDS:
                shortest = await self._engine.store.shortest_lease(owners)
                if shortest is not None:
                    wait = min(wait, shortest / _BEATS_PER_LEASE)
            now = time.monotonic()
            took = now - began
            pause = max(_LEASES_SECONDS - took, took)  # spend at most half of the time on a slow store
            await asyncio.sleep(max(0.0, min(pause, beaten + wait - now)))

    def _wait_for_others(self) -> None:
        """Pause rescue after a store outage, so that every live worker renews its leases before any is rescued."""
        wait = max(_BEATS_TO_WAIT * self._engine.heartbeat_seconds(), _BACK_SECONDS)
        self._rescue_from = time.monotonic() + wait

    async def rescue(self) -> int:
        """Take back jobs whose lease has expired; returns how many."""
        if time.monotonic() < self._rescue_from:
            return 0
        batch = self._engine.settings.rescue_batch
        engine = self._engine
        rescued = await engine.store.rescue(batch, engine.rescue_delays(), engine.redact.payload)
        if rescued:
            engine.measures.add("rescued", {}, len(rescued))
        for job in rescued:
            level = self._log.error if job.status is Status.FAILED else self._log.warning
            level(
                "job.rescued",
                job=job.job_id,
                type=job.type,
                queue=job.queue,
                owner=job.owner,
                attempt=job.attempt,
                status=job.status.value,
                reason="its worker sent no heartbeat within the visibility timeout",
            )
        if any(job.status is Status.FAILED for job in rescued):
            await self._failures.check()
        return len(rescued)

    async def prune(self) -> Pruned:
        """Delete records past their retention, in batches; returns the counts."""
        return await prune(self._engine, self._log)

    async def compact(self) -> None:
        """Compact the counters until less than a batch of deltas is left."""
        while await self._engine.store.compact(_COMPACT_BATCH) == _COMPACT_BATCH:
            continue

    async def note_lags(self) -> bool:
        """Record how long the oldest ready job of each queue has waited, for the history."""
        waits = {queue.name: queue.oldest_ready_seconds for queue in await self._engine.store.queues()}
        return await self._engine.store.note_lags({name: wait for name, wait in waits.items() if wait is not None})

    async def tell_measures(self) -> None:
        await flush(self._engine)


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many records of each kind retention has removed."""

    jobs: dict[Status, int]
    failures: int
    locks: int
    runs: int
    access: int  # requests and tokens of the HTTP API
    imports: int
    calls: int  # outbound calls, and the subjects that they were about

    @property
    def records(self) -> dict[str, int]:
        """The counts of all records but jobs."""
        return {
            "failures": self.failures,
            "locks": self.locks,
            "runs": self.runs,
            "access": self.access,
            "imports": self.imports,
            "calls": self.calls,
        }


async def prune(engine: Engine, log: Any) -> Pruned:
    """Delete all records past their retention, in bounded batches; returns the counts."""
    s, store = engine.settings, engine.store
    policies = {
        Status.SUCCEEDED: KeepPolicy(s.keep_succeeded_days, s.keep_succeeded_count),
        Status.FAILED: KeepPolicy(s.keep_failed_days, s.keep_failed_count),
        Status.CANCELLED: KeepPolicy(s.keep_cancelled_days, None),
    }
    jobs = dict.fromkeys(policies, 0)
    while True:
        batch = await store.prune(policies, s.prune_batch)
        for status, count in batch.items():
            jobs[status] += count
        if not any(batch.values()):
            break
    removed = Pruned(
        jobs,
        failures=await _all(
            partial(store.prune_failures, count=s.keep_failure_count), s.keep_failure_days, s.prune_batch
        ),
        locks=await _all(partial(locks.prune, store), s.keep_lock_days, s.prune_batch),
        runs=await _all(partial(schedules.prune_runs, store), s.keep_run_days, s.prune_batch),
        access=await _all(partial(prune_access, store), s.keep_token_days, s.prune_batch),
        imports=await _all(store.prune_imports, s.keep_import_days, s.prune_batch),
        calls=await _all(store.prune_calls, s.keep_subject_days, s.prune_batch),
    )
    if any(jobs.values()):
        log.info("job.pruned", **{status.value: count for status, count in jobs.items()})
    if any(removed.records.values()):
        log.info("records.pruned", **removed.records)
    return removed


async def prune_access(store: Store, days: float, limit: int) -> int:
    """Remove up to `limit` expired requests, and tokens that ended more than `days` ago; return how many."""
    removed = await requests.prune(store, limit)
    return removed + await tokens.prune(store, days, limit - removed)


async def _all(remove: Callable[[float, int], Awaitable[int]], days: float, batch: int) -> int:
    removed = 0
    while (count := await remove(days, batch)) > 0:
        removed += count
    return removed


async def flush(engine: Engine) -> None:
    """Write the measures to the store; after a store error they are kept for the next flush."""
    taken = engine.measures.take()
    try:
        await engine.store.add_measures(taken)
    except StoreError:
        engine.measures.restore(taken)
