"""How often someone may ask: a bucket that fills up with time, one per name."""

from __future__ import annotations

import time
from collections import OrderedDict

_NAMES_MAX = 10_000


class Rates:
    """So many per second, and as many at once as fill up in `burst_seconds`."""

    def __init__(self, per_second: float, burst_seconds: float = 1.0) -> None:
        self._per_second = per_second
        self._room = max(1.0, per_second * burst_seconds)
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what was left, and when

    def wait_seconds(self, name: str) -> float:
        """0, or how long until one more is allowed."""
        return max(0.0, (1.0 - self._left(name, time.monotonic())) / self._per_second)

    def take(self, name: str) -> None:
        """Count one; those that were under way together may take more than there was, and wait longer for it."""
        now = time.monotonic()
        self._levels[name] = max(-self._room, self._left(name, now) - 1.0), now
        self._levels.move_to_end(name)
        if len(self._levels) > _NAMES_MAX:
            self._levels.popitem(last=False)  # the one not heard of for longest

    def _left(self, name: str, now: float) -> float:
        left, at = self._levels.get(name, (self._room, now))
        return min(self._room, left + (now - at) * self._per_second)
