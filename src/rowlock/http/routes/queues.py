"""/api/v1/queues, workers, schedules and health: routes that concern all companies."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from rowlock.http.json_response import answer, polled
from rowlock.http.middleware.auth import FleetOperator, FleetViewer
from rowlock.http.middleware.idempotency_key import reserved
from rowlock.http.openapi import NOT_MODIFIED, fails
from rowlock.http.routes.jobs import LimitQuery
from rowlock.management.schemas.base import Name
from rowlock.management.schemas.fleet import DoingSchema, HealthSchema, HistorySchema, QueuesSchema, SwitchedSchema
from rowlock.management.schemas.schedules import (
    RunsSchema,
    SchedulePausedSchema,
    ScheduleResumedSchema,
    ScheduleRunSchema,
    SchedulesSchema,
)
from rowlock.storage.overview import HISTORY_MINUTES_MAX

router = APIRouter(prefix="/api/v1")

QueueName = Annotated[Name, Path(examples=["default"])]
ScheduleName = Annotated[Name, Path(examples=["nightly"])]


@router.get(
    "/health",
    tags=["fleet"],
    response_model=HealthSchema,
    responses=NOT_MODIFIED,
    summary="Health of the database, queues and workers",
)
async def health(request: Request, caller: FleetViewer) -> Response:
    """Jobs, queues, workers and warnings, as in `rowlock health --json`."""
    return polled(request, await caller.management.health())


@router.get("/queues", tags=["fleet"], response_model=QueuesSchema, responses=NOT_MODIFIED, summary="List queues")
async def queues(request: Request, caller: FleetViewer) -> Response:
    return polled(request, await caller.management.queues())


@router.get(
    "/queues/history",
    tags=["fleet"],
    response_model=HistorySchema,
    responses=NOT_MODIFIED,
    summary="Get the last minutes of every queue",
)
async def history(
    request: Request,
    caller: FleetViewer,
    minutes: Annotated[int, Query(ge=1, le=HISTORY_MINUTES_MAX, description="Number of minutes, at most a day.")] = 60,
) -> Response:
    """Succeeded and failed jobs per minute, and the waiting time of the oldest available job."""
    return polled(request, await caller.management.history(minutes))


@router.get(
    "/workers",
    tags=["fleet"],
    response_model=DoingSchema,
    responses=NOT_MODIFIED,
    summary="List workers with their running jobs",
)
async def doing(request: Request, caller: FleetViewer) -> Response:
    return polled(request, await caller.management.doing())


@router.post("/queues/{name:path}/pause", tags=["fleet"], response_model=SwitchedSchema, summary="Pause a queue")
async def pause_queue(caller: FleetOperator, name: QueueName) -> Response:
    """None of its jobs starts, on any machine, until it is resumed. Running jobs continue."""
    return answer(await caller.management.switch(name, paused=True))


@router.post("/queues/{name:path}/resume", tags=["fleet"], response_model=SwitchedSchema, summary="Resume a queue")
async def resume_queue(caller: FleetOperator, name: QueueName) -> Response:
    return answer(await caller.management.switch(name, paused=False))


@router.get(
    "/schedules",
    tags=["schedules"],
    response_model=SchedulesSchema,
    responses=NOT_MODIFIED,
    summary="List schedules with their next time and last run",
)
async def schedules(request: Request, caller: FleetViewer) -> Response:
    return polled(request, await caller.management.schedules())


@router.get(
    "/schedules/runs",
    tags=["schedules"],
    response_model=RunsSchema,
    responses=NOT_MODIFIED,
    summary="List runs, newest first",
)
async def runs(
    request: Request,
    caller: FleetViewer,
    name: Annotated[Name | None, Query(description="Only runs of this schedule.")] = None,
    limit: LimitQuery = 50,
) -> Response:
    return polled(request, await caller.management.runs(name, limit=limit))


@router.post(
    "/schedules/{name:path}/pause",
    tags=["schedules"],
    response_model=SchedulePausedSchema,
    responses=fails(404),
    summary="Pause a schedule",
)
async def pause_schedule(caller: FleetOperator, name: ScheduleName) -> Response:
    return answer(await caller.management.pause_schedule(name))


@router.post(
    "/schedules/{name:path}/resume",
    tags=["schedules"],
    response_model=ScheduleResumedSchema,
    responses=fails(404),
    summary="Resume a schedule",
)
async def resume_schedule(caller: FleetOperator, name: ScheduleName) -> Response:
    """It continues with its next time; times that passed meanwhile are skipped."""
    return answer(await caller.management.resume_schedule(name))


@router.post(
    "/schedules/{name:path}/run",
    tags=["schedules"],
    response_model=ScheduleRunSchema,
    responses=fails(404),
    summary="Run the job of a schedule now",
)
async def run_schedule(request: Request, caller: FleetOperator, name: ScheduleName) -> Response:
    return answer(await caller.management.run_schedule(name, reserved=reserved(request)))
