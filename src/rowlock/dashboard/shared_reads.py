"""Shares answers between requests at about the same time: fifty open pages cost the database what one costs."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from starlette.requests import Request

from rowlock.clock import Clock, StoreClock

T = TypeVar("T")

SECONDS = 1.5
_REFRESH_MS = 2_000  # the refresh interval that the ages here are chosen for
_KEPT_MAX = 64


class Shared:
    """Answers that are pending or fresh, by key.

    Ages are measured by `clock.now()` if it returns a time (in tests), otherwise by time.monotonic(). They are
    shorter in proportion if open pages are fetched more often than every 2 seconds.
    """

    def __init__(self, clock: Clock | None = None, refresh_ms: int = _REFRESH_MS) -> None:
        self._clock = clock or StoreClock()
        self._scale = min(1.0, refresh_ms / _REFRESH_MS)
        self._kept: OrderedDict[Hashable, tuple[asyncio.Task[Any], float]] = OrderedDict()

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]], seconds: float = SECONDS) -> T:
        """Return what `ask` returns, or returned for this key within `seconds`; the key must include who may see it."""
        seconds *= self._scale
        self._drop_old()
        found = self._kept.get(key)
        if found is None:
            task = asyncio.ensure_future(self._dated(ask))
            self._kept[key] = task, seconds
            later = asyncio.get_running_loop().call_later
            task.add_done_callback(lambda _: later(seconds, self._drop_old))  # even if no request follows
            if len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)
        else:
            task = found[0]
        answer: tuple[T, float] = await asyncio.shield(task)  # a cancelled caller does not cancel it for others
        return answer[0]

    def forget(self) -> None:
        """Drop all answers, so that a change shows at once."""
        self._kept.clear()

    def _drop_old(self) -> None:
        """Drop expired answers; they are not kept longer, since one may hold a payload of a megabyte."""
        for key in [key for key, found in self._kept.items() if self._over(found)]:
            del self._kept[key]

    async def _dated(self, ask: Callable[[], Awaitable[T]]) -> tuple[T, float]:
        return await ask(), self._seconds()

    def _over(self, found: tuple[asyncio.Task[Any], float]) -> bool:
        task, seconds = found
        if not task.done():
            return False
        return task.cancelled() or task.exception() is not None or self._seconds() - task.result()[1] >= seconds

    def _seconds(self) -> float:
        now = self._clock.now()
        return time.monotonic() if now is None else now.timestamp()


def shared(request: Request) -> Shared:
    """Return the shared answers of the dashboard."""
    found: Shared = request.app.state.shared
    return found
