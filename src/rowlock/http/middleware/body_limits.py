"""Receives bodies whole, with limits on size, time and number, before routes see them; uploads stream to theirs."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rowlock.dashboard.error_pages import is_page
from rowlock.http.middleware.auth import ASSETS, OPEN, SIGN_IN, SIGN_OUT, path_of
from rowlock.http.problem import Problem
from rowlock.settings import Settings

UPLOADS = {
    "/api/v1/imports/xlsx/upload": ("import_xlsx_bytes_max",),
    "/api/v1/imports/csv/upload": ("import_csv_bytes_max",),
    "/imports": ("import_xlsx_bytes_max", "import_csv_bytes_max"),
}
"""Upload paths, with the settings that limit their files. Their routes receive these bodies, piece by piece."""
FORM_BYTES = 65_536  # the limit on a form's content besides its file

_HEAR_SECONDS = 0.5
_HEAR_BYTES = 4_194_304
_SMALL_BYTES = 65_536
_STRANGER_BYTES = 8_192  # without authentication: enough to sign in with a token
_FORM = b"application/x-www-form-urlencoded"
_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")


def is_upload(scope: Scope) -> bool:
    """Return whether this request uploads a file."""
    return bool(scope["method"] == "POST" and path_of(scope) in UPLOADS)


def upload_bytes_max(scope: Scope, settings: Settings) -> int:
    """Return the size limit in bytes of files that this path accepts."""
    return max(int(getattr(settings, name)) for name in UPLOADS[path_of(scope)])


class ClientGone(Exception):
    """The client disconnected before its request was complete; no response can be sent."""


class _Place:
    """A slot for a large body, taken only if needed and held until the request is answered."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._held = False

    async def take(self) -> None:
        if self._held:
            return
        if self._places.locked():
            raise Problem("too_many_requests", "too many large bodies are being received; try again")
        await self._places.acquire()
        self._held = True

    async def __aenter__(self) -> _Place:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._held:
            self._places.release()


class Body:
    """Middleware that receives the body; raises Problem with 408, 413, 415 or 429."""

    def __init__(self, inner: ASGIApp, settings: Settings) -> None:
        self._inner = inner
        self._settings = settings
        self._bytes_max = settings.http_body_bytes_max
        self._seconds = settings.http_body_seconds
        self._large = asyncio.Semaphore(settings.http_bodies_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope)
        if path in OPEN or path.startswith(ASSETS) or (path in UPLOADS and scope["method"] != "POST"):
            await self._inner(scope, receive, send)  # takes no body, so none is received
            return
        if is_upload(scope):
            await self._upload(scope, receive, send)
            return
        headers = {name: value for name, value in scope["headers"] if name.startswith(b"content-")}
        announced = headers.get(b"content-length", b"")
        bytes_max = _STRANGER_BYTES if path in (SIGN_IN, SIGN_OUT) else self._bytes_max
        if announced.isdigit() and int(announced) > bytes_max:
            raise _too_large(bytes_max)
        async with _Place(self._large) as place:
            try:
                body = await self._whole(receive, bytes_max, int(announced) if announced.isdigit() else 0, place)
            except ClientGone:
                return
            if body and scope["method"] in _WITH_BODY:
                kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
                if is_page(scope):
                    if kind != _FORM:
                        raise Problem("unsupported_media_type", "this page accepts only the fields of its form")
                elif kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
                    raise Problem("unsupported_media_type", "send the body as `Content-Type: application/json`")
            replayed = False

            async def replay() -> Message:
                nonlocal replayed
                if not replayed:
                    replayed = True
                    return {"type": "http.request", "body": body, "more_body": False}
                return await receive()

            scope["rowlock.body"] = body
            await self._inner(scope, replay, send)

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a file to its route; raises Problem if its announced size is too large or no slot is free."""
        bytes_max = upload_bytes_max(scope, self._settings)
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if announced.isdigit() and int(announced) > bytes_max + FORM_BYTES:
            raise Problem("file_too_large", f"a file can have at most {bytes_max:,} bytes")
        scope["rowlock.body"] = b""
        async with _Place(self._large) as place:
            await place.take()
            whole = False

            async def receive_on() -> Message:
                nonlocal whole
                message = await receive()
                whole = not message.get("more_body", False)
                return message

            async def send_on(message: Message) -> None:
                if not whole and message["type"] == "http.response.start" and message["status"] != 408:
                    await hear_out(scope, receive_on)
                await send(message)

            with suppress(ClientGone):
                await self._inner(scope, receive_on, send_on)

    async def _whole(self, receive: Receive, bytes_max: int, announced: int, place: _Place) -> bytes:
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
                    if size > bytes_max:
                        raise _too_large(bytes_max)
                    if not message.get("more_body", False):
                        return parts[0] if len(parts) == 1 else b"".join(parts)
        except TimeoutError:
            raise Problem("request_timeout", f"the body was not received within {self._seconds:g} seconds") from None


def _too_large(bytes_max: int) -> Problem:
    return Problem("body_too_large", f"a body can have at most {bytes_max:,} bytes")


async def hear_out(scope: Scope, receive: Receive) -> None:
    """Read and discard up to 4 MiB for 0.5 s: a client that is cut off while sending does not read the answer."""
    if any(name == b"expect" for name, _ in scope["headers"]):
        return  # it waits for 100 Continue and sends nothing
    left = _HEAR_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(_HEAR_SECONDS):
            while left > 0 and (message := await receive()).get("more_body", False):
                left -= len(message.get("body", b""))
