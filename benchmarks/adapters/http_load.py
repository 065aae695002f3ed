"""Load on an HTTP server: keep-alive connections that repeat a request as soon as its response arrives."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import cast

_HEAD_END = b"\r\n\r\n"


@dataclass(slots=True)
class Load:
    """A number of requests, shared by a number of connections."""

    host: str
    port: int
    request: bytes
    left: int
    wanted: bytes = b"HTTP/1.1 201"
    seconds: list[float] = field(default_factory=list)
    bad: list[bytes] = field(default_factory=list)

    async def run(self, connections: int) -> float:
        """Send all requests; return how long it took."""
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        made = [
            await loop.create_connection(lambda: _Connection(self), self.host, self.port) for _ in range(connections)
        ]
        await asyncio.gather(*(connection.done for _, connection in made))
        took = time.perf_counter() - began
        for transport, _ in made:
            transport.close()
        return took


class _Connection(asyncio.Protocol):
    """A minimal HTTP/1.1 client, so that the client is not what is measured."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._data = b""
        self._sent = 0.0
        self._transport: asyncio.Transport | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def _next(self) -> None:
        if self._load.left <= 0:
            if not self.done.done():
                self.done.set_result(None)
            return
        self._load.left -= 1
        self._sent = time.perf_counter()
        assert self._transport is not None
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(_HEAD_END)
        if not found:
            return
        start = head.lower().find(b"content-length: ") + 16
        if len(body) < int(head[start : start + 9].split(b"\r")[0]):
            return
        self._load.seconds.append(time.perf_counter() - self._sent)
        if not head.startswith(self._load.wanted):
            self._load.bad.append(self._data)
        self._data = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server hung up"))
