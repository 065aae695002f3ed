"""One connection: a request's head must be small and come soon, and what is not HTTP is answered in our own words."""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from typing import Any

import orjson
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from rowlock.settings import Settings
from rowlock.web.problem import MEDIA_TYPE, PROBLEMS


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with a limit on the size and the time of a request's line and headers, which it lacks."""

    settings: Settings  # set by `bounded`

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._in_head = True
        self._head_bytes = 0
        self._timer: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self._in_head
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            # A header is told when it is whole, so an endless one must be noticed by what has come in.
            self._head_bytes += len(data)
            if self._head_bytes > self.settings.http_header_bytes_max:
                self._refuse("headers_too_large")
            elif before:
                self._watch()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._unwatch()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.settings.http_header_bytes_max:
            self._refuse("headers_too_large")
            return
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse("malformed_request")

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.settings.http_header_seconds, self._late)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self._in_head and not self.transport.is_closing():
            if self._head_bytes:
                self._refuse("request_timeout")
            else:
                self.transport.close()

    def _refuse(self, code: str) -> None:
        """Answer before there is a request that anyone could answer, and hang up."""
        kind = PROBLEMS[code]
        told = {"type": f"urn:rowlock:problem:{code}", "title": kind.title, "status": kind.status, "code": code}
        body = orjson.dumps(told | {"detail": kind.title})
        head = [
            STATUS_LINE[kind.status],
            b"content-type: %b\r\n" % MEDIA_TYPE.encode(),
            b"content-length: %d\r\n" % len(body),
            b"connection: close\r\n\r\n",
        ]
        self.transport.write(b"".join(head) + body)
        self.transport.close()


def bounded(limits: Settings) -> type[Connection]:
    """The protocol with these limits: uvicorn makes its instances itself."""
    return type("BoundedConnection", (Connection,), {"settings": limits})
