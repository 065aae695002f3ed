"""A small service on a real port: it records its requests, and responds as the test says."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float  # when its last byte was here, by the clock of this process

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int = 200
    json: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None  # instead of JSON
    cut_at: int | None = None  # the connection is cut after this many bytes of the response
    wait: asyncio.Event | None = None  # before it answers
    byte_seconds: float = 0.0  # between one byte of it and the next

    def encoded(self) -> bytes:
        body = json.dumps(self.json if self.json is not None else {}).encode() if self.body is None else self.body
        lines = [f"HTTP/1.1 {self.status} -", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


Answering = Callable[[Asked], Reply | Awaitable[Reply]]


class Service:
    """What it was asked is in `asked`; scripted replies come first, then those of `answer`."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.script: deque[Reply] = deque()
        self.answer: Answering = lambda asked: Reply()
        self.url = ""
        self.most_at_once = 0
        self.connections = 0
        self._at_once = 0
        self._news = asyncio.Event()
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    async def came(self, count: int) -> Asked:
        """The request of this number, counted from 1, when it has come."""
        async with asyncio.timeout(60):
            while len(self.asked) < count:
                self._news.clear()
                await self._news.wait()
        return self.asked[count - 1]

    def paths(self) -> list[str]:
        return [f"{asked.method} {asked.path}" for asked in self.asked]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[writer] = task
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client closed the connection
        finally:
            del self._connections[writer]
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        asked = Asked(method, path, headers, body, time.monotonic())
        self.asked.append(asked)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self._news.set()
        try:
            found = self.script.popleft() if self.script else self.answer(asked)
            reply = found if isinstance(found, Reply) else await found
            if reply.wait is not None:
                await reply.wait.wait()
        finally:
            self._at_once -= 1
        encoded = reply.encoded()
        if reply.byte_seconds:
            for byte in encoded:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(reply.byte_seconds)
            return True
        writer.write(encoded if reply.cut_at is None else encoded[: reply.cut_at])
        await writer.drain()
        return reply.cut_at is None

    async def hang_up(self) -> None:
        tasks = list(self._connections.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def serving() -> AsyncIterator[Service]:
    service = Service()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        server.close()
        await service.hang_up()
        await server.wait_closed()
