"""The HTTP API of an application, wired: `asgi(app)` is an ASGI application, served alone or mounted in another."""

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
from rowlock.errors import RowlockError, StoreError
from rowlock.observe import logs
from rowlock.web import admin, events, fleet, imports, jobs, probes, sync, uploads
from rowlock.web.body import Body
from rowlock.web.guard import Guard, Needs, Viewer
from rowlock.web.hub import Hub
from rowlock.web.once import Find, Once
from rowlock.web.openapi import describe
from rowlock.web.origins import Origins
from rowlock.web.pages import site
from rowlock.web.pages.faults import is_page, tell
from rowlock.web.problem import Problem, problem_of
from rowlock.web.routes import Routes
from rowlock.web.shield import Shield

_ABOUT = """Durable jobs, imports and outbound sync on the database that you already run.

Every route except `/healthz` and `/readyz` needs a token. Errors are `application/problem+json` with a stable `code`.
"""


class Api:
    """The HTTP API of one application."""

    def __init__(self, app: Rowlock) -> None:
        self.app = app
        settings = app.settings
        self.hub = Hub(app)
        self.routes = _routes(app, self.hub)
        pages = site.pages(app)
        once = Once(self.routes, app, _posts(self.routes))
        self._guard = Guard(Body(_Either(pages, once), settings), app)
        pages.state.guard = self._guard
        self._outside: ASGIApp = Shield(self._guard, settings, app.redact, tell)
        origins = [origin.strip() for origin in settings.http_cors_origins.split(",") if origin.strip()]
        if origins:
            self._outside = Origins(self._outside, origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._outside(scope, receive, send)

    async def close(self) -> None:
        """Say good-bye to those who listen, and note which tokens were used."""
        await self.hub.close()
        await self._guard.tokens.touch(self.app.store)


def asgi(app: Rowlock) -> Api:
    """The HTTP API as an ASGI application, for `rowlock serve` or to be mounted under a prefix in another one."""
    return Api(app)


class _Either:
    """Pages at their addresses, the API at all others."""

    def __init__(self, pages: ASGIApp, api: ASGIApp) -> None:
        self._pages = pages
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._pages if is_page(scope) else self._api)(scope, receive, send)


def _routes(app: Rowlock, hub: Hub) -> FastAPI:
    api = Routes(
        title="Rowlock",
        version=version("rowlock"),
        description=_ABOUT,
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    api.state.rowlock = app
    api.state.hub = hub
    for router in (
        *(probes.router, jobs.posted, jobs.router, imports.posted, uploads.router, imports.router),
        *(sync.router, sync.posted, fleet.router, events.router, admin.posted, admin.router),
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
    """Finds what the route that takes a POST asks of its caller."""
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
    if isinstance(error, StoreError):
        app: Rowlock = request.app.state.rowlock
        logs.get().error("http.store_failed", path=request.url.path, reason=app.redact.text(str(error)))
    return problem_of(error).response()


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [{"field": ".".join(map(str, item["loc"])), "message": item["msg"]} for item in error.errors()]
    if any(item["type"] == "json_invalid" for item in error.errors()):
        return Problem("malformed_body", "the body is not JSON", more={"errors": found}).response()
    told = "; ".join(f"{item['field']}: {item['message']}" for item in found[:5])
    return Problem("validation_failed", told, more={"errors": found[:100]}).response()


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return Problem("not_found", f"there is nothing at {request.url.path}").response()
    if error.status_code == 405:
        headers = {"allow": (error.headers or {}).get("Allow", "")}
        return Problem("method_not_allowed", f"{request.method} is not for {request.url.path}", headers).response()
    return Problem("malformed_body", "the body could not be read").response()
