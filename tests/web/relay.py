"""A failing network between a client and a server: connections are cut, responses are lost."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 65_536


class Relay:
    """Listens on a port of its own and passes on to `target`, until told otherwise."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.url = ""
        self.asked = b""  # everything that clients have sent
        self.answers_to_lose = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers |= {writer, server_writer}
        halves = [
            asyncio.create_task(self._requests(reader, server_writer)),
            asyncio.create_task(self._answers(server_reader, writer)),
        ]
        await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
        for half in halves:
            half.cancel()
        await asyncio.gather(*halves, return_exceptions=True)
        for each in (writer, server_writer):
            each.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            self.asked += data
            writer.write(data)
            await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if self.answers_to_lose > 0:
                self.answers_to_lose -= 1
                return
            writer.write(data)
            await writer.drain()
