"""/api/v1/queue: jobs, the dead-letter queue, statistics."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from rowlock.errors import DuplicateJob, JobNotFound
from rowlock.http.json_response import answer, polled
from rowlock.http.middleware.auth import Caller, Operator, Viewer
from rowlock.http.middleware.idempotency_key import reserved
from rowlock.http.openapi import NOT_MODIFIED, fails
from rowlock.http.post_routes import Posted
from rowlock.http.problem import Problem, problem_of
from rowlock.management.schemas.base import EXAMPLE_ID, Cursor, Limit, Moment, Name, Reason, StatusField
from rowlock.management.schemas.dead_letters import DeadGroupsSchema, DiscardedSchema, RetriedSchema
from rowlock.management.schemas.jobs import EnqueuedSchema, JobSchema, PageSchema, StatsSchema, TimelineSchema
from rowlock.management.schemas.requests import DeadLettersRequest, EnqueueRequest
from rowlock.storage.access import Role

router = APIRouter(prefix="/api/v1/queue", tags=["jobs"])
posted = APIRouter(prefix="/api/v1/queue", tags=["jobs"], route_class=Posted)

JobId = Annotated[str, Path(min_length=1, max_length=64, examples=[EXAMPLE_ID])]
StatusFilter = Annotated[StatusField | None, Query(description="Only jobs with this status.")]
TypeFilter = Annotated[Name | None, Query(description="Only jobs of this type; `name.*`: all types with this prefix.")]
QueueFilter = Annotated[Name | None, Query(description="Only jobs of this queue.")]
CompanyFilter = Annotated[Name | None, Query(alias="companyId", description="Only jobs of this company.")]
LimitQuery = Annotated[Limit, Query(description="Maximum number of jobs.")]
ReasonFilter = Annotated[
    Reason | None, Query(description="Only jobs that failed for this reason, as given by `dead-letter/groups`.")
]
SinceFilter = Annotated[Moment | None, Query(description="Only jobs enqueued at or after this time.")]
UntilFilter = Annotated[Moment | None, Query(description="Only jobs enqueued before this time.")]
CursorQuery = Annotated[Cursor | None, Query(description="The nextCursor of an earlier page.")]

_EXISTING = {"model": EnqueuedSchema, "description": "With `return_existing`: the existing job."}


@posted.post(
    "/enqueue",
    status_code=201,
    response_model=EnqueuedSchema,
    responses=fails(409, 413) | {200: _EXISTING},
    summary="Enqueue a job",
)
async def enqueue(request: Request, caller: Operator, given: EnqueueRequest) -> Response:
    """The job is durable when this returns. 409 has the id of the job with its unique key; with `return_existing` that
    job is returned with status 200."""
    try:
        job = await _enqueued(request, caller, given)
    except DuplicateJob as error:
        problem = problem_of(error)
        with suppress(JobNotFound):
            problem.more["existing"] = (await caller.management.job(error.existing_job_id)).json_object()
        raise problem from None
    return answer(job, 201 if job.created else 200)


async def _enqueued(request: Request, caller: Caller, given: EnqueueRequest) -> EnqueuedSchema:
    return await caller.management.enqueue(
        given.type,
        given.payload,
        queue=given.queue,
        priority=given.priority,
        delay_seconds=given.delay_seconds,
        at=given.available_at,
        max_attempts=given.max_attempts,
        company_id=given.company_id,
        unique=None if given.unique is None else given.unique.unique(),
        limit_key=given.limit_key,
        reserved=reserved(request),
    )


@router.get("", response_model=PageSchema, responses=NOT_MODIFIED, summary="List jobs, newest first")
async def list_jobs(
    request: Request,
    caller: Viewer,
    status: StatusFilter = None,
    type: TypeFilter = None,
    queue: QueueFilter = None,
    company_id: CompanyFilter = None,
    reason: ReasonFilter = None,
    since: SinceFilter = None,
    until: UntilFilter = None,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> Response:
    chosen = {"status": status, "type": type, "queue": queue, "company_id": company_id, "reason": reason}
    return polled(request, await caller.management.jobs(**chosen, since=since, until=until, limit=limit, cursor=cursor))


@router.get("/stats", response_model=StatsSchema, responses=NOT_MODIFIED, summary="Count jobs")
async def stats(request: Request, caller: Viewer) -> Response:
    return polled(request, await caller.management.stats())


@router.get("/dead-letter", response_model=PageSchema, responses=NOT_MODIFIED, summary="List dead letters")
async def dead_letter(
    request: Request,
    caller: Viewer,
    type: TypeFilter = None,
    queue: QueueFilter = None,
    company_id: CompanyFilter = None,
    reason: ReasonFilter = None,
    since: SinceFilter = None,
    until: UntilFilter = None,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> Response:
    chosen = {"status": "failed", "type": type, "queue": queue, "company_id": company_id, "reason": reason}
    return polled(request, await caller.management.jobs(**chosen, since=since, until=until, limit=limit, cursor=cursor))


@router.get(
    "/dead-letter/groups",
    response_model=DeadGroupsSchema,
    responses=NOT_MODIFIED,
    summary="Group dead letters by type and reason",
)
async def dead_groups(
    request: Request,
    caller: Viewer,
    type: TypeFilter = None,
    queue: QueueFilter = None,
    company_id: CompanyFilter = None,
) -> Response:
    """Largest group first. If there are very many failed jobs, only the newest are counted and `complete` is false."""
    return polled(request, await caller.management.dead_groups(type=type, queue=queue, company_id=company_id))


@posted.post("/dead-letter/retry", response_model=RetriedSchema, summary="Retry dead letters")
async def retry_dead(request: Request, caller: Operator, given: DeadLettersRequest) -> Response:
    """With fresh attempts. `dryRun` only counts the matching jobs; repeat with `nextCursor` while there are more."""
    return answer(await caller.management.retry_dead(**_chosen(given)))


@posted.post("/dead-letter/discard", response_model=DiscardedSchema, summary="Discard dead letters")
async def discard_dead(request: Request, caller: Operator, given: DeadLettersRequest) -> Response:
    """Deletes them and releases their unique keys."""
    return answer(await caller.management.discard_dead(**_chosen(given)))


def _chosen(given: DeadLettersRequest) -> dict[str, Any]:
    return given.model_dump(exclude={"all"})


@router.get("/{job_id}", response_model=JobSchema, responses=fails(404) | NOT_MODIFIED, summary="Get a job")
async def get_job(
    request: Request,
    caller: Viewer,
    job_id: JobId,
    raw: Annotated[bool, Query(description="Include secrets; requires the role admin.")] = False,
) -> Response:
    if raw and not caller.token.role.covers(Role.ADMIN):
        raise Problem("forbidden", f"raw requires the role admin; the token has {caller.token.role}")
    return polled(request, await caller.management.job(job_id, raw=raw))


@router.get(
    "/{job_id}/timeline",
    response_model=TimelineSchema,
    responses=fails(404) | NOT_MODIFIED,
    summary="Get the timeline of a job",
)
async def timeline(
    request: Request,
    caller: Viewer,
    job_id: JobId,
    stacks: Annotated[
        bool, Query(description="Include stack traces; requires the role admin and a token for all companies.")
    ] = True,
) -> Response:
    shown = stacks and caller.token.role.covers(Role.ADMIN)
    return polled(request, await caller.management.timeline(job_id, stacks=shown))


@router.post("/{job_id}/run-now", response_model=JobSchema, responses=fails(404, 409), summary="Run a job now")
async def run_now(caller: Operator, job_id: JobId) -> Response:
    """Makes a delayed job, or one that waits for its next attempt, available now, in its place in the queue."""
    return answer(await caller.management.run_now(job_id))


@router.post("/{job_id}/retry", response_model=JobSchema, responses=fails(404, 409), summary="Retry a job")
async def retry(caller: Operator, job_id: JobId) -> Response:
    """Retries a failed or cancelled job, with fresh attempts."""
    return answer(await caller.management.retry(job_id))


@router.post("/{job_id}/cancel", response_model=JobSchema, responses=fails(404, 409), summary="Cancel a job")
async def cancel(caller: Operator, job_id: JobId) -> Response:
    """A waiting job will not run; a running one is asked to stop (`cancelRequested`)."""
    return answer(await caller.management.cancel(job_id))
