"""Idempotency-Key: a POST that is sent again with the same key is answered again, not done again.

A job that such a request enqueues gets its id before anything else happens. When the server dies between the job's
commit and the answer, the next try finds the job under that id; it cannot make a second one. Keys are recorded only of
requests that a route takes, from callers who may ask there.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rowlock.app import Rowlock
from rowlock.errors import StoreError
from rowlock.ids import uuid7
from rowlock.observe import logs
from rowlock.storage.access import RequestAnswer, RequestState
from rowlock.web.answer import JSON
from rowlock.web.body import is_upload
from rowlock.web.guard import CALLER, Caller, Needs
from rowlock.web.problem import MEDIA_TYPE, Problem

RESERVED = "rowlock.request"
_KEY = re.compile(r"[!-~]{1,200}")
_KEPT_BYTES_MAX = 262_144
_RELEASE_SECONDS = 2.0
_FORGOTTEN = (401, 403, 405, 408, 415, 429)  # such an answer says nothing about the request itself

Find = Callable[[Scope], Needs | None]  # what the route that takes a request asks of its caller; None: no route does


class Once:
    """Answers a repeated request from what was kept of the first."""

    def __init__(self, inner: ASGIApp, app: Rowlock, find: Find) -> None:
        self._inner = inner
        self._app = app
        self._find = find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = [value for name, value in scope["headers"] if name == b"idempotency-key"]
        # A file goes by without: it is not kept to be compared, and its SHA-256 tells when it comes again.
        if not given or is_upload(scope) or not await self._is_taken(scope):
            await self._inner(scope, receive, send)
            return
        key, fingerprint = _identity(scope, _checked(given))
        settings, store = self._app.settings, self._app.store
        known = await store.begin_request(
            key,
            fingerprint,
            uuid7(),
            keep_seconds=settings.http_idempotency_hours * 3_600,
            stale_seconds=settings.http_request_seconds * 2,
        )
        if known.state in (RequestState.NEW, RequestState.BROKEN_OFF):
            scope[RESERVED] = known
            await self._first(key, known.begun_at, scope, receive, send)
        else:
            await _again(known)(scope, receive, send)

    async def _is_taken(self, scope: Scope) -> bool:
        """Whether a route takes this POST, and from this caller: else there is nothing to do once."""
        if scope["method"] != "POST" or CALLER not in scope:
            return False
        needs = self._find(scope)
        if needs is None:
            return False
        try:
            await needs(Request(scope))
        except Problem:
            return False
        return True

    async def _first(self, key: str, begun_at: datetime, scope: Scope, receive: Receive, send: Send) -> None:
        """Do it, and keep the answer before it goes out."""
        start: Message = {}
        parts: list[bytes] = []

        async def keep(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            parts.append(message.get("body", b""))
            if message.get("more_body", False):
                return
            body = b"".join(parts)
            await self._keep(key, begun_at, start["status"], body)
            await send(start)
            await send({"type": "http.response.body", "body": body})

        try:
            await self._inner(scope, receive, keep)
        except Exception:
            # One that was cancelled is not released: its job may be on its way still, with those of others. It is taken
            # over when it is stale. Nor is a store waited for that stands still or fails.
            with suppress(TimeoutError, StoreError):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self._app.store.release_request(key, begun_at)
            raise

    async def _keep(self, key: str, begun_at: datetime, status: int, body: bytes) -> None:
        """Keep the answer, or let the next try find out what came of this one."""
        store = self._app.store
        try:
            if status < 500 and status not in _FORGOTTEN and len(body) <= _KEPT_BYTES_MAX:
                await store.end_request(key, begun_at, status, body.decode())
            else:
                # A store that failed may have recorded the job all the same: the next try looks for it first.
                await store.release_request(key, begun_at)
        except StoreError as error:
            # What was done is done: the answer goes out all the same, and the key is taken over when it is stale.
            logs.get().warning("http.answer_not_kept", reason=self._app.redact.text(str(error)))


def reserved(request: Request) -> RequestAnswer | None:
    """What is set aside for a request with an Idempotency-Key."""
    found: RequestAnswer | None = request.scope.get(RESERVED)
    return found


def _again(known: RequestAnswer) -> Response:
    if known.state is RequestState.RUNNING:
        return Problem("idempotency_in_progress", "a request with this key is being answered; try again").response()
    if known.state is RequestState.OTHER:
        return Problem("idempotency_key_reused", "use a new key for every new request").response()
    assert known.status is not None
    media_type = MEDIA_TYPE if known.status >= 400 else JSON
    headers = {"idempotency-replayed": "true", "cache-control": "no-store"}
    return Response(known.body, known.status, headers, media_type)


def _checked(given: list[bytes]) -> str:
    key = given[0].decode("latin-1").strip()
    if len(given) > 1 or not _KEY.fullmatch(key):
        raise Problem("validation_failed", "Idempotency-Key must be one text of 1 to 200 ASCII characters, no spaces")
    return key


def _identity(scope: Scope, given: str) -> tuple[str, str]:
    """The key, which belongs to its token, and what the request asks for."""
    caller: Caller = scope[CALLER]
    key = hashlib.sha256(f"{caller.token.id}\n{given}".encode()).hexdigest()
    asked = b"\n".join([scope["path"].encode(), scope["query_string"], scope["rowlock.body"]])
    return key, hashlib.sha256(asked).hexdigest()
