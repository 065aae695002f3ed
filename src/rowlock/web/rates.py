"""How often someone may ask: a bucket that fills up with time, one per name, forgotten when full."""

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

    def wait_seconds(self, name: str, cost: float = 1.0) -> float:
        """0, having counted it, or how long until it may be asked again."""
        now = time.monotonic()
        left, at = self._levels.get(name, (self._room, now))
        left = min(self._room, left + (now - at) * self._per_second)
        if left < cost:
            return (cost - left) / self._per_second
        self._levels[name] = (left - cost, now)
        self._levels.move_to_end(name)
        if len(self._levels) > _NAMES_MAX:
            self._levels.popitem(last=False)  # the one not heard of for longest
        return 0.0

    def give_back(self, name: str, cost: float = 1.0) -> None:
        """It does not count after all."""
        left, at = self._levels.get(name, (self._room, 0.0))
        self._levels[name] = min(self._room, left + cost), at
