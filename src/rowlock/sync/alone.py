"""Permits without the store: in resilient mode a process keeps the limits on its own."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rowlock.storage.calls import CallLimit, PermitId

_CALLS_MAX = 100_000


class Alone:
    """Counts this process's calls as a store counts those of the fleet."""

    def __init__(self) -> None:
        self._calls: dict[PermitId, tuple[Sequence[CallLimit], float]] = {}  # when each is over, by our clock
        self._rests: dict[str, float] = {}

    async def take_call(self, permit_id: PermitId, limits: Sequence[CallLimit], hold_seconds: float) -> float:
        now = time.monotonic()
        longest = max(limit.seconds for limit in limits)
        self._calls = {known: call for known, call in self._calls.items() if call[1] + longest > now}
        wait = max(self._rests.get(limit.key, 0.0) - now for limit in limits)
        for limit in limits:
            frees = sorted(
                over_at + limit.seconds
                for taken, over_at in self._calls.values()
                if limit in taken and over_at + limit.seconds > now
            )
            if len(frees) >= min(limit.count, _CALLS_MAX):
                wait = max(wait, frees[-limit.count] - now)
        if wait > 0:
            return wait
        self._calls[permit_id] = (limits, now + hold_seconds)
        return 0.0

    async def end_call(self, permit_id: PermitId, *, made: bool = True) -> None:
        found = self._calls.pop(permit_id, None)
        if found is not None and made:
            self._calls[permit_id] = (found[0], min(found[1], time.monotonic()))

    async def rest_calls(self, key: str, seconds: float) -> None:
        self._rests[key] = max(self._rests.get(key, 0.0), time.monotonic() + seconds)
