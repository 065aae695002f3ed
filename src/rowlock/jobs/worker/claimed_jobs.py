"""The claimed jobs of a consumer that have not started, and the runners that wait for one."""

from __future__ import annotations

import asyncio
from collections import deque

from rowlock.jobs.outcome import on_trial
from rowlock.jobs.worker.context import WorkerContext
from rowlock.jobs.worker.prefetch import Prefetch
from rowlock.storage.records import Claimed


class ClaimedJobs:
    """Hands jobs to runners in the order of the claims; a quarantine candidate waits until nothing runs."""

    def __init__(self, worker: WorkerContext, prefetch: Prefetch) -> None:
        self._types = worker.types
        self._quarantine = worker.quarantine
        self._deaths_max = worker.engine.settings.deaths_max
        self._prefetch = prefetch
        self._jobs: deque[Claimed] = deque()
        self._candidate: Claimed | None = None  # for quarantine: it waits until nothing runs
        self._runners: deque[asyncio.Future[None]] = deque()  # that wait
        self._in_batches = any(declared.batch is not None for declared in worker.types.values())
        self._more_ready = False
        self.wanted = asyncio.Event()  # set when there may be room for more; cleared by the consumer

    # -- for runners -------------------------------------------------------------------------------

    def take(self) -> Claimed | None:
        """Return the next job, or None."""
        if self._quarantine.pending:
            return self._take_candidate()
        if not self._jobs or (self._in_batches and self._short_of_a_batch()):
            return None
        claimed = self._jobs.popleft()
        if claimed[4] and on_trial(claimed[4], self._deaths_max):
            self._candidate = claimed
            self._quarantine.add()
            return self._take_candidate()
        if len(self._jobs) <= self._prefetch.refill_at and not self.wanted.is_set():
            self.wanted.set()
        return claimed

    def take_more(self, type_name: str, most: int) -> list[Claimed]:
        """Return up to `most` further jobs of this type, in order, up to the first of another type or with deaths."""
        more: list[Claimed] = []
        while len(more) < most and self._jobs and self._jobs[0][6] == type_name and not self._jobs[0][4]:
            more.append(self._jobs.popleft())
        if more:
            self.wanted.set()
        return more

    async def wait(self) -> None:
        """Wait until there may be a job to take."""
        waiter = asyncio.get_running_loop().create_future()
        self._runners.append(waiter)
        self.wanted.set()
        await waiter

    def _short_of_a_batch(self) -> bool:
        """Return whether there is less than one batch of the first job's type, and the store may have more."""
        first = self._types.get(self._jobs[0].type)
        if not self._more_ready or first is None or first.batch is None or len(self._jobs) >= first.batch:
            return False
        self._prefetch.set_unit(first.batch)
        return all(job.type == first.name and not job.deaths for job in self._jobs)

    def _take_candidate(self) -> Claimed | None:
        """Return the quarantine candidate if nothing else runs; until it has ended, nothing else starts."""
        candidate = self._candidate
        if candidate is None or not self._quarantine.start(candidate):
            return None
        self._candidate = None
        return candidate

    # -- for the consumer --------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of jobs without the quarantine candidate."""
        return len(self._jobs)

    @property
    def has_candidate(self) -> bool:
        """Whether a quarantine candidate waits for other jobs to end."""
        return self._candidate is not None

    @property
    def free_runners(self) -> int:
        """The number of runners that wait for a job."""
        return len(self._runners)

    def add(self, claimed: list[Claimed]) -> None:
        self._jobs.extend(claimed)

    def expect_more(self, ready: bool) -> None:
        """Note whether the store may have more jobs that are ready."""
        self._more_ready = ready

    def wake_runners(self) -> None:
        """Wake as many waiting runners as there are jobs."""
        self._wake(len(self._jobs) + self.has_candidate)

    def wake_all_runners(self) -> None:
        self._wake(len(self._runners))

    def _wake(self, most: int) -> None:
        for _ in range(min(len(self._runners), most)):
            waiter = self._runners.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def waiting(self) -> list[Claimed]:
        """Return all jobs, the candidate included."""
        return [*self._jobs] if self._candidate is None else [self._candidate, *self._jobs]

    def remove(self, claimed: Claimed) -> None:
        if claimed is self._candidate:
            self.remove_candidate()
        else:
            self._jobs.remove(claimed)

    def remove_last(self, count: int) -> list[Claimed]:
        """Remove and return the last `count` jobs, in order; not the candidate."""
        return [self._jobs.pop() for _ in range(count)][::-1]

    def remove_candidate(self) -> list[Claimed]:
        """Remove and return the quarantine candidate, if there is one."""
        if self._candidate is None:
            return []
        removed, self._candidate = [self._candidate], None
        self._quarantine.remove()
        return removed
