"""The keeper: heartbeats, rescue, schedules, retention. It runs no user code, and survives a store that goes away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.errors import StoreError
from rowlock.jobs.engine import Engine
from rowlock.jobs.scheduler import Scheduler
from rowlock.jobs.watch import Watch
from rowlock.storage.records import Held, KeepPolicy, Status, Worker

_AGAIN_SECONDS = 1.0  # after a store error
_FOLD_SECONDS = 15.0
_FOLD_BATCH = 10_000
_LAG_SECONDS = 55.0  # noted once a minute by whoever comes first: often enough that none is left out
_LAG_AFTER_SECONDS = 2.0  # a start has enough to do
_WATCH_SECONDS = 60.0
MEASURE_SECONDS = 15.0
_BEATS_TO_WAIT = 2  # after an outage, before anything is rescued
_BACK_SECONDS = 2.0  # and at least this: drivers look every half a second whether the store is back


class Keeper:
    """Keeps the leases of some workers alive, and does the chores of the store."""

    def __init__(
        self,
        engine: Engine,
        workers: Callable[[], Sequence[Worker]],
        on_held: Callable[[list[Held], float], None],
        log: Any,
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._on_held = on_held
        self._log = log
        self._rescue_from = 0.0
        self._failures = Watch(engine, log)
        self._scheduler = Scheduler(engine.store, engine.enqueuer, engine.schedules, engine.measures, log)

    async def run(self) -> None:
        """All chores until cancelled."""
        settings = self._engine.settings
        chores = [
            asyncio.create_task(self._every(self._engine.heartbeat_seconds(), self.beat)),
            asyncio.create_task(self._every(settings.rescue_ms / 1000, self.rescue)),
            asyncio.create_task(self._every(settings.prune_minutes * 60, self.prune)),
            asyncio.create_task(self._every(_FOLD_SECONDS, self.fold)),
            asyncio.create_task(self._every(_LAG_SECONDS, self.note_lags, after=_LAG_AFTER_SECONDS)),
            asyncio.create_task(self._every(_WATCH_SECONDS, self._failures.check)),
            asyncio.create_task(self._every(MEASURE_SECONDS, self.tell_measures)),
        ]
        chores += [asyncio.create_task(self._every(seconds, chore)) for seconds, chore in self._engine.chores]
        if self._engine.schedules:
            chores.append(asyncio.create_task(self._scheduler.run()))
        try:
            await asyncio.gather(*chores)
        finally:
            for chore in chores:
                chore.cancel()
            await asyncio.gather(*chores, return_exceptions=True)

    async def _every(self, seconds: float, chore: Callable[[], Awaitable[object]], after: float = 0.0) -> None:
        if after:
            await asyncio.sleep(after)
        while True:
            try:
                await chore()
                delay = seconds
            except StoreError as error:
                self._log.warning("chore.delayed", chore=chore.__name__, reason=str(error))
                delay = min(seconds, _AGAIN_SECONDS)
                self._wait_for_others()
            await asyncio.sleep(delay)

    async def beat(self) -> None:
        """Renew all leases with one statement, and pass on what the store says is held."""
        workers = self._workers()
        if workers:
            asked_at = time.monotonic()
            self._on_held(await self._engine.store.beat(workers), asked_at)
            if time.monotonic() - asked_at > self._engine.heartbeat_seconds():
                self._wait_for_others()

    def _wait_for_others(self) -> None:
        """The store was away, so nobody could beat: let every live worker do so before any lease counts as run out."""
        wait = max(_BEATS_TO_WAIT * self._engine.heartbeat_seconds(), _BACK_SECONDS)
        self._rescue_from = time.monotonic() + wait

    async def rescue(self) -> int:
        """Take back jobs whose lease ran out."""
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
                reason="its worker was not seen within the visibility timeout",
            )
        if any(job.status is Status.FAILED for job in rescued):
            await self._failures.check()
        return len(rescued)

    async def prune(self) -> Pruned:
        """Remove what retention lets go, batch by batch."""
        return await prune(self._engine, self._log)

    async def fold(self) -> None:
        """Fold the notes of changes into the counts, until few are left."""
        while await self._engine.store.fold(_FOLD_BATCH) == _FOLD_BATCH:
            continue

    async def note_lags(self) -> bool:
        """Note how long the oldest ready job of each queue has waited, for the history."""
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
    calls: int  # of other services, and the subjects that they were about

    @property
    def records(self) -> dict[str, int]:
        """Of all but the jobs."""
        return {
            "failures": self.failures,
            "locks": self.locks,
            "runs": self.runs,
            "access": self.access,
            "imports": self.imports,
            "calls": self.calls,
        }


async def prune(engine: Engine, log: Any) -> Pruned:
    """Remove what retention lets go, in bounded batches, until nothing is left; returns the counts."""
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
        failures=await _all(store.prune_failures, s.keep_failure_days, s.prune_batch),
        locks=await _all(store.prune_locks, s.keep_lock_days, s.prune_batch),
        runs=await _all(store.prune_runs, s.keep_run_days, s.prune_batch),
        access=await _all(store.prune_access, s.keep_token_days, s.prune_batch),
        imports=await _all(store.prune_imports, s.keep_import_days, s.prune_batch),
        calls=await _all(store.prune_calls, s.keep_subject_days, s.prune_batch),
    )
    if any(jobs.values()):
        log.info("job.pruned", **{status.value: count for status, count in jobs.items()})
    if any(removed.records.values()):
        log.info("records.pruned", **removed.records)
    return removed


async def _all(remove: Callable[[float, int], Awaitable[int]], days: float, batch: int) -> int:
    removed = 0
    while (count := await remove(days, batch)) > 0:
        removed += count
    return removed


async def flush(engine: Engine) -> None:
    """Hand what was measured to the store; what does not arrive goes with the next."""
    taken = engine.measures.take()
    try:
        await engine.store.add_measures(taken)
    except StoreError:
        engine.measures.give_back(taken)
