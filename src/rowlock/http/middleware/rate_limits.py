"""Rate limits in this process: one token bucket per name."""

from __future__ import annotations

import time
from collections import OrderedDict

_NAMES_MAX = 10_000


class Rates:
    """Allows `per_second` requests per second, in bursts of up to `burst_seconds` worth of them (default: 1 s)."""

    def __init__(self, per_second: float, burst_seconds: float = 1.0) -> None:
        self._per_second = per_second
        self._room = max(1.0, per_second * burst_seconds)
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and when

    def wait_seconds(self, name: str) -> float:
        """Return the seconds until the next request is allowed; 0 if it is allowed now."""
        return max(0.0, (1.0 - self._left(name, time.monotonic())) / self._per_second)

    def take(self, name: str) -> None:
        """Count one request; concurrent ones may overdraw the bucket, and the next then waits longer."""
        now = time.monotonic()
        self._levels[name] = max(-self._room, self._left(name, now) - 1.0), now
        self._levels.move_to_end(name)
        if len(self._levels) > _NAMES_MAX:
            self._levels.popitem(last=False)  # the least recently used

    def _left(self, name: str, now: float) -> float:
        left, at = self._levels.get(name, (self._room, now))
        return min(self._room, left + (now - at) * self._per_second)
