"""The verbs of a store for those who look, each with its guarantee; see `base` for those of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rowlock.storage.overview import DeadGroups, History, Running
from rowlock.storage.records import JobFilter, JobId


class OverviewVerbs(Protocol):
    """What an operator sees at a glance, and the one thing that is done to a job that waits for its time."""

    async def running(self, limit: int) -> list[Running]:
        """Jobs that run, those that began first first, without what they were given."""

    async def hasten(self, job_id: JobId) -> bool:
        """Let a job that waits for its time be ready now; False, and nothing else, for every other job.

        It keeps its place (priority, then the order of enqueueing), its attempts, its limit and its keys; a paused
        queue stays paused. Workers are woken.
        """

    async def dead_groups(self, where: JobFilter, look_at: int, limit: int) -> DeadGroups:
        """Failed jobs by type and reason, at most `limit` groups; only the newest `look_at` that match are looked at.

        Of the filter, its type, queue and company count.
        """

    async def history(self, minutes: int) -> History:
        """What happened in the last so many minutes, at most a day, this one included."""

    async def note_lags(self, lags: Mapping[str, float]) -> bool:
        """Note how many seconds the oldest ready job of each queue has waited, once a minute in the fleet.

        False, and nothing else, where this minute has its note. Notes older than a day are forgotten by `fold`.
        """
