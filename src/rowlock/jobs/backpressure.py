"""The limit on how many jobs may wait in a queue."""

from __future__ import annotations

import asyncio
import time

from rowlock.errors import QueueFull
from rowlock.storage.contract import Store

_RECHECK_FACTOR = 50.0  # counting may cost one fiftieth of the time
_FASTEST = 1_000_000  # jobs per second: the fastest that the remaining room can fill


class Backpressure:
    """Estimates how full a queue is; it counts in the store rarely while there is plenty of room."""

    def __init__(self, queue: str, size_max: int) -> None:
        self._queue = queue
        self._max = size_max
        self._known = size_max
        self._in_flight = 0
        self._admitted = 0  # in total
        self._recheck_at = 0.0
        self._checking = asyncio.Lock()

    async def admit(self, store: Store, adding: int) -> None:
        """Admit `adding` more jobs; raises QueueFull if the queue has no room for them."""
        if self._must_count(adding):
            async with self._checking:
                if self._must_count(adding):
                    await self._count(store)
        if self._known + adding > self._max:
            raise QueueFull(
                f"queue {self._queue!r} holds {min(self._known, self._max):,} waiting jobs (limit: {self._max:,}); "
                "nothing was enqueued: start more workers, or increase ROWLOCK_QUEUE_SIZE_MAX"
            )
        self._known += adding
        self._in_flight += adding
        self._admitted += adding

    def arrived(self, count: int) -> None:
        """Note that `count` admitted jobs are in the store now, or were refused."""
        self._in_flight -= count

    def _must_count(self, adding: int) -> bool:
        return self._known + adding > self._max or time.monotonic() >= self._recheck_at

    async def _count(self, store: Store) -> None:
        began = time.monotonic()
        # Jobs in flight when the count began may have arrived after it: add them, or they would be missed.
        uncounted = self._in_flight - self._admitted
        depth = await store.depth(self._queue, self._max + 1)
        self._known = depth + uncounted + self._admitted
        now = time.monotonic()
        self._recheck_at = now + max(_RECHECK_FACTOR * (now - began), (self._max - self._known) / _FASTEST)
