"""A failing network between a client and its database: a proxy in a thread of the test's process.

client ──▶ proxy ──▶ PostgreSQL, MongoDB        cut · slow · silent · the reply to a commit lost
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self

from faults.databases import MongoDatabase, PostgresDatabase

_CHUNK_BYTES = 65_536
_STARTUP_HEADER_BYTES = 4
_HEADER_BYTES = 5
_CHANGE = re.compile(rb"rowlock\.\w+\(|\b(?:INSERT|UPDATE|DELETE)\b")  # a function of the schema, or a change itself
_ENCRYPT = {80877103, 80877104}  # "may we speak TLS (GSSAPI)?", answered by one bare byte


class Connection:
    """One client's connection: both sockets."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._server: asyncio.StreamWriter | None = None
        self._silent = False
        self._executed = False  # the client has sent a change, and its answer has not passed yet
        self._wire = proxy.wire()

    async def run(self) -> None:
        try:
            server_reader, self._server = await asyncio.open_connection("127.0.0.1", self._proxy.target)
        except OSError:
            self.cut()
            return
        halves = [
            asyncio.ensure_future(self._requests(self._reader, self._server)),
            asyncio.ensure_future(self._replies(server_reader, self._writer)),
        ]
        try:
            await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for half in halves:
                half.cancel()
            await asyncio.gather(*halves, return_exceptions=True)
            self.cut()

    def silence(self) -> None:
        """Drop everything from now on, without closing."""
        self._silent = True

    def cut(self) -> None:
        """Reset both sockets."""
        for writer in (self._writer, self._server):
            if writer is not None and writer.transport is not None:
                writer.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            executes = self._wire.executes(data)
            if executes and self._proxy.decides("request"):
                return  # the request never arrives
            self._executed = self._executed or executes
            await self._pass(data, writer)

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if self._wire.answers(data) and self._executed:
                self._executed = False
                # The request has been committed.
                if self._proxy.decides("reply"):
                    return
            await self._pass(data, writer)

    async def _pass(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        if self._proxy.delay_seconds:
            await asyncio.sleep(self._proxy.delay_seconds)
        if not self._silent:
            writer.write(data)
            await writer.drain()


class Wire(Protocol):
    """Parses the traffic between a client and its database."""

    def executes(self, data: bytes) -> bool:
        """Whether this piece of the client's data contains a request that commits."""

    def answers(self, data: bytes) -> bool:
        """Whether this piece completes an answer of the server."""


class PostgresWire:
    def __init__(self) -> None:
        self._asked = Messages(first_is_startup=True)
        self._answered = Messages(first_is_startup=False)

        self._changes = set[bytes]()  # the prepared statements that write
        self._bound = b""

    def executes(self, data: bytes) -> bool:
        found = [self._writes(kind, body) for kind, body in self._asked.complete(data)]  # every message is looked at
        return any(found)

    def answers(self, data: bytes) -> bool:
        return "Z" in [kind for kind, _ in self._answered.complete(data)]  # ready for the next query

    def _writes(self, kind: str, body: bytes) -> bool:
        if kind == "?":
            self._answered.bare_bytes += 1
        elif kind == "P":  # parse: a name and its statement
            name, text, *_ = body.split(b"\0")
            (self._changes.add if _CHANGE.search(text) else self._changes.discard)(name)
        elif kind == "B":  # bind: a portal and the name of its statement
            self._bound = body.split(b"\0", 2)[1]
        return kind == "E" and self._bound in self._changes


class MongoWire:
    _WRITES = (b"insert", b"update", b"delete", b"findAndModify")

    def __init__(self) -> None:
        self._asked = self._answered = b""

    def executes(self, data: bytes) -> bool:
        messages, self._asked = self._complete(self._asked + data)
        return any(map(self._commits, messages))

    def answers(self, data: bytes) -> bool:
        messages, self._answered = self._complete(self._answered + data)
        return bool(messages)

    def _complete(self, data: bytes) -> tuple[list[bytes], bytes]:
        messages = []
        while len(data) >= 4 and len(data) >= (length := int.from_bytes(data[:4], "little")):
            messages.append(data[:length])
            data = data[length:]
        return messages, data

    def _commits(self, message: bytes) -> bool:
        # Header, flags, kind of the first section, length of its document, type of its first field.
        command = message[16 + 4 + 1 + 4 + 1 :].split(b"\0", 1)[0]
        return command == b"commitTransaction" or (command in self._WRITES and b"\x08autocommit\0" not in message)


class Messages:
    """Parses one direction of PostgreSQL's protocol from pieces of any size."""

    def __init__(self, *, first_is_startup: bool) -> None:
        self.bare_bytes = 0
        self._startup = first_is_startup
        self._rest = b""

    def complete(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        """Yield kind and body of the messages that end in this piece; the kind is `?` for an encryption request."""
        self._rest += data
        if self.bare_bytes:
            self._rest, self.bare_bytes = self._rest[self.bare_bytes :], 0
        while len(self._rest) >= _HEADER_BYTES:
            at = 0 if self._startup else 1
            length = int.from_bytes(self._rest[at : at + _STARTUP_HEADER_BYTES]) + at
            if len(self._rest) < length:
                return
            message, self._rest = self._rest[:length], self._rest[length:]
            if not self._startup:
                yield chr(message[0]), message[_HEADER_BYTES:]
            elif int.from_bytes(message[4:8]) in _ENCRYPT:
                yield "?", b""
            else:
                self._startup = False


def _lots(rng: random.Random, lost: int, of: int) -> Iterator[bool]:
    """Yield True `lost` times in each run of `of`, at random places.

    Not at regular ones: a client that sends as many statements for each new connection would lose the same every time.
    """
    while True:
        yield from rng.sample([True] * lost + [False] * (of - lost), of)


class Proxy:
    """Listens on its own port and forwards to `target` until the test makes it fail."""

    def __init__(self, target: int, wire: Callable[[], Wire] = PostgresWire) -> None:
        self.target = target
        self.wire = wire
        self.port = 0
        self.delay_seconds = 0.0
        self.refusing = False
        self.counts = {"request": 0, "reply": 0}
        self._lots: dict[str, Iterator[bool]] = {}
        self._connections: set[Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def lose(self, rng: random.Random, *, requests: tuple[int, int], replies: tuple[int, int]) -> None:
        """Cut connections before a statement arrives, or after its commit and before its reply.

        `replies=(2, 5)` loses two of every five: chance decides which, never how many.
        """
        self._lots = {"request": _lots(rng, *requests), "reply": _lots(rng, *replies)}

    def lose_nothing(self) -> None:
        self._lots = {}

    def cut(self) -> None:
        """Reset every connection."""
        self._in_loop(lambda: [connection.cut() for connection in list(self._connections)])

    def silence(self) -> None:
        """Make every existing connection half-open: it stays open and passes nothing."""
        self._in_loop(lambda: [connection.silence() for connection in list(self._connections)])

    def decides(self, what: str) -> bool:
        """Decide whether to lose this request or reply."""
        lost = what in self._lots and next(self._lots[what])
        self.counts[what] += lost
        return lost

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, reader, writer)
        if self.refusing:
            connection.cut()
            return
        self._connections.add(connection)
        try:
            with contextlib.suppress(OSError):
                await connection.run()
        finally:
            self._connections.discard(connection)

    def _in_loop(self, work: Callable[[], object]) -> None:
        async def run() -> None:
            work()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def __enter__(self) -> Self:
        self._thread.start()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self._server = self._run(asyncio.start_server(self._accept, sock=listener))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._in_loop(self._server.close)
        self.cut()
        self._run(self._settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _settle(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.wait(others, timeout=5) if others else None


def proxy_of(database: PostgresDatabase | MongoDatabase) -> Proxy:
    """Start a proxy in front of this database."""
    return Proxy(database.port, MongoWire if isinstance(database, MongoDatabase) else PostgresWire)
