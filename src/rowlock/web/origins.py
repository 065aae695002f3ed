"""Pages of other origins: which may call the API, by the rules of browsers (CORS)."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from rowlock.web.problem import Problem
from rowlock.web.shield import HEADERS


class Origins(CORSMiddleware):
    """Lets pages of these origins call, with a token and never with cookies."""

    def __init__(self, inner: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            inner,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "idempotency-key", "if-none-match", "last-event-id"],
            expose_headers=["etag", "retry-after", "idempotency-replayed"],
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """What a browser asks before it asks; this never reaches the shield."""
        response = super().preflight_response(request_headers)
        if response.status_code >= 400:
            response = Problem("origin_not_allowed", "this origin, method or header is not allowed").response()
        response.raw_headers.extend(HEADERS)
        return response
