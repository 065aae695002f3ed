"""LocalLimiter: permits without the store. In resilient mode each process keeps the limits on its own."""

from __future__ import annotations

import time
from bisect import insort
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress

from rowlock.storage.calls import CallLimit, PermitId

_CALLS_MAX = 100_000


class LocalLimiter:
    """Counts this process's calls the way a store counts those of the fleet."""

    def __init__(self) -> None:
        self._taken: dict[PermitId, tuple[Sequence[CallLimit], float]] = {}  # limits, expiry on the monotonic clock
        self._windows: defaultdict[CallLimit, _Window] = defaultdict(_Window)
        self._rests: dict[str, float] = {}

    async def take_call(self, permit_id: PermitId, limits: Sequence[CallLimit], hold_seconds: float) -> float:
        now = time.monotonic()
        wait = max(self._rests.get(limit.key, 0.0) - now for limit in limits)
        for limit in limits:
            window = self._windows[limit]
            for gone in window.pass_by(now, limit.seconds):
                self._taken.pop(gone, None)
            wait = max(wait, window.over_at(min(limit.count, _CALLS_MAX)) + limit.seconds - now)
        if wait > 0:
            return wait
        self._taken[permit_id] = (limits, now + hold_seconds)
        for limit in limits:
            self._windows[limit].running[permit_id] = now + hold_seconds
        return 0.0

    async def end_call(self, permit_id: PermitId, *, made: bool = True) -> None:
        limits, over_at = self._taken.pop(permit_id, ((), 0.0))
        for limit in limits:
            self._windows[limit].end(permit_id, over_at, made)

    async def rest_calls(self, key: str, seconds: float) -> None:
        self._rests[key] = max(self._rests.get(key, 0.0), time.monotonic() + seconds)


class _Window:
    """The calls that count for one limit: running ones, and ended ones, oldest first."""

    def __init__(self) -> None:
        self.running: dict[PermitId, float] = {}
        self.ended: deque[tuple[float, PermitId]] = deque()

    def pass_by(self, now: float, seconds: float) -> list[PermitId]:
        """Advance to `now`. Returns the permits that no longer count."""
        for permit_id in [one for one, over_at in self.running.items() if over_at <= now]:
            insort(self.ended, (self.running.pop(permit_id), permit_id))
        gone = []
        while self.ended and self.ended[0][0] + seconds <= now:
            gone.append(self.ended.popleft()[1])
        return gone

    def over_at(self, count: int) -> float:
        """Return when the call ends that must leave the window before the next call; -inf if there is room."""
        place = len(self.ended) + len(self.running) - count
        if place < 0:
            return float("-inf")
        return (
            self.ended[place][0] if place < len(self.ended) else sorted(self.running.values())[place - len(self.ended)]
        )

    def end(self, permit_id: PermitId, over_at: float, made: bool) -> None:
        """End a call; one that was not made does not count."""
        if self.running.pop(permit_id, None) is not None:
            if made:
                insort(self.ended, (min(over_at, time.monotonic()), permit_id))
        elif not made:
            with suppress(ValueError):
                self.ended.remove((over_at, permit_id))
