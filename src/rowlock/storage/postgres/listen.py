"""Wake-up hints that a queue may have work: sent right after a commit, received on a separate connection."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import Any

import asyncpg

from rowlock.errors import StoreError, StoreUnavailable
from rowlock.storage.contract import Wake
from rowlock.storage.postgres.connection import BUSY_SECONDS, SQL, Connections, translated_errors

CHANNEL = "rowlock"
KEEPALIVE_SECONDS = 30.0
RING_GAP_SECONDS = 0.002  # pause between hints of a busy producer: the first is sent at once, the next ones merged


class Notifier:
    """Sends hints after commits on a separate connection, so that no verb waits for them.

    Hints that come while one is being sent are merged into the next.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._due: set[str] = set()
        self._ringer: asyncio.Task[None] | None = None
        connections.on_read_only.add(self._hang_up)  # a hint through a demoted server reaches no listener

    def ring(self, queues: Set[str]) -> None:
        self._due |= queues
        if self._connections.closed:
            return  # called by the last verb to end: nothing would close a connection opened now
        if self._due and (self._ringer is None or self._ringer.done()):
            self._ringer = asyncio.create_task(self._ring())

    async def _ring(self) -> None:
        while self._due:
            queues, self._due = list(self._due), set()
            try:
                await self._send(queues)
            except StoreError:
                self._hang_up()
                return  # the hint is lost; polling finds the job
            await asyncio.sleep(RING_GAP_SECONDS)

    async def _send(self, queues: list[str]) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connections.direct()
        with translated_errors(self._connections.url):
            await self._connection.fetch(SQL["wake"], queues, timeout=BUSY_SECONDS)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        ringer = self._ringer
        try:
            if ringer is not None and not ringer.done():
                await asyncio.wait([ringer], timeout=1.0)
        finally:
            if ringer is not None and not ringer.done():
                ringer.cancel()
                await asyncio.wait([ringer])  # it may be connecting: close its connection after its end
            self._hang_up()


async def listen(connections: Connections, url: str | None, wake: Wake) -> None:
    """Calls `wake` on every hint until cancelled; raises StoreUnavailable if hints are unavailable or end."""
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

    connections.on_read_only.add(ended.set)
    try:
        connection.add_termination_listener(lambda _: ended.set())
        with translated_errors(connections.url):
            await connection.add_listener(CHANNEL, on_hint)
            wake("queue", "*")  # jobs enqueued before this listened
            while not ended.is_set():
                try:
                    async with asyncio.timeout(KEEPALIVE_SECONDS):
                        await ended.wait()
                except TimeoutError:
                    # A half-open socket reports nothing: a query detects it, so that the listener is replaced.
                    await connection.execute("SELECT 1", timeout=KEEPALIVE_SECONDS)
        raise StoreUnavailable(f"the notification connection to {connections.url} ended")
    finally:
        connections.on_read_only.discard(ended.set)
        connection.terminate()
