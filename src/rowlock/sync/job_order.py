"""The order of jobs: a job's place is its own id, or that of the newest enqueue with its key, if it took that over.

enqueue, key taken ─▶ the job with the key gets the newest payload and place ─▶ it runs ─▶ its key is freed
                                                     ▲                            │ enqueued again meanwhile
                                                     └────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rowlock.errors import Snooze, StoreUnavailable
from rowlock.jobs.job import Job
from rowlock.storage.contract import Store
from rowlock.sync.operation import Operation
from rowlock.sync.single import away


class Order:
    """The places of jobs that run together. Without a store, as in resilient mode, jobs take over nothing."""

    def __init__(self, operation: Operation, jobs: Sequence[Job], store: Store | None) -> None:
        self._store = None if operation.key is None else store
        self._jobs = jobs
        self._places = {job.id: job.id for job in jobs}

    async def take_over(self) -> bool:
        """Give the jobs the payload and place of the newest enqueue with their key. Returns whether there was any.

        Raises Snooze if the store is unreachable.
        """
        if self._store is None:
            return False
        try:
            newest = await self._store.newest(list(self._places))
        except StoreUnavailable as error:
            raise away(error) from error
        for job in self._jobs:
            if job.id in newest:
                self._places[job.id] = newest[job.id].id
                job._take_over(newest[job.id].payload)
        return bool(newest)

    def place(self, job: Job) -> str:
        """Return the job's place, an id that grows with time. A job never overwrites a value with a greater place."""
        return self._places[job.id]

    async def end(self, done: Collection[str]) -> dict[str, Snooze]:
        """Free the keys of finished jobs. Returns a Snooze for each that was enqueued again meanwhile.

        From then on an enqueue with a freed key creates a new job, since this one no longer reads newer payloads. If
        the store is unreachable, all jobs are snoozed.
        """
        if self._store is None or not done:
            return {}
        try:
            again = await self._store.free_keys({job_id: self._places[job_id] for job_id in done})
        except StoreUnavailable as error:
            return dict.fromkeys(done, away(error))
        return {job_id: Snooze(0.0, "it was enqueued again while it ran: once more") for job_id in again}
