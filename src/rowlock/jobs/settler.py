"""Settlements on their way to the store: one batch in flight, the next one growing meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from rowlock.errors import StoreError, StoreUnavailable
from rowlock.ids import uuid7
from rowlock.observe.metrics import Measures
from rowlock.storage.base import Store
from rowlock.storage.records import Failed, JobId, Outcome, Settlement, WorkerId

_RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)


class Settler:
    """Settles finished attempts as soon as the previous batch returned: quick when quiet, large batches when busy."""

    def __init__(
        self,
        store: Store,
        owner: WorkerId,
        batch_max: int,
        log: Any,
        measures: Measures,
        after_batch: Callable[[list[Settlement]], None],
    ) -> None:
        self._store = store
        self._owner = owner
        self._batch_max = batch_max
        self._log = log
        self._measures = measures
        self._after_batch = after_batch
        self._pending: list[Settlement] = []
        self._in_flight: list[Settlement] = []
        self._pauses: list[tuple[str, float]] = []
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, settlement: Settlement) -> None:
        self._pending.append(settlement)
        if not self._work.is_set():
            self._work.set()
            self._idle.clear()

    def pause_key(self, key: str, seconds: float) -> None:
        """Pause a limit key before the next batch is settled, so that its jobs come back to a closed door."""
        if (key, seconds) not in self._pauses:  # as all jobs of a batch say together
            self._pauses.append((key, seconds))

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is under way."""
        return self._idle.is_set()

    def outstanding(self) -> set[JobId]:
        """The jobs that are on their way to be settled."""
        return {settlement.job_id for settlement in (*self._in_flight, *self._pending)}

    @property
    def unsettled(self) -> int:
        """How many jobs are done and not in the store: what would run again if this process died."""
        return len(self._in_flight) + len(self._pending)

    async def flushed(self) -> None:
        """Wait until everything added so far is in the store."""
        await self._idle.wait()

    async def run(self) -> None:
        """Settle until cancelled. A store that is away is waited for: the supervisor keeps the leases meanwhile."""
        failures, batch_max = 0, self._batch_max
        batch: list[Settlement] = []
        while True:
            self._in_flight = batch
            if not batch:
                if not self._pending:
                    self._work.clear()
                    self._idle.set()
                    await self._work.wait()
                batch = self._pending[:batch_max]
                del self._pending[: len(batch)]
                self._in_flight = batch
            try:
                while self._pauses:
                    await self._store.pause_key(*self._pauses[0])
                    del self._pauses[0]
                lost = await self._store.settle(self._owner, batch)
                if lost and failures:
                    lost = await self._really_lost(batch, lost)
            except StoreUnavailable as error:
                delay = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                failures += 1
                self._log.warning("settle.delayed", jobs=len(batch), reason=str(error), retry_in_seconds=delay)
                await asyncio.sleep(delay)
                continue
            except StoreError as error:
                if len(batch) == 1:
                    batch = self._without_poison(batch[0], error)
                else:  # one of them is not to the store's taste: find it, so that it does not hold up the others
                    self._pending[:0] = batch[1:]
                    batch = batch[:1]
                    batch_max = 1
                continue
            batch_max = self._batch_max if not self._pending else batch_max
            failures = 0
            self._after_batch(batch)
            self._measure(batch, lost)
            self._tell(batch, lost)
            batch = []

    def _measure(self, batch: list[Settlement], lost: list[JobId]) -> None:
        _, _, outcomes, seconds, _, _, _, types, queues, _ = zip(*batch, strict=True)
        by_kind: dict[tuple[str, str], Sequence[float]] = {(types[0], queues[0]): seconds}
        if not types.count(types[0]) == queues.count(queues[0]) == len(batch):
            mixed: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
            for kind, took in zip(zip(types, queues, strict=True), seconds, strict=True):
                mixed[kind].append(took)
            by_kind = dict(mixed)
        for (type_name, queue), mine in by_kind.items():
            self._measures.observe("run_seconds", {"queue": queue, "type": type_name}, mine)
        retried = outcomes.count(Outcome.RETRY)
        if retried:
            self._measures.add("retried", {}, retried)
        if lost:
            self._measures.add("lease_lost", {}, len(lost))

    def _without_poison(self, settlement: Settlement, error: StoreError) -> list[Settlement]:
        """What is left of a settlement that the store refuses: its outcome, without its result; then nothing."""
        self._log.error("settle.refused", job=settlement.job_id, reason=str(error))
        if settlement.result is None and settlement.error == _REFUSED:
            return []  # its lease runs out, and rescue decides
        failure = Failed(uuid7(), "{}", None)  # what it was given may be what the store does not take
        outcome = Outcome.FAILED
        return [settlement._replace(outcome=outcome, delay_seconds=0.0, result=None, error=_REFUSED, failure=failure)]

    async def _really_lost(self, batch: list[Settlement], lost: list[JobId]) -> list[JobId]:
        """After a broken connection the batch may have been settled already; then its leases are gone, not lost."""
        leases = {settlement.job_id: settlement.lease for settlement in batch}
        gone = []
        for job_id in lost:
            record = await self._store.get(job_id)
            if record is None or record.lease != leases[job_id] or record.lock_owner is not None:
                gone.append(job_id)
        return gone

    def _tell(self, batch: list[Settlement], lost: list[JobId]) -> None:
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
                continue  # said by whoever gave it back
            event, level = _EVENTS[settlement.outcome]
            more = {} if settlement.outcome <= Outcome.CANCELLED else {"again_in_seconds": settlement.delay_seconds}
            getattr(self._log, level)(
                event, job=settlement.job_id, type=settlement.type, reason=settlement.error, **more
            )


_REFUSED = "the store refused the outcome of this attempt; the worker's log says why"
_EVENTS: dict[int, tuple[str, str]] = {
    Outcome.FAILED: ("job.failed", "error"),
    Outcome.CANCELLED: ("job.cancelled", "info"),
    Outcome.RETRY: ("job.retried", "warning"),
    Outcome.RELEASE: ("job.released", "info"),
    Outcome.CRASH: ("job.crashed", "error"),
}
