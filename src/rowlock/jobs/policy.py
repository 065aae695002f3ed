"""Policies: how a job type retries, when two jobs are duplicates, and how workers treat a queue."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rowlock.errors import DELAY_SECONDS_MAX, SettingsError
from rowlock.settings import Settings
from rowlock.storage.records import OnConflict

Key = str | Callable[[Mapping[str, Any]], str]
"""A unique key: a text, or a function of the payload."""


chance = random.random  # replaced in tests


@dataclass(frozen=True, slots=True)
class Backoff:
    """Wait at most `min(base * factor ** attempt, max)` seconds before the next try; the first failure is attempt 1.

    `jitter` is the random share of that wait, so that jobs that failed together do not retry together (default: 0.1, a
    wait of 90 to 100 %). 0 is exact, 1 is full jitter (0 to 100 %).
    """

    max_attempts: int = 5
    base_seconds: float = 1.0
    factor: float = 2.0
    max_seconds: float = 60.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= 1_000:
            raise SettingsError(f"Backoff(max_attempts={self.max_attempts}): must be 1 to 1000")
        numbers = (self.base_seconds, self.factor, self.max_seconds)
        if not all(map(math.isfinite, numbers)) or self.base_seconds < 0 or self.factor < 1 or self.max_seconds < 0:
            raise SettingsError(
                "Backoff: base_seconds and max_seconds must be at least 0, factor at least 1, all finite"
            )

        if not 0 <= self.jitter <= 1:
            raise SettingsError(f"Backoff(jitter={self.jitter}): must be 0 (exact) to 1 (full jitter)")

    def wait_seconds(self, attempt: int) -> float:
        """Return the wait after this many failures, shortened by random jitter."""
        return self.delay_seconds(attempt) * (1 - self.jitter * chance())

    def delay_seconds(self, attempt: int) -> float:
        """Return the longest wait after this many failures."""
        try:
            return min(self.base_seconds * self.factor**attempt, self.max_seconds)
        except OverflowError:
            return self.max_seconds


def default_backoff(settings: Settings) -> Backoff:
    """Return the retry policy of job types that declare none."""
    return Backoff(
        settings.max_attempts, settings.backoff_base_seconds, settings.backoff_factor, settings.backoff_max_seconds
    )


@dataclass(frozen=True, slots=True)
class Unique:
    """When a job with the same type and payload (or the same `key`) is a duplicate, and what happens then."""

    policy: Literal["forever", "while_active", "window", "none"]
    seconds: float | None = None
    on_conflict: OnConflict = OnConflict.REJECT
    key: Key | None = None
    newest_wins: bool = False  # for sync operations: the existing job takes over the newer payload

    @classmethod
    def forever(cls, *, on_conflict: str = "reject", key: Key | None = None) -> Unique:
        """One job, ever."""
        return cls("forever", None, OnConflict(on_conflict), key)

    @classmethod
    def while_active(cls, *, on_conflict: str = "reject", key: Key | None = None) -> Unique:
        """One job at a time: the key is free again when that job has ended."""
        return cls("while_active", None, OnConflict(on_conflict), key)

    @classmethod
    def window(cls, seconds: float, *, on_conflict: str = "reject", key: Key | None = None) -> Unique:
        """One job per `seconds`, counted from when it was enqueued."""
        if not 0 < seconds <= DELAY_SECONDS_MAX:
            raise SettingsError(
                f"Unique.window({seconds}): must be more than 0 seconds, at most {DELAY_SECONDS_MAX:.0f}"
            )
        return cls("window", seconds, OnConflict(on_conflict), key)

    @classmethod
    def none(cls) -> Unique:
        """No job is a duplicate; exempts a type or a call from the application's default."""
        return cls("none")

    @classmethod
    def parse(cls, text: str, *, on_conflict: str = "reject", key: Key | None = None) -> Unique:
        """Return the policy that a text names: none, forever, while_active or window:SECONDS; raises SettingsError."""
        name, _, seconds = text.partition(":")
        if name == "window" and seconds:
            try:
                window = float(seconds)
            except ValueError:
                raise SettingsError(f"{text}: {seconds!r} is not a number of seconds") from None
            if 0 < window <= DELAY_SECONDS_MAX:
                return cls.window(window, on_conflict=on_conflict, key=key)
            raise SettingsError(f"{text}: must be more than 0 seconds, at most {DELAY_SECONDS_MAX:.0f}")
        if text == "forever":
            return cls.forever(on_conflict=on_conflict, key=key)
        if text == "while_active":
            return cls.while_active(on_conflict=on_conflict, key=key)
        if text == "none":
            if key is not None:
                raise SettingsError("the policy none takes no key: remove the key, or use another policy")
            return cls.none()
        raise SettingsError(f"{text}: must be none, forever, while_active or window:SECONDS")


@dataclass(frozen=True, slots=True)
class QueueProfile:
    """How workers treat one named queue; None stands for the value of the settings."""

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
