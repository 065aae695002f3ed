"""Connection pools that outlive the store of one test and serve the next test."""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

IDLE_SECONDS_MAX = 5.0
"""Less than the time after which a paused driver considers its connections dead; MongoDB's driver: 10 seconds."""


class IdlePools:
    """Connection pools kept for the next store of the same URL, because connecting takes longer than most tests.

    Pools are kept only in the session's event loop, set by `kept`: a pool only works in the loop that created it, and
    nothing would close it when another loop ends.
    """

    def __init__(
        self, close: Callable[[Any], Awaitable[None]], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._close = close
        self._monotonic = monotonic
        self._loop: AbstractEventLoop | None = None
        self._pools: dict[str, tuple[Any, float]] = {}

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep pools in this event loop. Closes the remaining ones at the end of the block."""
        self._loop = get_running_loop()
        try:
            yield
        finally:
            self._loop = None
            for pool, _ in self._pools.values():
                await self._close(pool)
            self._pools.clear()

    async def take(self, url: str) -> Any:
        """Return the pool of this URL, or None. A pool that has waited too long is closed.

        Synchronous tests stop the loop. When it continues, the driver's monitors mistake the pause for a network
        timeout and interrupt the connections in use.
        """
        if self._loop is not get_running_loop() or url not in self._pools:
            return None
        pool, since = self._pools.pop(url)
        if self._monotonic() - since <= IDLE_SECONDS_MAX:
            return pool
        await self._close(pool)
        return None

    def keep(self, url: str, pool: Any) -> bool:
        """Keep a pool if there is none of its URL yet. Returns whether it is kept."""
        if self._loop is not get_running_loop() or url in self._pools:
            return False
        self._pools[url] = pool, self._monotonic()
        return True
