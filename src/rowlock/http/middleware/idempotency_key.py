"""Idempotency-Key: a POST repeated with the same key gets the stored answer and is not executed again.

The id of the job that such a request enqueues is reserved first. If the server dies between the job's commit and the
answer, a retry finds the job by that id and cannot enqueue a second one. Keys are recorded only for requests that match
a route and whose caller has the role for it.
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
from rowlock.control import requests
from rowlock.errors import StoreError
from rowlock.http.json_response import JSON
from rowlock.http.middleware.auth import CALLER, Caller, Needs
from rowlock.http.middleware.body_limits import is_upload
from rowlock.http.problem import MEDIA_TYPE, Problem
from rowlock.ids import uuid7
from rowlock.observe import logs
from rowlock.storage.access import RequestAnswer, RequestState

RESERVED = "rowlock.request"
_KEY = re.compile(r"[!-~]{1,200}")
_KEPT_BYTES_MAX = 262_144
_RELEASE_SECONDS = 2.0
_FORGOTTEN = (401, 403, 405, 408, 415, 429)  # not stored: such an answer says nothing about the request itself

Find = Callable[[Scope], Needs | None]  # returns the Needs of the route for a request; None if no route matches


class Once:
    """Middleware that answers a repeated request with the stored answer of the first."""

    def __init__(self, inner: ASGIApp, app: Rowlock, find: Find) -> None:
        self._inner = inner
        self._app = app
        self._find = find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = [value for name, value in scope["headers"] if name == b"idempotency-key"]
        # Uploads ignore the key: files are not kept for comparison, and the SHA-256 detects a repeated one.
        if not given or is_upload(scope) or not await self._is_taken(scope):
            await self._inner(scope, receive, send)
            return
        key, fingerprint = _identity(scope, _checked(given))
        settings, store = self._app.settings, self._app.store
        known = await requests.begin(
            store,
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
        """Return whether a route matches this POST and accepts its caller; otherwise the key is not recorded."""
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
        """Run the request, and store the answer before sending it."""
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
            # A cancelled request is not released: its job may still be committed in a batch with others. A retry takes
            # the key over when it is stale. A store that hangs or fails delays the error by 2 s at most.
            with suppress(TimeoutError, StoreError):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await requests.release(self._app.store, key, begun_at)
            raise

    async def _keep(self, key: str, begun_at: datetime, status: int, body: bytes) -> None:
        """Store the answer, or release the key so that a retry runs the request again."""
        store = self._app.store
        try:
            if status < 500 and status not in _FORGOTTEN and len(body) <= _KEPT_BYTES_MAX:
                await requests.end(store, key, begun_at, status, body.decode())
            else:
                # A store that failed may have recorded the job anyway: a retry looks for it first.
                await requests.release(store, key, begun_at)
        except StoreError as error:
            # The request has taken effect: its answer is sent anyway, and a retry takes the key over when it is stale.
            logs.get().warning("http.answer_not_kept", reason=self._app.redact.text(str(error)))


def reserved(request: Request) -> RequestAnswer | None:
    """Return the record of a request's Idempotency-Key, which reserves the job id; None without a key."""
    found: RequestAnswer | None = request.scope.get(RESERVED)
    return found


def _again(known: RequestAnswer) -> Response:
    if known.state is RequestState.RUNNING:
        return Problem("idempotency_in_progress", "a request with this key is in progress; try again").response()
    if known.state is RequestState.OTHER:
        return Problem("idempotency_key_reused", "use a new key for each new request").response()
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
    """Return two SHA-256 digests: of token id and key, and of path, query and body."""
    caller: Caller = scope[CALLER]
    key = hashlib.sha256(f"{caller.token.id}\n{given}".encode()).hexdigest()
    asked = b"\n".join([scope["path"].encode(), scope["query_string"], scope["rowlock.body"]])
    return key, hashlib.sha256(asked).hexdigest()
