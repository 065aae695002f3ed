"""Waiting in fault tests: for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_SECONDS = 0.02


def until(condition: Callable[[], T], seconds: float, what: str | Callable[[], object] = "") -> T:
    """Look until the condition is true, and return what it gave; fails, saying what was awaited, when time is up."""
    ends = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > ends:
            said = what() if callable(what) else what
            raise AssertionError(f"not within {seconds:g} s: {said or condition}")
        time.sleep(LOOK_SECONDS)
    return found


def after(seconds: float) -> Callable[[], bool]:
    """A condition that comes true when so much time has passed: for the length of an attack."""
    ends = time.monotonic() + seconds
    return lambda: time.monotonic() >= ends
