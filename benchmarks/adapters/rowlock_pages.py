"""The overview page on a full store: time to the first byte, size, and the cost of open pages."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

from benchmarks.adapters.rowlock_http import answering, free_port, running
from rowlock.app import Rowlock
from rowlock.control import tokens
from rowlock.storage.access import Role
from rowlock.tokens import new_token

_SHARED_SECONDS = 2.2  # after this time a read is no longer shared
_AGAIN_SECONDS = 2.0  # between two refreshes of an open page while many events arrive
_WARM = 3
_HEAD_SECONDS_MAX = 30.0


async def measure(app: Rowlock, app_name: str, url: str, asked: int) -> dict[str, Any]:
    """Return milliseconds to the first byte, with a read of the store and with a shared read; bytes with all assets."""
    async with _Site(app, app_name, url) as site:
        for _ in range(_WARM):
            await site.get("/")
        fresh, again = [], []
        for _ in range(asked):
            await asyncio.sleep(_SHARED_SECONDS)
            fresh.append((await site.get("/"))[0])
            again.append((await site.get("/"))[0])
        page = (await site.get("/"))[1]
        assets = re.findall(rb'"(/assets/[^"]+)"', page)
        weight = len(page) + sum([len((await site.get(each.decode()))[1]) for each in assets])
    fresh.sort()
    again.sort()
    middle = len(fresh) // 2
    return {
        "first_byte_ms": fresh[middle],
        "first_byte_max_ms": fresh[-1],
        "shared_ms": again[middle],
        "page_kb": len(page) / 1_000,
        "weight_kb": weight / 1_000,
    }


async def stay_open(app: Rowlock, app_name: str, url: str, pages: int, seconds: int) -> dict[str, Any]:
    """Keep this many pages open for this long; each listens to events and refreshes itself."""
    async with _Site(app, app_name, url) as site:
        await site.get("/")
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(pages):
                group.create_task(site.page(until, _AGAIN_SECONDS * number / pages))
        return {"fetched": site.fetched}


class _Site:
    def __init__(self, app: Rowlock, app_name: str, url: str) -> None:
        self._app = app
        self._port = free_port()
        command = ["-m", "rowlock", "serve", "--app", app_name, "--database", url, "--port", str(self._port)]
        self._server = running(command)
        self.fetched = 0

    async def __aenter__(self) -> _Site:
        self._token, record = new_token("benchmark", Role.ADMIN)
        await tokens.add(self._app.store, record)
        self._server.__enter__()
        await answering(self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.__exit__(None, None, None)

    async def get(self, path: str) -> tuple[float, bytes]:
        """Return milliseconds to the first byte, on an open connection, and the body."""
        reader, writer = await self._asking()
        began = time.perf_counter()
        self._ask(writer, path)
        first = await reader.readexactly(1)
        took = (time.perf_counter() - began) * 1_000
        async with asyncio.timeout(_HEAD_SECONDS_MAX):
            head = first + await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"{path} was answered with {head[:200]!r}")
            length = re.search(rb"content-length: (\d+)", head)
            assert length is not None
            body = await reader.readexactly(int(length[1]))
        writer.close()
        return took, body

    async def page(self, until: float, delay_seconds: float) -> None:
        """Do what a browser does with an open page."""
        await asyncio.sleep(delay_seconds)
        reader, writer = await self._asking()
        self._ask(writer, "/api/v1/events")
        listening = asyncio.create_task(_swallow(reader))
        while time.monotonic() < until:
            await self.get("/")
            self.fetched += 1
            await asyncio.sleep(_AGAIN_SECONDS)
        listening.cancel()
        writer.close()

    async def _asking(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, limit=1_000_000)

    def _ask(self, writer: asyncio.StreamWriter, path: str) -> None:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\ncookie: rowlock_session={self._token}\r\n\r\n".encode())


async def _swallow(reader: asyncio.StreamReader) -> None:
    while await reader.read(65_536):
        pass


__all__ = ["measure", "stay_open"]
