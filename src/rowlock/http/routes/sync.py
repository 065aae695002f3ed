"""/api/v1/sync: list and monitor integrations, send operations."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from rowlock.http.endpoint_routes import derive, route
from rowlock.http.json_response import answer
from rowlock.http.middleware.auth import Caller
from rowlock.http.middleware.idempotency_key import reserved
from rowlock.management import ManagementService
from rowlock.management.schemas.jobs import EnqueuedSchema
from rowlock.management.schemas.requests import SyncRequest

router = APIRouter()

_EXISTING = {"model": EnqueuedSchema, "description": "The job with the same key that waits or runs."}

derive(router, ManagementService.integrations, ManagementService.sync_stats, ManagementService.sync_monitor)


@route(router, ManagementService.sync_send, {200: _EXISTING})
async def send(request: Request, caller: Caller, given: SyncRequest, integration: str, operation: str) -> Response:
    job = await caller.management.sync_send(
        integration,
        operation,
        given.payload,
        priority=given.priority,
        delay_seconds=given.delay_seconds,
        company_id=given.company_id,
        reserved=reserved(request),
    )
    return answer(job, 201 if job.created else 200)
