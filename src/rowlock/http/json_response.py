"""JSON responses; those that clients poll have an ETag, so that an unchanged answer is a 304."""

from __future__ import annotations

from hashlib import blake2b

from starlette.requests import Request
from starlette.responses import Response

from rowlock.management.schemas.base import Schema

JSON = "application/json"


def answer(data: Schema, status: int = 200) -> Response:
    """Return a JSON response that must not be cached."""
    return Response(data.json_bytes(), status, {"cache-control": "no-store"}, JSON)


def polled(request: Request, data: Schema) -> Response:
    """Return a JSON response with an ETag, or 304 if the request's If-None-Match has it."""
    body = data.json_bytes()
    tag = f'W/"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    if _matches(request.headers.get("if-none-match"), tag):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, JSON)


def _matches(given: str | None, tag: str) -> bool:
    if given is None:
        return False
    tags = {part.strip().removeprefix("W/") for part in given.split(",")}
    return "*" in tags or tag.removeprefix("W/") in tags
