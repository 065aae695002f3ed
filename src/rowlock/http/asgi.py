"""Wires routes and middleware: `asgi(app)` returns an ASGI application, to serve alone or mount in another."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from rowlock.app import Rowlock
from rowlock.dashboard import app as site
from rowlock.dashboard.error_pages import is_page, tell
from rowlock.errors import RowlockError
from rowlock.http.events.event_stream import EventStream
from rowlock.http.middleware.auth import Auth, Needs, Viewer
from rowlock.http.middleware.body_limits import Body
from rowlock.http.middleware.cors import Origins
from rowlock.http.middleware.error_boundary import ErrorBoundary
from rowlock.http.middleware.idempotency_key import Find, Once
from rowlock.http.openapi import describe
from rowlock.http.problem import Problem, logged
from rowlock.http.routes import admin, events, imports, jobs, probes, sync, uploads
from rowlock.http.routes import queues as fleet
from rowlock.http.routing import Routes

_ABOUT = """Durable jobs, imports and outbound sync on the database that you already run.

Every route except `/healthz` and `/readyz` requires a token.
Errors are `application/problem+json` with a stable `code`.
"""


class Api:
    """The HTTP API and dashboard of one application."""

    def __init__(self, app: Rowlock) -> None:
        self.app = app
        settings = app.settings
        self.hub = EventStream(app)
        self.routes = _routes(app, self.hub)
        pages = site.pages(app)
        once = Once(self.routes, app, _posts(self.routes))
        self._auth = Auth(Body(_Either(pages, once), settings), app)
        pages.state.auth = self._auth
        self._outside: ASGIApp = ErrorBoundary(self._auth, settings, app.redact, tell)
        origins = [origin.strip() for origin in settings.http_cors_origins.split(",") if origin.strip()]
        if origins:
            self._outside = Origins(self._outside, origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._outside(scope, receive, send)

    async def close(self) -> None:
        """End all event streams, and record which tokens were used."""
        await self.hub.close()
        await self._auth.tokens.touch(self.app.store)


def asgi(app: Rowlock) -> Api:
    """Return the HTTP API as an ASGI application, for `rowlock serve` or to mount under a prefix in another."""
    return Api(app)


class _Either:
    """Passes requests for pages to the dashboard, and all others to the API."""

    def __init__(self, pages: ASGIApp, api: ASGIApp) -> None:
        self._pages = pages
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._pages if is_page(scope) else self._api)(scope, receive, send)


def _routes(app: Rowlock, hub: EventStream) -> FastAPI:
    api = Routes(
        title="Rowlock",
        version=version("rowlock"),
        description=_ABOUT,
        docs_url=None,  # its page loads scripts from other sites
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    api.state.rowlock = app
    api.state.hub = hub
    for router in (
        *(probes.router, jobs.router, uploads.router, imports.router),
        *(sync.router, fleet.router, events.router, admin.router),
    ):
        api.router.routes += router.routes

    @api.get("/openapi.json", tags=["probes"], summary="This description")
    async def description(request: Request, caller: Viewer) -> Any:
        return describe(api) | {"servers": [{"url": request.scope.get("root_path") or "/"}]}

    api.add_exception_handler(RowlockError, _ours)
    api.add_exception_handler(Problem, _problem)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(HTTPException, _http)
    return api


def _posts(api: FastAPI) -> Find:
    """Return a function that finds the `Needs` of the route for a POST, or None if no route matches."""
    posts = [
        (route, dependency.call)
        for route in api.router.routes
        if isinstance(route, APIRoute) and "POST" in (route.methods or ())
        for dependency in route.dependant.dependencies
        if isinstance(dependency.call, Needs)
    ]

    def find(scope: Scope) -> Needs | None:
        return next((needs for route, needs in posts if route.matches(scope)[0] is Match.FULL), None)

    return find


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, RowlockError)
    app: Rowlock = request.app.state.rowlock
    return logged(error, request.url.path, app.redact).response()


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [{"field": ".".join(map(str, item["loc"])), "message": item["msg"]} for item in error.errors()]
    if any(item["type"] == "json_invalid" for item in error.errors()):
        return Problem("malformed_body", "the body is not JSON", more={"errors": found}).response()
    detail = "; ".join(f"{item['field']}: {item['message']}" for item in found[:5])
    return Problem("validation_failed", detail, more={"errors": found[:100]}).response()


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return Problem("not_found", f"nothing exists at {request.url.path}").response()
    if error.status_code == 405:
        headers = {"allow": (error.headers or {}).get("Allow", "")}
        return Problem("method_not_allowed", f"{request.url.path} does not accept {request.method}", headers).response()
    return Problem("malformed_body", "the body could not be read").response()
