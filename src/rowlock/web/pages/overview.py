"""The overview: is all well, and where not?"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from rowlock.web.guard import Caller, Viewer
from rowlock.web.pages.paint import page
from rowlock.web.pages.shared import shared

router = APIRouter()


@router.get("/")
async def overview(request: Request, caller: Viewer) -> Response:
    if caller.token.company_id is not None:
        return await _own(request, caller)
    health = await shared(request).get("health", caller.desk.health)
    return page(request, caller, "overview.html", live="/api/v1/events", health=health)


async def _own(request: Request, caller: Caller) -> Response:
    """What a company's token sees: its own jobs."""
    stats = await shared(request).get(("stats", caller.token.company_id), caller.desk.stats)
    return page(request, caller, "overview-own.html", live="/api/v1/events", stats=stats)
