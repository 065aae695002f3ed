"""The context that the jobs of one queue in one worker process share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rowlock.storage.contract import Store
from rowlock.storage.records import Claimed, JobId, Progress, WorkerId

if TYPE_CHECKING:
    from rowlock.jobs.enqueue import Enqueuer


@dataclass(slots=True)
class Context:
    store: Store
    owner: WorkerId
    queue: str
    enqueuer: Enqueuer
    loop: asyncio.AbstractEventLoop
    result_bytes_max: int = 1_048_576
    leased: bool = True  # False in resilient mode: there is no job in the store to settle
    result: str | None = None  # in resilient mode: of a job that was completed in a transaction
    reports: dict[JobId, Progress] = field(default_factory=dict)  # latest report of each job, not yet written

    def report(self, claimed: Claimed, percent: int, message: str | None) -> None:
        self.reports[claimed.id] = Progress(claimed.id, claimed.lease, percent, message)
