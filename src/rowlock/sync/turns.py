"""Turns: of jobs about one subject in one process, the next begins as soon as the one before has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Whoever wants a subject stands in line here, before asking the store for it."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[asyncio.Lock, int]] = {}  # with how many stand there

    @asynccontextmanager
    async def of(self, subject: str, seconds: float) -> AsyncIterator[bool]:
        """Wait for the turn; False when it does not come within so many seconds."""
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
