"""One engine per event loop, closed with the loop: a store's connections work only in the loop that opened them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from weakref import WeakKeyDictionary

from rowlock.jobs.engine import Engine

_END_SECONDS = 1.0  # for closing at the end of a loop: an unreachable database must not delay the exit of a process


class Engines:
    """The engines of one application; the callback `close` closes what else it has opened in the running loop."""

    def __init__(self, make: Callable[[], Engine], close: Callable[[], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, Engine] = WeakKeyDictionary()
        self._ends: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = WeakKeyDictionary()

    def here(self) -> Engine:
        """Return the engine of the running event loop, created on first use."""
        loop = asyncio.get_running_loop()
        found = self._made.get(loop)
        if found is None:
            for closed in [known for known in self._made if known.is_closed()]:
                del self._made[closed]  # closed without shutdown_asyncgens(): nothing can be awaited there any more
                self._ends.pop(closed, None)
            found = self._made[loop] = self._make()
            self._end_with(loop, found)
        return found

    async def close(self) -> None:
        """Close the engine of the running event loop; idempotent."""
        ending = self._ends.pop(asyncio.get_running_loop(), None)
        await self._close_here()
        if ending is not None:
            await ending.aclose()

    async def _close_here(self, seconds: float | None = None) -> None:
        """Close what belongs to the running event loop; `seconds` limits the time of each part (default: no limit).

        The store is closed even if the rest takes too long: its connections must not outlive the loop.
        """
        engine = self._made.pop(asyncio.get_running_loop(), None)
        try:
            async with asyncio.timeout(seconds):
                await self._close()
        finally:
            if engine is not None:
                async with asyncio.timeout(seconds):
                    await engine.store.close()

    def _end_with(self, loop: asyncio.AbstractEventLoop, engine: Engine) -> None:
        """Close the engine when its event loop shuts down, unless it was closed before.

        asyncio.run() closes the asynchronous generators that were started in its loop, including this one.
        """

        async def until_the_end() -> AsyncGenerator[None, None]:
            try:
                yield
            finally:
                if self._made.get(loop) is engine:
                    with contextlib.suppress(TimeoutError):
                        await self._close_here(_END_SECONDS)

        ending = self._ends[loop] = until_the_end()
        with contextlib.suppress(StopIteration):
            ending.__anext__().send(None)  # runs to its `yield` without waiting
