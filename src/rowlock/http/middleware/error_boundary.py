"""The error boundary, around all other layers but CORS: every answer is well-formed, safe and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rowlock.errors import RowlockError
from rowlock.http.middleware.auth import path_of
from rowlock.http.middleware.body_limits import hear_out, is_upload
from rowlock.http.problem import Problem, logged
from rowlock.observe import logs
from rowlock.observe.redaction import Redactor
from rowlock.settings import Settings

Tell = Callable[[Problem, Scope], Response]  # renders an error, as JSON or as a page

EVENTS = "/api/v1/events"

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class ErrorBoundary:
    """Turns errors into problem responses, adds the security headers, and limits the time and number of requests."""

    def __init__(self, inner: ASGIApp, settings: Settings, redact: Redactor, tell: Tell) -> None:
        self._inner = inner
        self._tell = tell
        self._seconds = settings.http_request_seconds
        self._most = settings.http_requests_max
        self._redact = redact
        self._here = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _other(scope, receive, send)
            return
        begun, whole = False, not _announces_body(scope)

        async def receive_on() -> Message:
            nonlocal whole
            message = await receive()
            whole = whole or not message.get("more_body", False)
            return message

        async def send_on(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = _with_ours(message.get("headers", ()))
                if not whole:  # the rest of the body stays unread: the connection cannot be reused
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        listens = path_of(scope) == EVENTS
        self._here += not listens
        try:
            if self._here > self._most:
                raise Problem("too_many_requests", f"{self._most:,} requests are in progress", {"retry-after": "1"})
            # A file may take long to arrive: its route limits the time of each piece.
            async with asyncio.timeout(None if listens or is_upload(scope) else self._seconds):
                await self._inner(scope, receive_on, send_on)
        except Exception as error:
            problem = self._problem(error, scope)
            if begun:
                raise  # part of the answer is sent: the connection must break, or it would pass for a complete one
            if not whole and problem.status != 408:
                await hear_out(scope, receive_on)
            await self._tell(problem, scope)(scope, receive, send_on)
        finally:
            self._here -= not listens

    def _problem(self, error: Exception, scope: Scope) -> Problem:
        if isinstance(error, Problem):
            return error
        if isinstance(error, TimeoutError):
            return Problem("timeout", f"the response took longer than {self._seconds:g} seconds")
        if isinstance(error, RowlockError):
            return logged(error, scope["path"], self._redact)
        log: Any = logs.get()
        log.error("http.failed", method=scope["method"], path=scope["path"], exc_info=error)
        return Problem("internal_error", "unexpected error; see the server's log")


def _with_ours(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return these headers plus those of HEADERS that the answer does not set itself, as pages do."""
    given = list(headers)
    names = {name for name, _ in given}
    return given + [(name, value) for name, value in HEADERS if name not in names]


def _announces_body(scope: Scope) -> bool:
    """Return whether a body follows on an HTTP/1 connection; from HTTP/2 on, bodies do not block a connection."""
    return scope["http_version"] in ("1.0", "1.1") and any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )


async def _other(scope: Scope, receive: Receive, send: Send) -> None:
    """Acknowledge lifespan events; refuse WebSockets."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    await send({"type": "websocket.close", "code": 1008})
