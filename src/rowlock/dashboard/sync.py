"""/sync: the integrations, and a page with the state of each."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from rowlock.dashboard.job_status import first_line, short
from rowlock.dashboard.rendering import page
from rowlock.dashboard.shared_reads import shared
from rowlock.http.middleware.auth import Caller, Viewer
from rowlock.management.schemas.base import Name
from rowlock.management.schemas.sync import SyncMonitorSchema

router = APIRouter()


@router.get("/sync")
async def integrations(request: Request, caller: Viewer) -> Response:
    found = (await caller.management.integrations()).integrations
    rows = [{"about": each, "seen": await _monitor(request, caller, each.name)} for each in found]
    return page(request, caller, "sync.html", rows=rows, live="/api/v1/events" if rows else None)


@router.get("/sync/{name:path}")
async def integration(request: Request, caller: Viewer, name: Annotated[Name, Path()]) -> Response:
    seen = await _monitor(request, caller, name)
    about = next(each for each in (await caller.management.integrations()).integrations if each.name == name)
    return page(
        request,
        caller,
        "integration.html",
        about=about,
        seen=seen,
        failures=[(each, short(each.job_id), first_line(each.error)) for each in seen.failures],
        types=f"{name}.*",
        span=_span,
        live=f"/api/v1/events?type={quote(name, safe='')}.*",
    )


async def _monitor(request: Request, caller: Caller, name: str) -> SyncMonitorSchema:
    """Return the state of an integration; requests at about the same time share one query."""
    return await shared(request).get(
        ("sync", caller.token.company_id, name), lambda: caller.management.sync_monitor(name)
    )


def _span(seconds: float) -> str:
    """Return the period of a limit: 10 s, 24 h."""
    for size, unit in ((3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
