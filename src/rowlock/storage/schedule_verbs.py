"""The store's verbs for schedules, each with its guarantee; `contract` has those for jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from rowlock.storage.records import Receipt
from rowlock.storage.reliability import RunRecord, ScheduleRecord, Tick


class ScheduleVerbs(Protocol):
    """Schedules and their runs."""

    async def declare_schedules(self, schedules: Sequence[tuple[str, str, datetime]]) -> None:
        """Registers these (name, spec, first tick); a known schedule with the same spec stays unchanged."""

    async def schedules(self) -> list[ScheduleRecord]:
        """Returns every schedule, by name."""

    async def move_schedule(self, name: str, expected: datetime, next_at: datetime) -> bool:
        """Replaces the next tick. Returns False and does nothing if it is not `expected` or the schedule is paused."""

    async def fire(self, tick: Tick) -> Receipt | None:
        """Enqueues the job of a tick, records the run and advances the schedule, together and once in the fleet.

        Returns None if another process did so already, the schedule is paused, or the tick has no job. A tick that has
        already run only advances the schedule.
        """

    async def close_runs(self, limit: int) -> list[RunRecord]:
        """Records the end of up to `limit` runs whose job is over; returns these runs."""

    async def runs(self, name: str | None, limit: int, before: datetime | None = None) -> list[RunRecord]:
        """Returns runs, the latest tick first."""

    async def prune_runs(self, days: float, limit: int) -> int:
        """Removes up to `limit` runs that ended more than `days` ago, oldest first; returns how many."""

    async def pause_schedule(self, name: str) -> bool:
        """Stops the schedule's ticks until it is resumed; returns False for an unknown schedule."""

    async def resume_schedule(self, name: str, next_at: datetime) -> bool:
        """Continues a paused schedule with this tick; returns False for an unknown schedule."""
