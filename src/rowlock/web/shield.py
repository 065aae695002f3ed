"""The shield: the outermost layer. Whatever happens inside, the answer is well-formed, safe and in time."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rowlock.errors import RowlockError, StoreError
from rowlock.observe import logs
from rowlock.observe.redact import Redactor
from rowlock.web.guard import path_of
from rowlock.web.problem import Problem, problem_of

EVENTS = "/api/v1/events"

_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Shield:
    """Turns errors into problems, adds the headers that every answer has, and ends what takes too long."""

    def __init__(self, inner: ASGIApp, request_seconds: float, redact: Redactor) -> None:
        self._inner = inner
        self._seconds = request_seconds
        self._redact = redact

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _other(scope, receive, send)
            return
        begun = False

        async def send_on(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        seconds = None if path_of(scope) == EVENTS else self._seconds
        try:
            async with asyncio.timeout(seconds):
                await self._inner(scope, receive, send_on)
        except Exception as error:
            problem = self._problem(error, scope)
            if begun:
                raise  # half an answer is out: the connection must break, so that nobody takes it for a whole one
            await problem.response()(scope, receive, send_on)

    def _problem(self, error: Exception, scope: Scope) -> Problem:
        if isinstance(error, Problem):
            return error
        if isinstance(error, TimeoutError):
            return Problem("timeout", f"the answer took longer than {self._seconds:g} seconds")
        log: Any = logs.get()
        if isinstance(error, RowlockError):
            if isinstance(error, StoreError):
                log.error("http.store_failed", path=scope["path"], reason=self._redact.text(str(error)))
            return problem_of(error)
        log.error("http.failed", method=scope["method"], path=scope["path"], exc_info=error)
        return Problem("internal_error", "something unexpected went wrong; the server's log has the reason")


async def _other(scope: Scope, receive: Receive, send: Send) -> None:
    """Lifespan needs nothing here; a WebSocket is refused."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    await send({"type": "websocket.close", "code": 1008})
