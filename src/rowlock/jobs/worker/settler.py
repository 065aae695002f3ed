"""The settler writes settlements to the store: one batch is in flight while the next one grows."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from rowlock.errors import StoreError, StoreUnavailable, ValueRefused
from rowlock.jobs.engine import Engine
from rowlock.jobs.outcome import without_refused
from rowlock.jobs.worker.failure_storms import Storms
from rowlock.storage.records import JobId, Outcome, Settlement, WorkerId

_RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
_GROWTH = 4  # factor of the batch size after each success, up to its maximum


class Settler:
    """Settles finished attempts when the previous batch has returned: fast when idle, large batches when busy."""

    def __init__(
        self, engine: Engine, owner: WorkerId, log: Any, after_batch: Callable[[list[Settlement]], None]
    ) -> None:
        self._store = engine.store
        self._owner = owner
        self._batch_max = engine.settings.settle_max
        self._log = log
        self._measures = engine.measures
        self._after_batch = after_batch
        self._storms = Storms(engine.settings.failures_per_minute)
        self._pending: list[Settlement] = []
        self._parts: list[list[Settlement]] = []  # settled before `_pending`, the last one first
        self._in_flight: list[Settlement] = []
        self._size = self._batch_max  # of the next batch: smaller after errors
        self._failures = 0  # in a row
        self._repeated: set[JobId] = set()  # sent at least once without an answer: perhaps they are in the store
        self._pauses: list[tuple[str, float]] = []
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, settlement: Settlement) -> None:
        self._pending.append(settlement)
        if not self._work.is_set():
            self._work.set()
            self._idle.clear()

    def add_failed(self, settlement: Settlement, company_id: str | None) -> None:
        """Add the settlement of an attempt that raised; in a storm of identical failures it shares a record."""
        self.add(self._storms.sampled(settlement, company_id))

    def pause_key(self, key: str, seconds: float) -> None:
        """Pause a limit key before the next batch is settled, so that its jobs are not claimed again meanwhile."""
        if (key, seconds) not in self._pauses:  # all jobs of a batch report the same pause
            self._pauses.append((key, seconds))

    @property
    def idle(self) -> bool:
        """Whether nothing is pending or in flight."""
        return self._idle.is_set()

    def outstanding(self) -> set[JobId]:
        """Return the jobs whose settlement is pending or in flight."""
        batches = (self._in_flight, *self._parts, self._pending)
        return {settlement.job_id for batch in batches for settlement in batch}

    @property
    def unsettled(self) -> int:
        """How many jobs are done but not settled: they would run again if this process died."""
        return len(self._in_flight) + sum(map(len, self._parts)) + len(self._pending)

    async def flushed(self) -> None:
        """Wait until everything added so far is in the store."""
        await self._idle.wait()

    async def run(self) -> None:
        """Settle until cancelled.

        Any store error but ValueRefused says nothing about the settlements: they are tried again, with pauses, until
        the store records them or reports that the lease is lost. The supervisor renews the leases meanwhile.
        """
        while True:
            batch = self._in_flight = await self._next()
            try:
                await self._pause_keys()
                lost = await self._store.settle(self._owner, batch)
                if lost and not self._repeated.isdisjoint(lost):
                    lost = await self._really_lost(batch, lost)
            except ValueRefused as error:
                await self._refused(batch, error)
                continue
            except StoreError as error:
                await self._try_again(batch, error)
                continue
            self._failures, self._size = 0, min(self._size * _GROWTH, self._batch_max)
            if self._repeated:
                self._repeated.difference_update(settlement.job_id for settlement in batch)
            self._after_batch(batch)
            self._measure(batch, lost)
            self._log_batch(batch, lost)

    async def _next(self) -> list[Settlement]:
        """Wait for the next batch and return it."""
        if self._parts:
            return self._parts.pop()
        if not self._pending:
            self._in_flight = []
            self._work.clear()
            self._idle.set()
            await self._work.wait()
        batch = self._pending[: self._size]
        del self._pending[: len(batch)]
        return batch

    async def _pause_keys(self) -> None:
        while self._pauses:
            try:
                await self._store.pause_key(*self._pauses[0])
            except ValueRefused as error:
                self._log.error("pause.refused", key=self._pauses[0][0], reason=str(error))
            del self._pauses[0]

    async def _try_again(self, batch: list[Settlement], error: StoreError) -> None:
        """Wait, then settle this batch again; in smaller batches if the store answers with errors repeatedly.

        A batch may be too large for a statement timeout, or hold one job whose row is locked: the others need not wait.
        """
        delay = _RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS) - 1)]
        self._failures += 1
        self._repeated.update(settlement.job_id for settlement in batch)
        self._log.warning("settle.delayed", jobs=len(batch), reason=str(error), retry_in_seconds=delay)
        await asyncio.sleep(delay)
        if self._failures == 1 or isinstance(error, StoreUnavailable):
            self._parts.append(batch)
        elif len(batch) == 1:
            self._pending += batch
        else:
            self._size = max(1, len(batch) // 2)
            self._pending[:0] = batch

    async def _refused(self, batch: list[Settlement], error: ValueRefused) -> None:
        """Find the settlement that the store refuses by halving the batch, and leave out the refused values."""
        self._repeated.update(settlement.job_id for settlement in batch)
        if len(batch) > 1:
            half = len(batch) // 2
            self._parts += (batch[half:], batch[:half])
            return
        self._log.error("settle.refused", job=batch[0].job_id, reason=str(error))
        shorter = without_refused(batch[0])
        if shorter is None:  # no value of the job is left that the store could refuse
            await self._try_again(batch, error)
        else:
            self._parts.append([shorter])

    def _measure(self, batch: list[Settlement], lost: list[JobId]) -> None:
        ran = [settlement for settlement in batch if settlement.seconds is not None]
        self._measure_runs(ran)
        retried = sum(settlement.outcome == Outcome.RETRY for settlement in batch)
        if retried:
            self._measures.add("retried", {}, retried)
        if lost:
            self._measures.add("lease_lost", {}, len(lost))

    def _measure_runs(self, batch: list[Settlement]) -> None:
        if not batch:
            return
        _, _, _, seconds, _, _, _, types, queues, _ = zip(*batch, strict=True)
        by_kind: dict[tuple[str, str], Sequence[float]] = {(types[0], queues[0]): seconds}
        if not types.count(types[0]) == queues.count(queues[0]) == len(batch):
            mixed: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
            for kind, took in zip(zip(types, queues, strict=True), seconds, strict=True):
                mixed[kind].append(took)
            by_kind = dict(mixed)
        for (type_name, queue), mine in by_kind.items():
            self._measures.observe("run_seconds", {"queue": queue, "type": type_name}, mine)

    async def _really_lost(self, batch: list[Settlement], lost: list[JobId]) -> list[JobId]:
        """Return the jobs of a repeated batch that lost their lease; an unanswered try has settled the others."""
        leases = {settlement.job_id: settlement.lease for settlement in batch}
        gone = []
        for job_id in lost:
            if job_id in self._repeated:
                record = await self._store.get(job_id)
                if record is not None and record.lease == leases[job_id] and record.lock_owner is None:
                    continue
            gone.append(job_id)
        return gone

    def _log_batch(self, batch: list[Settlement], lost: list[JobId]) -> None:
        if lost:
            self._log.warning(
                "lease.lost", jobs=lost, reason="another attempt owns these jobs; their results were not recorded"
            )
        missing = set(lost)
        done = [s for s in batch if s[2] == 1 and s[0] not in missing]
        if done:
            ids, _, _, _, _, _, _, types, _, _ = zip(*done, strict=True)
            self._log.info("job.succeeded", count=len(done), types=dict(Counter(types)), jobs=list(ids))
        if len(done) + len(missing) == len(batch):
            return
        for settlement in batch:
            if settlement.outcome == Outcome.SUCCEEDED or settlement.job_id in missing:
                continue
            if settlement.outcome == Outcome.RELEASE and settlement.error is None:
                continue  # logged where it was released
            event, level = _EVENTS[settlement.outcome]
            more: dict[str, Any] = (
                {} if settlement.outcome <= Outcome.CANCELLED else {"again_in_seconds": settlement.delay_seconds}
            )
            if settlement.failure is not None and settlement.failure.stack is not None:
                more["exception"] = settlement.failure.stack  # redacted when the attempt failed; logged only here
            getattr(self._log, level)(
                event, job=settlement.job_id, type=settlement.type, reason=settlement.error, **more
            )


_EVENTS: dict[int, tuple[str, str]] = {
    Outcome.FAILED: ("job.failed", "error"),
    Outcome.CANCELLED: ("job.cancelled", "info"),
    Outcome.RETRY: ("job.retried", "warning"),
    Outcome.RELEASE: ("job.released", "info"),
    Outcome.CRASH: ("job.crashed", "error"),
}
