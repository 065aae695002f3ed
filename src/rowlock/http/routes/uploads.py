"""/api/v1/imports/…/upload: files sent as a form or as the body itself, streamed to disk in constant memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from rowlock.app import Rowlock
from rowlock.errors import DuplicateImport, FileRefused
from rowlock.http.middleware.auth import Caller, Operator
from rowlock.http.middleware.body_limits import FORM_BYTES, ClientGone, upload_bytes_max
from rowlock.http.multipart import FileBegins, FileEnds, Text, boundary_of, events
from rowlock.http.openapi import fails
from rowlock.http.problem import Problem
from rowlock.http.routes.imports import about, accepted, duplicate
from rowlock.imports.intake.intake import About
from rowlock.imports.intake.upload import Incoming, Received
from rowlock.management.schemas.imports import ImportSchema
from rowlock.management.schemas.requests import ImportOptions, UploadQuery

router = APIRouter(prefix="/api/v1/imports", tags=["imports"])

_WORKBOOK = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_MEDIA = {
    "xlsx": (
        *(_WORKBOOK, "application/octet-stream", "application/vnd.ms-excel.sheet.macroenabled.12"),
        *("application/vnd.ms-excel", "application/zip", "application/x-zip-compressed"),
    ),
    "csv": (
        *("text/csv", "application/gzip", "application/octet-stream", "text/tab-separated-values", "text/plain"),
        *("application/x-gzip", "application/csv", "text/x-csv", "application/vnd.ms-excel"),
    ),
}
"""The accepted media types; browsers on Windows send CSV files as Excel's type."""

_ABOUT = """Send a form (`multipart/form-data`) with the file in the field `file` and the options as fields before or
after it, or the file itself as the body, with its name and the options in the query. Answers as soon as the file is
durable and its import queued; `Location` reports its progress.

The same file again, for the same type and company, is `409` with the earlier import in `existing`, unless `force` or
`dryRun` is set; so an upload whose response was lost can be sent again. `Idempotency-Key` is ignored here.
"""


def _described(*media_types: str) -> dict[str, Any]:
    """Return the OpenAPI request body, which FastAPI cannot derive because it does not read the body."""
    options = ImportOptions.model_json_schema()["properties"]
    fields = {"file": {"type": "string", "format": "binary"}} | options
    form = {"type": "object", "required": ["file"], "properties": fields}
    raw = {"schema": {"type": "string", "format": "binary"}}
    content = {"multipart/form-data": {"schema": form}} | dict.fromkeys(media_types, raw)
    return {"requestBody": {"required": True, "content": content}, "x-upload": True}


@router.post(
    "/xlsx/upload",
    status_code=202,
    response_model=ImportSchema,
    responses=fails(409, 413, 415),
    summary="Upload a workbook and import it",
    description=_ABOUT,
    openapi_extra=_described(*_MEDIA["xlsx"][:2]),
)
async def upload_xlsx(request: Request, caller: Operator, asked: Annotated[UploadQuery, Query()]) -> Response:
    return await Upload(request, caller, asked, "xlsx").answer()


@router.post(
    "/csv/upload",
    status_code=202,
    response_model=ImportSchema,
    responses=fails(409, 413, 415),
    summary="Upload a CSV file and import it",
    description=_ABOUT,
    openapi_extra=_described(*_MEDIA["csv"][:3]),
)
async def upload_csv(request: Request, caller: Operator, asked: Annotated[UploadQuery, Query()]) -> Response:
    return await Upload(request, caller, asked, "csv").answer()


class Upload:
    """The upload of one file, of one family (xlsx or csv) or of any."""

    def __init__(self, request: Request, caller: Caller, asked: UploadQuery, family: str | None = None) -> None:
        app: Rowlock = request.app.state.rowlock
        self._request = request
        self._caller = caller
        self._asked = asked
        self._family = family
        self._settings = app.settings
        self.texts: dict[str, str] = {}  # fields of the form received so far
        self._over = False

    async def answer(self) -> Response:
        try:
            return accepted(self._request, await self.taken())
        except DuplicateImport as error:
            raise await duplicate(self._caller, error) from None

    async def taken(self) -> ImportSchema:
        """Receive the file, record its import, and return the import."""
        headers = self._request.headers
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem("unsupported_media_type", "send the file as it is, without Content-Encoding")
        boundary = boundary_of(headers.get("content-type", ""))
        async with AsyncExitStack() as stack:
            if boundary is None:
                received, texts = await self._raw(stack), dict[str, str]()
            else:
                received, texts = await self._form(stack, boundary)
            async with asyncio.timeout(self._settings.http_request_seconds):
                by_hand = self._family is None  # a form of the dashboard
                return await self._caller.management.arrivals.received(received, self._about(texts), by_hand=by_hand)

    async def _raw(self, stack: AsyncExitStack) -> Received:
        if self._asked.filename is None:
            raise Problem("validation_failed", "query.filename: required; send ?filename=…, or send a form")
        media_type = self._request.headers.get("content-type", "").split(";")[0].strip().lower()
        incoming = await self._incoming(stack, self._asked.filename, media_type, {})
        async for chunk in self._chunks():
            await incoming.write(chunk)
        return await incoming.end()

    async def _form(self, stack: AsyncExitStack, boundary: bytes) -> tuple[Received, dict[str, str]]:
        texts = self.texts
        incoming: Incoming | None = None
        received: Received | None = None
        async for event in events(self._chunks(), boundary):
            match event:
                case FileBegins(name, media_type):
                    incoming = await self._incoming(stack, name, media_type or "application/octet-stream", texts)
                case bytes() if incoming is not None:
                    await incoming.write(event)
                case FileEnds() if incoming is not None:
                    received = await incoming.end()
                case Text(name, value):
                    texts[name] = value
        if received is None:
            raise Problem("malformed_form", "the form has no file: put it into the field `file`")
        return received, texts

    async def _incoming(self, stack: AsyncExitStack, name: str, media_type: str, texts: dict[str, str]) -> Incoming:
        """Open a place for the file; raises FileRefused or Problem if its name or media type is not for this path."""
        incoming = await self._caller.management.arrivals.incoming(name, self._about(texts))
        if self._family is None:  # its name and first bytes decide the type
            return await stack.enter_async_context(incoming)
        if incoming.kind.family != self._family:
            raise FileRefused(
                f"{incoming.name}: this path accepts {self._family} files; send it to "
                f"/api/v1/imports/{incoming.kind.family}/upload",
                code="file_type_unknown",
            )
        if media_type not in _MEDIA[self._family]:
            raise Problem(
                "unsupported_media_type",
                f"{media_type[:80] or 'no Content-Type'} is not what a {self._family} file is sent as; for example "
                f"{_MEDIA[self._family][0]}",
            )
        return await stack.enter_async_context(incoming)

    def _about(self, texts: dict[str, str]) -> About:
        """Return the options of the import; a field of the form overrides the query."""
        if self._family is None:  # browsers send empty fields, too
            texts = {name: text.strip() for name, text in texts.items() if text.strip()}
        given = self._asked.model_dump(by_alias=True, exclude={"filename"}, exclude_unset=True) | texts
        try:
            said = ImportOptions.model_validate(given)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise RequestValidationError([{**item, "loc": ("form", *item["loc"])} for item in found]) from None
        return about(self._caller, said)

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; raises Problem if nothing arrives for `http_body_seconds` (default: 20)."""
        seconds = self._settings.http_body_seconds
        left = upload_bytes_max(self._request.scope, self._settings) + FORM_BYTES
        while not self._over:
            try:
                async with asyncio.timeout(seconds):
                    message = await self._request.receive()
            except TimeoutError:
                raise Problem("request_timeout", f"no data was received for {seconds:g} seconds") from None
            if message["type"] == "http.disconnect":
                raise ClientGone
            self._over = not message.get("more_body", False)
            chunk = message.get("body", b"")
            left -= len(chunk)
            if left < 0:
                raise Problem("file_too_large", "the form is larger than the largest file that this path accepts")
            if chunk:
                yield chunk
