"""Waits of fault tests: for a condition, not for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_SECONDS = 0.02


def until(condition: Callable[[], T], seconds: float, what: str | Callable[[], object] = "") -> T:
    """Poll until the condition is true and return its value. Fails after `seconds`, naming `what` was awaited."""
    ends = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > ends:
            said = what() if callable(what) else what
            raise AssertionError(f"not within {seconds:g} s: {said or condition}")
        time.sleep(LOOK_SECONDS)
    return found


def until_none_is_left(left: Callable[[], int], stall_seconds: float, what: Callable[[], object]) -> None:
    """Poll until none is left. Fails if the number has not decreased for `stall_seconds`."""
    fewest, ends = left(), time.monotonic() + stall_seconds
    while fewest:
        time.sleep(LOOK_SECONDS)
        if (now := left()) < fewest:
            fewest, ends = now, time.monotonic() + stall_seconds
        elif time.monotonic() > ends:
            raise AssertionError(f"{fewest:,} left, no fewer within {stall_seconds:g} s: {what()}")


def after(seconds: float) -> Callable[[], bool]:
    """Return a condition that becomes true after `seconds`, for the duration of an attack."""
    ends = time.monotonic() + seconds
    return lambda: time.monotonic() >= ends
