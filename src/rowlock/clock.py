"""Clocks: the store's own by default, a movable one for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Gives a store the time to use in its next statement."""

    def now(self) -> datetime | None:
        """Return the time to use, or None for the store's own clock."""


class StoreClock:
    """Use the store's own clock: a worker with a wrong clock must not take a live lease."""

    def now(self) -> None:
        return None


class FakeClock:
    """A clock that moves only by `advance`; every statement of the store uses it."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise ValueError("FakeClock needs a time with a time zone, for example datetime(2030, 1, 1, tzinfo=UTC)")
        self._now = start

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0) -> None:
        """Move time forward, or back if negative."""
        self._now += timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
