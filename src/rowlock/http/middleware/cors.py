"""CORS: which other origins may call the API from a browser."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from rowlock.http.middleware.error_boundary import HEADERS
from rowlock.http.problem import Problem


class Origins(CORSMiddleware):
    """Allows pages of these origins to call the API with a token, never with cookies."""

    def __init__(self, inner: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            inner,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "idempotency-key", "if-none-match", "last-event-id"],
            expose_headers=["etag", "retry-after", "idempotency-replayed"],
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a preflight request; it never reaches the error boundary, so the headers are added here."""
        response = super().preflight_response(request_headers)
        if response.status_code >= 400:
            response = Problem("origin_not_allowed", "this origin, method or header is not allowed").response()
        response.raw_headers.extend(HEADERS)
        return response
