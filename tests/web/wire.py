"""A raw connection, for requests that no client would send."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rowlock.http.problem import PROBLEMS
from web.site import Site

SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def problem(self, *codes: str) -> None:
        """Assert that the response is a problem of the API, with one of the given codes, if any."""
        assert self.headers["content-type"] == "application/problem+json", self
        told = self.json()
        assert PROBLEMS[told["code"]].status == self.status == told["status"], self
        assert not codes or told["code"] in codes, self


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send, though the other side may have hung up."""
        with contextlib.suppress(OSError):
            self.writer.write(data)
            await self.writer.drain()

    async def answer(self, seconds: float = SECONDS, *, method: str = "GET") -> Answer | None:
        """The next answer; None where the connection was closed without one."""
        try:
            async with asyncio.timeout(seconds):
                return await self._answer(method)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def _answer(self, method: str) -> Answer:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        version, status, *_ = first.split(" ")
        assert version == "HTTP/1.1", first
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        assert len(headers) == len(lines), f"a header comes twice: {lines}"
        if int(status) == 100:
            return Answer(100, headers, b"")
        if method == "HEAD" or int(status) == 304:
            return Answer(int(status), headers, b"")
        return Answer(int(status), headers, await self._body(headers))

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return await self.reader.readexactly(int(headers["content-length"]))
        parts = []
        while size := int(await self.reader.readline(), 16):
            parts.append(await self.reader.readexactly(size))
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return b"".join(parts)

    async def closed(self, seconds: float = SECONDS) -> None:
        """Wait until the other side has hung up."""
        async with asyncio.timeout(seconds):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65_536):
                    pass


@asynccontextmanager
async def wire(port: int) -> AsyncIterator[Wire]:
    """A connection to a server; cut off at the end, whatever is under way."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def everything(line: Wire, more_seconds: float) -> list[Answer]:
    """Return all responses until the server closes the connection or is silent for this many seconds."""
    answers: list[Answer] = []
    try:
        while (answer := await line.answer(more_seconds if answers else SECONDS)) is not None:
            answers.append(answer)
    except TimeoutError:
        assert answers, "neither answered nor closed"
    return answers


async def not_refused(port: int, attacks: Mapping[str, bytes]) -> dict[str, str]:
    """What was neither refused in our words nor cut off, by name; after each, someone else is served."""
    places = asyncio.Semaphore(16)  # mostly they wait for what does not come

    async def attack(name: str, data: bytes) -> str | None:
        async with places:
            wrong = await _wrong(port, data)
            async with wire(port) as other:
                await other.send(b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n")
                served = await other.answer()
                assert served is not None, f"nobody answers after {name}"
                assert served.status == 200
        return wrong

    found = await asyncio.gather(*(attack(name, data) for name, data in attacks.items()))
    return {name: wrong for name, wrong in zip(attacks, found, strict=True) if wrong is not None}


async def _wrong(port: int, data: bytes) -> str | None:
    """What is wrong with the answers to these bytes; None where they are refused or cut off."""
    async with wire(port) as line:
        sending = asyncio.create_task(line.send(data))
        try:
            for answer in await everything(line, 1.5):
                assert 400 <= answer.status < 500, answer
                answer.problem()
        except (AssertionError, KeyError, ValueError) as error:
            return str(error)[:300]
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    return None


def head(
    site: Site, method: str = "GET", path: str = "/api/v1/queue", token: str | None = "admin", **more: str
) -> bytes:
    """The head of a request of ours; `content_length` and the like are further headers."""
    lines = [f"{method} {path} HTTP/1.1", "host: test"]
    if token is not None:
        lines.append(f"authorization: Bearer {site.tokens[token]}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def enqueue(site: Site, token: str | None = "admin", **more: str) -> bytes:
    """The head of a request that enqueues."""
    return head(site, "POST", "/api/v1/queue/enqueue", token, **{"content_type": "application/json"} | more)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def body_of(size: int) -> bytes:
    """Return a job of this many bytes."""
    body = b'{"type":"ping"}'
    return body + b" " * (size - len(body))
