"""Schedules: which job runs when. This module computes the ticks; the store makes each fire once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from rowlock.errors import SettingsError
from rowlock.jobs.new_jobs import Options

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EVERY_MAX_SECONDS = 366 * 86_400


class Missed(StrEnum):
    """What happens to missed ticks: those that no worker fired in time."""

    SKIP = "skip"  # recorded as missed, not run
    RUN_ONCE = "run_once"  # one run for all of them
    CATCH_UP = "catch_up"  # each runs, oldest first


@dataclass(frozen=True, slots=True)
class Schedule:
    """A recurring job: by a cron line in a time zone, or every `every_seconds` seconds."""

    name: str
    type: str
    cron: str | None = None
    every_seconds: float | None = None
    zone: str = "UTC"
    payload: dict[str, Any] = field(default_factory=dict)
    missed: Missed = Missed.RUN_ONCE
    grace_seconds: float = 60.0  # a tick that is later than this counts as missed
    start_delay_seconds: float = 0.0  # from the start of a process until it fires this schedule
    options: Options = field(default_factory=lambda: Options(origin="schedule"))

    @property
    def spec(self) -> str:
        """The declared timing as text; if it changes, the next tick is computed again."""
        if self.cron is not None:
            return f"cron {self.cron} {self.zone}"
        start = f", first {self.start_delay_seconds:g} s after start-up" if self.from_start else ""
        return f"every {self.every_seconds:g} s{start}"

    @property
    def from_start(self) -> bool:
        """Whether ticks count from the start-up of the fleet: an interval with a start delay."""
        return self.cron is None and self.start_delay_seconds > 0

    def first_after(self, moment: datetime) -> datetime:
        """Return the first tick of a fleet that starts at this moment."""
        if self.from_start:
            return moment + _span(self.start_delay_seconds)
        return self.next_after(moment)

    def next_after(self, moment: datetime, tick: datetime | None = None) -> datetime:
        """Return the first tick after this moment; ticks that count from start-up continue from a known `tick`.

        A cron line means the local time of its zone. At DST start, skipped times fire right after the gap; at DST end,
        a line with fixed hours fires only the first of the repeated times.
        """
        if self.cron is None:
            # Counted from a fixed moment, or from a tick in the store, so that all machines agree on the ticks.
            assert self.every_seconds is not None
            step = _span(self.every_seconds)
            origin = tick if self.from_start and tick is not None else _EPOCH
            return moment + step - (moment - origin) % step
        return next(CronSim(self.cron, moment.astimezone(ZoneInfo(self.zone)))).astimezone(UTC)

    def check(self) -> None:
        """Raise SettingsError if the declaration is invalid or would never fire."""
        what = f"schedule {self.name!r}"
        if (self.cron is None) == (self.every_seconds is None):
            raise SettingsError(f"{what}: give either cron= or every_seconds=")
        if self.every_seconds is not None and not 1 <= self.every_seconds <= _EVERY_MAX_SECONDS:
            raise SettingsError(f"{what}: every_seconds must be 1 to {_EVERY_MAX_SECONDS}, not {self.every_seconds:g}")
        try:
            ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError):
            raise SettingsError(
                f"{what}: unknown time zone {self.zone!r}; use a name such as UTC or Europe/Berlin"
            ) from None
        if self.grace_seconds <= 0 or self.start_delay_seconds < 0:
            raise SettingsError(f"{what}: grace_seconds must be more than 0, start_delay_seconds not negative")
        if self.cron is not None:
            try:
                self.next_after(datetime.now(UTC))
            except CronSimError as error:
                raise SettingsError(
                    f"{what}: {self.cron!r} is not a cron expression that ever fires: {error}"
                ) from None
            except StopIteration:
                raise SettingsError(f"{what}: {self.cron!r} is not a cron expression that ever fires") from None


def _span(seconds: float) -> timedelta:
    """Return a time span in whole milliseconds, which every store keeps."""
    return timedelta(milliseconds=round(seconds * 1000))
