"""/api/v1/queue: jobs, the dead-letter queue, statistics."""

from __future__ import annotations

from contextlib import suppress

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from rowlock.errors import DuplicateJob, JobNotFound
from rowlock.http.endpoint_routes import derive, route
from rowlock.http.json_response import answer, polled
from rowlock.http.middleware.auth import Caller
from rowlock.http.middleware.idempotency_key import reserved
from rowlock.http.problem import Problem, problem_of
from rowlock.management import ManagementService
from rowlock.management.schemas.jobs import EnqueuedSchema
from rowlock.management.schemas.requests import DeadLettersRequest, EnqueueRequest
from rowlock.storage.access import Role

router = APIRouter()

_EXISTING = {"model": EnqueuedSchema, "description": "With `return_existing`: the existing job."}


@route(router, ManagementService.enqueue, {200: _EXISTING})
async def enqueue(request: Request, caller: Caller, given: EnqueueRequest) -> Response:
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


@route(router, ManagementService.retry_dead)
async def retry_dead(request: Request, caller: Caller, given: DeadLettersRequest) -> Response:
    return answer(await caller.management.retry_dead(**given.model_dump(exclude={"all"})))


@route(router, ManagementService.discard_dead)
async def discard_dead(request: Request, caller: Caller, given: DeadLettersRequest) -> Response:
    return answer(await caller.management.discard_dead(**given.model_dump(exclude={"all"})))


derive(
    router,
    ManagementService.jobs,
    ManagementService.stats,
    ManagementService.dead_letters,
    ManagementService.dead_groups,
)


@route(router, ManagementService.job)
async def get_job(request: Request, caller: Caller, job_id: str, raw: bool) -> Response:
    if raw and not caller.token.role.covers(Role.ADMIN):
        raise Problem("forbidden", f"raw requires the role admin; the token has {caller.token.role}")
    return polled(request, await caller.management.job(job_id, raw=raw))


@route(router, ManagementService.timeline)
async def timeline(request: Request, caller: Caller, job_id: str, stacks: bool) -> Response:
    shown = stacks and caller.token.role.covers(Role.ADMIN)
    return polled(request, await caller.management.timeline(job_id, stacks=shown))


derive(router, ManagementService.run_now, ManagementService.retry, ManagementService.cancel)
