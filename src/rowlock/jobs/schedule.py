"""Schedules: which job runs when. Ticks are computed here; that one fires once is the store's business."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from rowlock.errors import SettingsError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EVERY_MAX_SECONDS = 366 * 86_400


class Missed(StrEnum):
    """What becomes of ticks that nobody was there for."""

    SKIP = "skip"  # they are noted, and that is all
    RUN_ONCE = "run_once"  # one run makes up for all of them
    CATCH_UP = "catch_up"  # each runs, oldest first


@dataclass(frozen=True, slots=True)
class Schedule:
    """One job, again and again: by a cron line in a time zone, or every so many seconds."""

    name: str
    type: str
    cron: str | None = None
    every_seconds: float | None = None
    zone: str = "UTC"
    payload: dict[str, Any] = field(default_factory=dict)
    missed: Missed = Missed.RUN_ONCE
    grace_seconds: float = 60.0  # a tick that is later than this counts as missed
    start_delay_seconds: float = 0.0  # after a process starts, before it fires this schedule
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> str:
        """How it was declared: when this changes, the next tick is counted anew."""
        return f"cron {self.cron} {self.zone}" if self.cron is not None else f"every {self.every_seconds:g} s"

    def next_after(self, moment: datetime) -> datetime:
        """The first tick after this moment.

        A cron line means the clock on the wall of its zone. An hour that the clocks leave out: its ticks come right
        after it. An hour that comes twice: a line with fixed hours ticks the first time only.
        """
        if self.cron is None:
            # Counted from a fixed moment, so that all machines agree on the ticks.
            assert self.every_seconds is not None
            step = timedelta(seconds=self.every_seconds)
            return moment + step - (moment - _EPOCH) % step
        return next(CronSim(self.cron, moment.astimezone(ZoneInfo(self.zone)))).astimezone(UTC)

    def check(self) -> None:
        """Raise SettingsError for what would never fire, or not as meant."""
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
                raise SettingsError(f"{what}: {self.cron!r} is not a cron line that ever fires: {error}") from None
            except StopIteration:
                raise SettingsError(f"{what}: {self.cron!r} is not a cron line that ever fires") from None
