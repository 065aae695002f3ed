"""An HTTP connection: limits the size and time of a request's head, and answers malformed HTTP with problem+json."""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from typing import Any

import orjson
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from rowlock.http.middleware.error_boundary import HEADERS
from rowlock.http.problem import MEDIA_TYPE, PROBLEMS
from rowlock.settings import Settings

_STUCK_SECONDS = 30.0
_VERSIONS = ("1.0", "1.1")


class Refused(Exception):
    """Raised in a parser callback to stop the parser; the connection answers with an error and closes."""


class Connection(HttpToolsProtocol):
    """uvicorn's protocol plus limits on the size and time of everything but the body, and on clients that do not read.

    A request is idle ─first byte─▶ head ─end of headers─▶ body ─end─▶ idle; each step is progress.
    """

    settings: Settings  # set by `bounded`

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._in_head = self._in_body = False
        self._progress = False
        self._loose_bytes = 0  # since the last progress: part of a header or trailer, or empty lines
        self._problem = "malformed_request"
        self._head_timer: TimerHandle | None = None
        self._stuck_timer: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._progress = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        self._loose_bytes = 0 if self._progress else self._loose_bytes + len(data)
        if self._loose_bytes > self.settings.http_header_bytes_max:
            self._refuse("headers_too_large")
        elif self._in_head or not (self._in_body or self._progress):
            self._watch()

    # -- the steps of a request --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._progress = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # headers after the body are trailers: ignored
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body, self._progress = False, True, True
        self._unwatch()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.settings.http_header_bytes_max:
            self._problem = "headers_too_large"
            raise Refused
        if self.parser.get_http_version() not in _VERSIONS:
            raise Refused
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body, self._progress = False, True
        super().on_message_complete()

    # -- time --------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.settings.http_header_seconds, self._late)

    def _unwatch(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _late(self) -> None:
        self._head_timer = None
        if self._in_head:
            self._refuse("request_timeout")
        elif self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def pause_writing(self) -> None:
        """Abort the connection if the write buffer stays full for 30 s; closing it would wait for the client."""
        super().pause_writing()
        if self._stuck_timer is None:
            self._stuck_timer = self.loop.call_later(_STUCK_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck_timer is not None:
            self._stuck_timer.cancel()
            self._stuck_timer = None

    # -- refusing ----------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._problem)

    def _refuse(self, code: str) -> None:
        """Write an error before the request reaches the application, and close the connection."""
        if self.transport.is_closing():
            return
        kind = PROBLEMS[code]
        problem = {"type": f"urn:rowlock:problem:{code}", "title": kind.title, "status": kind.status, "code": code}
        body = orjson.dumps(problem | {"detail": kind.title})
        head = [
            STATUS_LINE[kind.status],
            b"content-type: %b\r\n" % MEDIA_TYPE.encode(),
            b"content-length: %d\r\n" % len(body),
            b"cache-control: no-store\r\n",
            *(b"%b: %b\r\n" % header for header in HEADERS),
            b"connection: close\r\n\r\n",
        ]
        self.transport.write(b"".join(head) + body)
        self.transport.close()


def bounded(limits: Settings) -> type[Connection]:
    """Return a protocol class with these limits: uvicorn takes a class and creates the instances."""
    return type("BoundedConnection", (Connection,), {"settings": limits})
