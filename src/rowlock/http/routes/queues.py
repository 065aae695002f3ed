"""/api/v1/queues, workers, schedules and health: routes that concern all companies."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from rowlock.http.endpoint_routes import derive, route
from rowlock.http.json_response import answer
from rowlock.http.middleware.auth import Caller
from rowlock.http.middleware.idempotency_key import reserved
from rowlock.management import ManagementService

router = APIRouter()

derive(
    router,
    ManagementService.health,
    ManagementService.queues,
    ManagementService.history,
    ManagementService.doing,
    ManagementService.pause_queue,
    ManagementService.resume_queue,
    ManagementService.schedules,
    ManagementService.runs,
    ManagementService.pause_schedule,
    ManagementService.resume_schedule,
)


@route(router, ManagementService.run_schedule)
async def run_schedule(request: Request, caller: Caller, name: str) -> Response:
    return answer(await caller.management.run_schedule_once(name, reserved(request)))
