"""/api/v1/sync: list and monitor integrations, send operations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from rowlock.http.json_response import answer, polled
from rowlock.http.middleware.auth import Operator, Viewer
from rowlock.http.middleware.idempotency_key import reserved
from rowlock.http.openapi import NOT_MODIFIED, fails
from rowlock.http.post_routes import Posted
from rowlock.management.schemas.base import Name
from rowlock.management.schemas.jobs import EnqueuedSchema
from rowlock.management.schemas.requests import SyncRequest
from rowlock.management.schemas.sync import IntegrationsSchema, SyncMonitorSchema, SyncStatsSchema

router = APIRouter(prefix="/api/v1/sync", tags=["sync"])
posted = APIRouter(prefix="/api/v1/sync", tags=["sync"], route_class=Posted)

Integration = Annotated[Name, Path(description="The name of an integration.", examples=["hubspot"])]
Operation = Annotated[Name, Path(description="The name of one of its operations.", examples=["create_contact"])]

_EXISTING = {"model": EnqueuedSchema, "description": "The job with the same key that waits or runs."}


@router.get("", response_model=IntegrationsSchema, responses=NOT_MODIFIED, summary="List integrations")
async def integrations(request: Request, caller: Viewer) -> Response:
    """With their operations, and how to enable those that are disabled."""
    return polled(request, await caller.management.integrations())


@router.get(
    "/{integration}/stats",
    response_model=SyncStatsSchema,
    responses=fails(404) | NOT_MODIFIED,
    summary="Count the jobs of an integration",
)
async def stats(request: Request, caller: Viewer, integration: Integration) -> Response:
    return polled(request, await caller.management.sync_stats(integration))


@router.get(
    "/{integration}/monitor",
    response_model=SyncMonitorSchema,
    responses=fails(404) | NOT_MODIFIED,
    summary="Get the state of an integration",
)
async def monitor(request: Request, caller: Viewer, integration: Integration) -> Response:
    """Counts, the most recent failures, the duration and waiting time of jobs, and the remaining calls per limit."""
    return polled(request, await caller.management.sync_monitor(integration))


@posted.post(
    "/{integration}/{operation}",
    status_code=201,
    response_model=EnqueuedSchema,
    responses=fails(404, 409, 413) | {200: _EXISTING},
    summary="Send an operation",
)
async def send(
    request: Request, caller: Operator, given: SyncRequest, integration: Integration, operation: Operation
) -> Response:
    """The job is durable when this returns. If the operation has a key, and a job with that key waits or runs, that
    job takes over the payload and is returned with status 200. A body without `payload` is the payload
    itself."""
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
