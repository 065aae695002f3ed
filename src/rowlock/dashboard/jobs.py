"""/jobs: search jobs, show one, and retry, cancel or run it now."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime
from shlex import quote as quoted
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rowlock.dashboard.job_filters import STATUSES, cursor_of, lately, narrowed, tidied
from rowlock.dashboard.job_status import can, first_line, says, seconds_of, short, standing
from rowlock.dashboard.rendering import at, back, page, rowlock
from rowlock.dashboard.shared_reads import shared
from rowlock.errors import DuplicateJob, JobIsOver, JobNotFound, JobNotRetryable, JobNotWaiting
from rowlock.http.middleware.auth import Caller, Operator, Viewer
from rowlock.http.problem import Problem
from rowlock.ids import is_uuid
from rowlock.imports.importer import IMPORT_JOB
from rowlock.management.schemas.base import EXAMPLE_ID
from rowlock.management.schemas.jobs import JobSchema, PageSchema, TimelineSchema
from rowlock.management.schemas.sync import IntegrationSchema
from rowlock.storage.access import Role

router = APIRouter()

SHOWN = 50
_SLOW_SECONDS = 15.0  # how long answers that rarely change are shared
_EVENTS = {  # of a timeline; {} is the attempt
    "enqueued": "Enqueued",
    "started": "{} started",
    "failed": "{} failed",
    "retried": "Retried by a person",
    "due": "{} is due",
    "succeeded": "{} succeeded",
    "cancelled": "Cancelled",
}
_TOO_LATE = (JobNotRetryable, JobIsOver, JobNotWaiting, DuplicateJob)  # nothing was changed
_KEYS = ("status", "type", "queue", "companyId", "since", "until")


@router.get("/jobs")
async def jobs(request: Request, caller: Viewer) -> Response:
    short_way = tidied(request) or await _by_id(request, caller)
    if short_way is not None:
        return short_way
    query, now = request.query_params, datetime.now(UTC)
    where, cursor = narrowed(query, *_KEYS), cursor_of(query)
    wrong = [*where.wrong, *_no_such_id(query.get("id"))]
    found = PageSchema(jobs=[], next_cursor=None)
    if not wrong:
        found = await shared(request).get(
            ("jobs", caller.token.company_id, *sorted(where.said.items()), cursor),
            lambda: caller.management.jobs(**where.asked, limit=SHOWN, cursor=cursor),
        )
    return page(
        request,
        caller,
        "jobs.html",
        status=422 if where.wrong else 404 if wrong else 200,
        rows=[_row(job, now) for job in found.jobs],
        where=where,
        wrong=wrong,
        cursor=cursor,
        next_cursor=found.next_cursor,
        sought=query.get("id", ""),
        statuses=STATUSES,
        spans=lately(now),
        types=[] if caller.token.company_id else sorted(each.name for each in rowlock(request).registry),
        queues=await _queue_names(request, caller),
        live=_events(where.said),
        live_on="job",
    )


@router.get("/jobs/{job_id}")
async def job(request: Request, caller: Viewer, job_id: str) -> Response:
    raw = request.query_params.get("raw") == "1"
    if raw and not caller.token.role.covers(Role.ADMIN):
        raise Problem(
            "forbidden", f"showing payloads with secrets requires the role admin; your role is {caller.token.role}"
        )
    found, now = await _job(request, caller, job_id, raw), datetime.now(UTC)
    names = await _worker_names(request, caller)
    integration = await _integration(caller, found.type)
    return page(
        request,
        caller,
        "job.html",
        job=found,
        raw=raw,
        stands_now=standing(found, now, names),
        names=names,
        short=short,
        first_line=first_line,
        seconds=seconds_of(found),
        can=can(found, now),
        past=await _timeline(request, caller, job_id),
        hindered=await _hindered(request, caller, found, integration, now),
        import_id=_import_id(found),
        schedules=await _schedules(request, caller, found.type),
        integration=integration,
        words=_EVENTS,
        live=f"/api/v1/events?job={found.id}",
    )


@router.post("/jobs/{job_id}/retry")
async def retry(request: Request, caller: Operator, job_id: str) -> Response:
    return await _done(request, job_id, caller.management.retry(job_id), "It is queued again, with fresh attempts.")


@router.post("/jobs/{job_id}/cancel")
async def cancel(request: Request, caller: Operator, job_id: str) -> Response:
    return await _done(request, job_id, caller.management.cancel(job_id), None)


@router.post("/jobs/{job_id}/run-now")
async def run_now(request: Request, caller: Operator, job_id: str) -> Response:
    return await _done(request, job_id, caller.management.run_now(job_id), "It runs as soon as a worker is free.")


async def _done(request: Request, job_id: str, change: Awaitable[JobSchema], notice: str | None) -> Response:
    """Redirect to the job with the result; if the action came too late, with a notice that nothing was changed."""
    try:
        job = await change
    except _TOO_LATE as error:
        return back(request, f"/jobs/{job_id}", f"Nothing was changed: {error}.", "bad")
    if notice is None:
        stopped = job.status == "cancelled"
        notice = "It is cancelled, and will not run." if stopped else "It is running; its handler was asked to stop."
    return back(request, f"/jobs/{job_id}", notice)


# -- the list --------------------------------------------------------------------------------------


async def _by_id(request: Request, caller: Caller) -> Response | None:
    """Return a redirect to the job whose whole id was searched for, or None."""
    job_id = request.query_params.get("id", "").strip()
    if not is_uuid(job_id):
        return None
    try:
        await caller.management.job(job_id.lower())
    except JobNotFound:
        return None
    return RedirectResponse(at(request.scope, f"/jobs/{job_id.lower()}"), 303)


def _no_such_id(given: str | None) -> list[str]:
    """Return why the search for an id found nothing; empty if there was no search."""
    sought = (given or "").strip()
    if not sought:
        return []
    if is_uuid(sought):
        return [f"No job has the id {sought}. Check the id; retention may have deleted the job."]
    return [f"“{sought[:64]}” is not a job id. Job ids look like {EXAMPLE_ID}."]


def _row(job: JobSchema, now: datetime) -> dict[str, Any]:
    return {
        "job": job,
        "short": short(job.id),
        "says": says(job),
        "stands": standing(job, now),
        "seconds": seconds_of(job),
    }


def _events(said: Any) -> str:
    """Return the address of the events that the list listens to."""
    wanted = [f"{key}={quote(said[key])}" for key in ("type", "queue") if key in said]
    return f"/api/v1/events?{'&'.join(wanted)}" if wanted else "/api/v1/events"


async def _queue_names(request: Request, caller: Caller) -> list[str]:
    """Return the queues to choose from; none for a company's token."""
    if caller.token.company_id is not None:
        return []
    found = await shared(request).get(("queue names",), caller.management.queues, _SLOW_SECONDS)
    return [queue.name for queue in found.queues]


# -- data of one job -------------------------------------------------------------------------------


async def _job(request: Request, caller: Caller, job_id: str, raw: bool) -> JobSchema:
    """Return the job, shared between requests; with `raw` it includes secrets and is not shared."""
    if raw:
        return await caller.management.job(job_id, raw=True)
    return await shared(request).get(("job", caller.token.company_id, job_id), lambda: caller.management.job(job_id))


async def _timeline(request: Request, caller: Caller, job_id: str) -> TimelineSchema:
    stacks = caller.token.role.covers(Role.ADMIN)
    key = ("timeline", caller.token.company_id, stacks, job_id)
    return await shared(request).get(key, lambda: caller.management.timeline(job_id, stacks=stacks))


async def _hindered(
    request: Request, caller: Caller, job: JobSchema, integration: IntegrationSchema | None, now: datetime
) -> str | None:
    """Return why a ready job does not run, or None; hides queues and workers from a company's token."""
    if job.status != "queued" or job.available_at > now:
        return None
    if integration is not None and not integration.enabled:
        return f"{integration.name} is disabled: {integration.why}"
    if caller.token.company_id is not None:
        return None
    queues = await shared(request).get(("queues",), caller.management.queues)
    if any(queue.name == job.queue and queue.paused for queue in queues.queues):
        return f"the queue {job.queue} is paused; resume it on the overview page"
    workers = (await shared(request).get(("doing",), caller.management.doing)).workers
    if not any(worker.alive and job.queue in worker.queues for worker in workers):
        return f"no worker serves the queue {job.queue}; start one with: rowlock worker --queue {quoted(job.queue)}"
    return None


async def _worker_names(request: Request, caller: Caller) -> dict[str, str]:
    """Return the names of workers by id; none for a company's token."""
    if caller.token.company_id is not None:
        return {}
    found = await shared(request).get(("doing",), caller.management.doing)
    return {worker.id: worker.name for worker in found.workers}


def _import_id(job: JobSchema) -> str | None:
    found = job.payload.get("importJobId") if job.type == IMPORT_JOB else None
    return found if isinstance(found, str) and is_uuid(found) else None


async def _schedules(request: Request, caller: Caller, type: str) -> list[str]:
    """Return the schedules that enqueue jobs of this type; none for a company's token."""
    if caller.token.company_id is not None:
        return []
    found = await shared(request).get(("schedules",), caller.management.schedules, _SLOW_SECONDS)
    return [each.name for each in found.schedules if each.job_type == type]


async def _integration(caller: Caller, type: str) -> IntegrationSchema | None:
    """Return the integration that has this job type as an operation, or None."""
    for each in (await caller.management.integrations()).integrations:
        if any(operation.type == type for operation in each.operations):
            return each
    return None
