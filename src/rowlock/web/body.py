"""Bodies: received whole, in bounded size, time and number, before anything looks at them."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rowlock.settings import Settings
from rowlock.web.guard import OPEN, path_of
from rowlock.web.problem import Problem

_SMALL_BYTES = 65_536
_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")


class ClientGone(Exception):
    """The client has left before its request was whole: there is nobody to answer."""


class _Place:
    """One of the places for large bodies, if it is needed: held until the request is answered."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._held = False

    async def take(self) -> None:
        if self._held:
            return
        if self._places.locked():
            raise Problem("too_many_requests", "too many large bodies are here already; try again")
        await self._places.acquire()
        self._held = True

    async def __aenter__(self) -> _Place:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._held:
            self._places.release()


class Body:
    """Receives the body, or answers 408, 413, 415 or 429."""

    def __init__(self, inner: ASGIApp, settings: Settings) -> None:
        self._inner = inner
        self._bytes_max = settings.http_body_bytes_max
        self._seconds = settings.http_body_seconds
        self._large = asyncio.Semaphore(settings.http_bodies_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if path_of(scope) in OPEN:
            await self._inner(scope, receive, send)  # a stranger's body is not received at all
            return
        headers = {name: value for name, value in scope["headers"] if name.startswith(b"content-")}
        announced = headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > self._bytes_max:
            raise self._too_large()
        async with _Place(self._large) as place:
            try:
                body = await self._whole(receive, int(announced) if announced.isdigit() else 0, place)
            except ClientGone:
                return
            if body and scope["method"] in _WITH_BODY:
                kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
                if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
                    raise Problem("unsupported_media_type", "send the body as `Content-Type: application/json`")
            told = False

            async def replay() -> Message:
                nonlocal told
                if not told:
                    told = True
                    return {"type": "http.request", "body": body, "more_body": False}
                return await receive()

            scope["rowlock.body"] = body
            await self._inner(scope, replay, send)

    async def _whole(self, receive: Receive, announced: int, place: _Place) -> bytes:
        parts, size = list[bytes](), 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    if max(size, announced) > _SMALL_BYTES:
                        await place.take()
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._bytes_max:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return parts[0] if len(parts) == 1 else b"".join(parts)
        except TimeoutError:
            raise Problem("request_timeout", f"the body did not arrive within {self._seconds:g} seconds") from None

    def _too_large(self) -> Problem:
        return Problem("body_too_large", f"a body may have {self._bytes_max:,} bytes at most")
