"""What a job type may declare: how it retries, when two jobs are the same, which limit it shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rowlock.errors import DELAY_SECONDS_MAX, SettingsError
from rowlock.storage.records import OnConflict

Key = str | Callable[[Mapping[str, Any]], str]
"""Of jobs that are the same: a text, or a function of the payload."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Wait `min(base * factor ** attempt, max)` seconds before the next try; the first failure is attempt 1."""

    max_attempts: int = 5
    base_seconds: float = 1.0
    factor: float = 2.0
    max_seconds: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= 1_000:
            raise SettingsError(f"Backoff(max_attempts={self.max_attempts}): must be 1 to 1000")
        numbers = (self.base_seconds, self.factor, self.max_seconds)
        if not all(map(math.isfinite, numbers)) or self.base_seconds < 0 or self.factor < 1 or self.max_seconds < 0:
            raise SettingsError(
                "Backoff: base_seconds and max_seconds must be at least 0, factor at least 1, all finite"
            )

    def delay_seconds(self, attempt: int) -> float:
        """The wait after this many failures."""
        try:
            return min(self.base_seconds * self.factor**attempt, self.max_seconds)
        except OverflowError:
            return self.max_seconds


@dataclass(frozen=True, slots=True)
class Unique:
    """When a job with the same type and payload (or the same `key`) is a duplicate, and what happens then."""

    policy: Literal["forever", "while_active", "window"]
    seconds: float | None = None
    on_conflict: OnConflict = OnConflict.REJECT
    key: Key | None = None

    @classmethod
    def forever(cls, *, on_conflict: str = "reject", key: Key | None = None) -> Unique:
        """One job, ever."""
        return cls("forever", None, OnConflict(on_conflict), key)

    @classmethod
    def while_active(cls, *, on_conflict: str = "reject", key: Key | None = None) -> Unique:
        """One job at a time: the key is free again when that job is over."""
        return cls("while_active", None, OnConflict(on_conflict), key)

    @classmethod
    def window(cls, seconds: float, *, on_conflict: str = "reject", key: Key | None = None) -> Unique:
        """One job per `seconds`, counted from its enqueueing."""
        if not 0 < seconds <= DELAY_SECONDS_MAX:
            raise SettingsError(
                f"Unique.window({seconds}): must be more than 0 seconds, at most {DELAY_SECONDS_MAX:.0f}"
            )
        return cls("window", seconds, OnConflict(on_conflict), key)


@dataclass(frozen=True, slots=True)
class QueueProfile:
    """How the workers treat one named queue; what is None comes from the settings."""

    name: str
    concurrency: int | None = None
    poll_seconds: float | None = None
    visibility_seconds: float | None = None
    rescue_delay_seconds: float = 0.0
    buffer_max: int | None = None
    size_max: int | None = None

    def __post_init__(self) -> None:
        for field, least in _LEAST.items():
            value = getattr(self, field)
            if value is not None and value < least:
                raise SettingsError(f"queue {self.name!r}: {field} must be at least {least:g}, not {value}")


_LEAST = {
    "concurrency": 1,
    "poll_seconds": 0.01,
    "visibility_seconds": 0.01,
    "rescue_delay_seconds": 0,
    "buffer_max": 0,
    "size_max": 1,
}
