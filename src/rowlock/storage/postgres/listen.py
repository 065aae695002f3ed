"""Hints that a queue may have work: sent soon after a commit, received on a connection of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import Any

import asyncpg

from rowlock.errors import StoreError, StoreUnavailable
from rowlock.storage.base import Wake
from rowlock.storage.postgres.connection import BUSY_SECONDS, SQL, Connections, own_words

CHANNEL = "rowlock"
KEEPALIVE_SECONDS = 30.0
RING_GAP_SECONDS = 0.002  # a busy producer rings no more often: the first hint is at once, the next ones are joined


class Bell:
    """Rings for queues after a commit, on a connection of its own, which no verb has to wait for.

    Rings that come while one is under way are joined into the next.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._due: set[str] = set()
        self._ringer: asyncio.Task[None] | None = None

    def ring(self, queues: Set[str]) -> None:
        self._due |= queues
        if self._due and (self._ringer is None or self._ringer.done()):
            self._ringer = asyncio.create_task(self._ring())

    async def _ring(self) -> None:
        while self._due:
            queues, self._due = list(self._due), set()
            try:
                await self._send(queues)
            except StoreError:
                self._hang_up()
                return  # a hint is lost; polling finds the job
            await asyncio.sleep(RING_GAP_SECONDS)

    async def _send(self, queues: list[str]) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connections.direct()
        with own_words(self._connections.url):
            await self._connection.fetch(SQL["wake"], queues, timeout=BUSY_SECONDS)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        if self._ringer is not None and not self._ringer.done():
            await asyncio.wait([self._ringer], timeout=1.0)
            self._ringer.cancel()
        self._hang_up()


async def listen(connections: Connections, url: str | None, wake: Wake) -> None:
    """Call `wake` on every hint until cancelled; raises StoreUnavailable when hints cannot be had or end."""
    if url is None and connections.pooled:
        raise StoreUnavailable(
            "a pooler stands before PostgreSQL, so notifications cannot be had through it; "
            "polling goes on (set ROWLOCK_LISTEN_URL to a direct connection for wake-ups in milliseconds)"
        )
    connection = await connections.direct(url)
    ended = asyncio.Event()

    def on_hint(_connection: Any, _pid: int, _channel: str, payload: object) -> None:
        kind, _, name = str(payload).partition(":")
        wake(kind, name)

    try:
        connection.add_termination_listener(lambda _: ended.set())
        with own_words(connections.url):
            await connection.add_listener(CHANNEL, on_hint)
            wake("queue", "*")  # what was enqueued before we listened
            while not ended.is_set():
                try:
                    async with asyncio.timeout(KEEPALIVE_SECONDS):
                        await ended.wait()
                except TimeoutError:
                    # A half-open socket never tells: ask, so that a dead listener is noticed and replaced.
                    await connection.execute("SELECT 1", timeout=KEEPALIVE_SECONDS)
        raise StoreUnavailable(f"the notification connection to {connections.url} ended")
    finally:
        connection.terminate()
