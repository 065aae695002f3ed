"""The dashboard as an application of its own, so that the API's description has none of its pages."""

from __future__ import annotations

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from rowlock.app import Rowlock
from rowlock.dashboard import assets, imports, jobs, overview, session, sync
from rowlock.dashboard import dead_letters as dead
from rowlock.dashboard.shared_reads import Shared
from rowlock.http.problem import Problem
from rowlock.http.routing import Routes

_ROUTERS = (session.router, assets.router, overview.router, jobs.router, dead.router, imports.router, sync.router)


def pages(app: Rowlock) -> Routes:
    """Return the pages of an application; the caller must set `state.auth`."""
    site = Routes(title="Rowlock", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    site.state.rowlock = app
    site.state.shared = Shared(app.clock, app.settings.http_refresh_ms)
    for router in _ROUTERS:
        site.router.routes += router.routes
    for route in site.router.routes:
        if isinstance(route, APIRoute) and route.methods is not None and "GET" in route.methods:
            route.methods.add("HEAD")
    # Problems and RowlockErrors pass on to the error boundary, which renders them as pages.
    site.add_exception_handler(RequestValidationError, _invalid)
    site.add_exception_handler(HTTPException, _http)
    return site


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = "; ".join(f"{'.'.join(map(str, item['loc'][1:]))}: {item['msg']}" for item in error.errors()[:5])
    raise Problem("validation_failed", told)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        headers = {"allow": (error.headers or {}).get("Allow", "")}
        raise Problem("method_not_allowed", f"{request.url.path} does not accept {request.method}", headers)
    raise Problem("not_found", f"there is no page at {request.url.path}")
