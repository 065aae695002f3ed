"""/api/admin/queue: health, failures, retry and prune for administrators, answered as {success, data}."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from rowlock.http.json_response import answer, polled
from rowlock.http.middleware.auth import Admin, FleetAdmin
from rowlock.http.openapi import NOT_MODIFIED, fails
from rowlock.http.post_routes import Posted
from rowlock.http.routes.jobs import CompanyFilter, CursorQuery, LimitQuery
from rowlock.management.schemas.base import Envelope, Name
from rowlock.management.schemas.dead_letters import FailureSchema, FailuresSchema, RetrySchema
from rowlock.management.schemas.fleet import PrunedSchema, QueueHealthSchema
from rowlock.management.schemas.requests import RetryRequest

router = APIRouter(prefix="/api/admin/queue", tags=["administration"])
posted = APIRouter(prefix="/api/admin/queue", tags=["administration"], route_class=Posted)


@router.get(
    "/health", response_model=Envelope.around(QueueHealthSchema), responses=NOT_MODIFIED, summary="Health of a queue"
)
async def health(
    request: Request,
    caller: FleetAdmin,
    queue: Annotated[Name | None, Query(description="The queue; default: the default queue.")] = None,
) -> Response:
    return polled(request, Envelope(data=await caller.management.queue_health(queue)))


@router.get(
    "/failures", response_model=Envelope.around(FailuresSchema), responses=NOT_MODIFIED, summary="List failed attempts"
)
async def failures(
    request: Request,
    caller: Admin,
    company_id: CompanyFilter = None,
    job_name: Annotated[Name | None, Query(alias="jobName", description="Only of jobs of this type.")] = None,
    job_id: Annotated[str | None, Query(alias="jobId", max_length=64, description="Only of this job.")] = None,
    final: Annotated[bool | None, Query(description="Only last attempts, or only earlier ones.")] = None,
    unresolved: Annotated[bool, Query(description="Only failures whose job was not retried since.")] = False,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> Response:
    page = await caller.management.failures(
        company_id=company_id,
        job_name=job_name,
        job_id=job_id,
        final=final,
        unresolved=unresolved,
        limit=limit,
        cursor=cursor,
    )
    return polled(request, Envelope(data=page))


@router.get(
    "/failures/{failure_id}",
    response_model=Envelope.around(FailureSchema),
    responses=fails(404) | NOT_MODIFIED,
    summary="Get a failed attempt",
)
async def failure(request: Request, caller: Admin, failure_id: Annotated[str, Path(max_length=64)]) -> Response:
    return polled(request, Envelope(data=await caller.management.failure(failure_id)))


@posted.post(
    "/retry",
    response_model=Envelope.around(RetrySchema),
    responses=fails(404, 409),
    summary="Retry the job of a failure",
)
async def retry(request: Request, caller: Admin, given: RetryRequest) -> Response:
    """Retries its job, with fresh attempts; the failure counts as resolved."""
    return answer(Envelope(data=await caller.management.retry_failure(given.failure_id)))


@router.post("/prune", response_model=Envelope.around(PrunedSchema), summary="Prune now")
async def prune(caller: FleetAdmin) -> Response:
    return answer(Envelope(data=await caller.management.prune()))
