"""The store's verbs for dashboards, each with its guarantee; `contract` has those for jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rowlock.storage.overview import DeadGroups, History, Running
from rowlock.storage.records import JobFilter, JobId


class OverviewVerbs(Protocol):
    """What operators see on the dashboard, and `run_now` for a delayed job."""

    async def running(self, limit: int) -> list[Running]:
        """Returns running jobs without their payloads, in order of their start."""

    async def run_now(self, job_id: JobId) -> bool:
        """Makes a delayed job available now; returns False and does nothing for every other job.

        The job keeps its place (priority, then the order of enqueueing), attempts, limit and keys; a paused queue stays
        paused. Wakes workers.
        """

    async def dead_groups(self, where: JobFilter, look_at: int, limit: int) -> DeadGroups:
        """Groups failed jobs by type and reason, at most `limit` groups, from the newest `look_at` that match.

        Of the filter, only type, queue and company count.
        """

    async def history(self, minutes: int) -> History:
        """Returns what happened in the last `minutes` minutes, at most a day, including the current one."""

    async def note_lags(self, lags: Mapping[str, float]) -> bool:
        """Records how many seconds the oldest ready job of each queue has waited, once a minute in the fleet.

        Returns False and does nothing if this minute has its record. `compact` removes records older than a day.
        """
