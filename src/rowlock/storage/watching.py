"""Combines a store's counters into the state of the queues of an integration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rowlock.storage.calls import SyncCounts
from rowlock.storage.records import JobRecord, QueueRecord, Status
from rowlock.storage.reliability import Activity, Total

DAY_SECONDS = 24 * 3600
FAILURES_LOOKED_AT = 1_000


class Watching(ABC):
    """The verb `sync_counts`, built from other verbs of a store."""

    @abstractmethod
    async def totals(self) -> list[Total]: ...

    @abstractmethod
    async def queues(self) -> list[QueueRecord]: ...

    @abstractmethod
    async def activity(self, seconds: float) -> list[Activity]: ...

    @abstractmethod
    async def _retrying(self, queues: Sequence[str]) -> int:
        """Returns how many jobs of these queues wait after a failed attempt."""

    @abstractmethod
    async def _mean_completed(self, queues: Sequence[str]) -> float | None:
        """Returns the mean milliseconds of these queues' jobs that succeeded in 24 hours, by reading each job."""

    @abstractmethod
    async def _counts_of_company(self, queues: Sequence[str], company_id: str) -> SyncCounts:
        """Returns the counts for one company, by reading each of its jobs."""

    async def sync_counts(self, queues: Sequence[str], company_id: str | None = None) -> SyncCounts:
        if company_id is not None:
            return await self._counts_of_company(queues, company_id)
        retrying = await self._retrying(queues)
        standing = [queue for queue in await self.queues() if queue.name in queues]
        lately = [one for one in await self.activity(DAY_SECONDS) if one.queue in queues]
        waiting = sum(queue.ready + queue.delayed for queue in standing)
        waits = [queue.oldest_ready_seconds for queue in standing if queue.oldest_ready_seconds is not None]
        return SyncCounts(
            pending=max(waiting - retrying, 0),  # the two are read at different times
            processing=sum(queue.processing for queue in standing),
            retrying=retrying,
            dead=sum(total.failed for total in await self.totals() if total.queue in queues),
            completed_24h=sum(one.succeeded for one in lately),
            mean_ms=await self._mean_ms(queues, lately),
            lag_seconds=max(waits, default=None),
        )

    async def _mean_ms(self, queues: Sequence[str], lately: Sequence[Activity]) -> float | None:
        succeeded = sum(one.succeeded for one in lately)
        if not succeeded:
            return None
        if any(one.failures or one.cancelled for one in lately):  # the sum of seconds includes theirs
            return await self._mean_completed(queues)
        return 1000 * sum(one.seconds for one in lately) / succeeded


def is_failing(job: JobRecord) -> bool:
    """Returns whether the job's last attempt failed, so that it waits for a retry or is a dead letter."""
    return job.status is Status.FAILED or (job.status is Status.QUEUED and job.attempts > 0)
