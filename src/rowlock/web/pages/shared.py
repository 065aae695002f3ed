"""One look for all who ask at about the same time: fifty open pages cost the database what one costs."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from starlette.requests import Request

T = TypeVar("T")

SECONDS = 1.5
_KEPT_MAX = 64


class Shared:
    """Answers that are under way or fresh, by what was asked."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[asyncio.Task[Any], float]] = OrderedDict()

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]], seconds: float = SECONDS) -> T:
        """What `ask` says, or said for the same key within so many seconds; the key must name who may see it."""
        self._drop_old()
        found = self._kept.get(key)
        if found is None:
            task = asyncio.ensure_future(_dated(ask))
            self._kept[key] = task, seconds
            later = asyncio.get_running_loop().call_later
            task.add_done_callback(lambda _: later(seconds, self._drop_old))  # also where nobody asks any more
            if len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)
        else:
            task = found[0]
        answer: tuple[T, float] = await asyncio.shield(task)  # one who leaves does not take it from the others
        return answer[0]

    def forget(self) -> None:
        """Whoever has changed something sees it at once."""
        self._kept.clear()

    def _drop_old(self) -> None:
        """An answer may hold a payload of a megabyte: it is kept for as long as it is shared, and no longer."""
        for key in [key for key, found in self._kept.items() if _over(found)]:
            del self._kept[key]


async def _dated(ask: Callable[[], Awaitable[T]]) -> tuple[T, float]:
    return await ask(), time.monotonic()


def _over(found: tuple[asyncio.Task[Any], float]) -> bool:
    task, seconds = found
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or time.monotonic() - task.result()[1] >= seconds


def shared(request: Request) -> Shared:
    """That of the pages which answer this request."""
    found: Shared = request.app.state.shared
    return found
