"""Answers: JSON with an ETag, so that asking again costs a line while nothing has changed."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

JSON = "application/json"


def answer(data: Any, status: int = 200) -> Response:
    """An answer to a request that changes something."""
    return Response(orjson.dumps(data), status, {"cache-control": "no-store"}, JSON)


def polled(request: Request, data: Any) -> Response:
    """An answer to a question that may be asked again and again: 304 where the asker has it already."""
    body = orjson.dumps(data)
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
