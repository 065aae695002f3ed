"""SubjectQueue: in one process, the next job about a subject starts as soon as the previous one ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SubjectQueue:
    """Queues jobs per subject within the process, before they ask the store for the subject lock."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[asyncio.Lock, int]] = {}  # per subject: lock, number of jobs in the queue

    @asynccontextmanager
    async def of(self, subject: str, seconds: float) -> AsyncIterator[bool]:
        """Wait until the subject is free. Yields False if that takes longer than `seconds`."""
        lock, count = self._lines.get(subject, (asyncio.Lock(), 0))
        self._lines[subject] = (lock, count + 1)
        try:
            try:
                async with asyncio.timeout(seconds):
                    await lock.acquire()
            except TimeoutError:
                yield False
                return
            try:
                yield True
            finally:
                lock.release()
        finally:
            lock, count = self._lines.pop(subject)
            if count > 1:
                self._lines[subject] = (lock, count - 1)
