"""The overview: queues, workers, schedules, the last hour, and warnings."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from rowlock.dashboard import charts
from rowlock.dashboard import filters as words
from rowlock.dashboard.rendering import back, page, rowlock
from rowlock.dashboard.shared_reads import shared
from rowlock.http.middleware.auth import Caller, FleetOperator, Viewer
from rowlock.imports.importer import IMPORT_JOB
from rowlock.management import ManagementService
from rowlock.management.queues import Standing
from rowlock.management.schemas.fleet import BusyWorkerSchema, QueueHistorySchema, QueueSchema
from rowlock.management.schemas.schedules import ScheduleSchema
from rowlock.storage.records import Status

SECONDS = 2.0  # an open page refreshes at most this often, so a hundred pages cost no more than one
MINUTES = 61  # the current minute and the sixty before it: the hour by which the failure watch counts, too
# How many are shown at first, and how many with ?all=1: the busiest ones and those with problems.
QUEUES_FEW, QUEUES_MAX = 20, 100
WORKERS_FEW, WORKERS_MAX = 6, 50
WORKER_JOBS_FEW, WORKER_JOBS_MAX = 2, 6
SCHEDULES_FEW, SCHEDULES_MAX = 8, 100
IMPORTS_MAX = 5
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

router = APIRouter()


@router.get("/")
async def overview(request: Request, caller: Viewer) -> Response:
    if caller.token.company_id is not None:
        return await _own(request, caller)
    app = rowlock(request)
    every = request.query_params.get("all") == "1"
    seen = await shared(request).get("overview", lambda: _seen(caller.management), SECONDS)
    types = sorted(declared.name for declared in app.registry if declared.name != IMPORT_JOB)
    return page(
        request,
        caller,
        "overview.html",
        live="/api/v1/events",
        **seen,
        **_part(seen, "queues", QUEUES_MAX if every else QUEUES_FEW),
        **_part(seen, "workers", WORKERS_MAX if every else WORKERS_FEW),
        **_part(seen, "schedules", SCHEDULES_MAX if every else SCHEDULES_FEW),
        every=every,
        spikes=[each for each in seen["failing"] if each[1] >= app.settings.spike_threshold],
        first_type="healthPing" if "healthPing" in types else next(iter(types), None),
        imports_some=bool(app.importers),
        worker_jobs_max=WORKER_JOBS_MAX if every else WORKER_JOBS_FEW,
    )


async def _own(request: Request, caller: Caller) -> Response:
    """Show a company's token its own jobs and imports."""
    company, management, seen = caller.token.company_id, caller.management, shared(request)
    stats = await seen.get(("stats", company), management.stats)
    imports = await seen.get(("imports", company, IMPORTS_MAX), lambda: management.import_jobs(limit=IMPORTS_MAX))
    return page(request, caller, "overview-own.html", live="/api/v1/events", stats=stats, imports=imports.imports)


# -- actions of operators --------------------------------------------------------------------------


@router.post("/queues/{name:path}/pause")
async def pause_queue(request: Request, caller: FleetOperator, name: str) -> Response:
    await caller.management.pause_queue(name)
    return back(request, "/", f"Queue {name} is paused: its jobs do not start until it is resumed.")


@router.post("/queues/{name:path}/resume")
async def resume_queue(request: Request, caller: FleetOperator, name: str) -> Response:
    await caller.management.resume_queue(name)
    return back(request, "/", f"Queue {name} is resumed.")


@router.post("/schedules/{name:path}/pause")
async def pause_schedule(request: Request, caller: FleetOperator, name: str) -> Response:
    await caller.management.pause_schedule(name)
    return back(request, "/", f"Schedule {name} is paused: it does not run until it is resumed.")


@router.post("/schedules/{name:path}/resume")
async def resume_schedule(request: Request, caller: FleetOperator, name: str) -> Response:
    await caller.management.resume_schedule(name)
    return back(request, "/", f"Schedule {name} is resumed: its next run starts on time.")


@router.post("/schedules/{name:path}/run")
async def run_schedule(request: Request, caller: FleetOperator, name: str) -> Response:
    run = await caller.management.run_schedule(name)
    return back(request, f"/jobs/{run.job_id}", f"Schedule {name} runs now: this is its job.")


# -- data of the page ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue with its failed jobs, and its sums and charts of the last hour."""

    queue: QueueSchema
    failed: int
    done_hour: int
    failed_hour: int
    lag_most: float | None
    done_chart: Markup | None = None
    lag_chart: Markup | None = None


@dataclass(frozen=True, slots=True)
class Hour:
    """The last hour of all queues together."""

    done_hour: int
    failed_hour: int
    peak: int
    lag_most: float | None
    done_chart: Markup | None
    lag_chart: Markup | None


async def _seen(management: ManagementService) -> dict[str, Any]:
    """Return the data of the page, to be shared by all requests; in each kind, the most important comes first."""
    standing, history, doing, schedules = await asyncio.gather(
        management.standing(), management.history(MINUTES), management.doing(), management.schedules()
    )
    hours = history.queues
    rows = sorted((_row(queue, hours, standing) for queue in standing.queues), key=_importance, reverse=True)
    failing = Counter({name: sum(hour.failed_attempts) for name, hour in hours.items()})
    queues = standing.queues
    return {
        "jobs": standing.jobs,
        "waiting": {
            "ready": sum(queue.ready for queue in queues),
            "delayed": sum(queue.delayed for queue in queues),
            "processing": sum(queue.processing for queue in queues),
        },
        "lag_now": max((queue.oldest_ready_seconds or 0 for queue in queues), default=0),
        "warnings": standing.warnings,
        "failing": failing.most_common(),
        "found": {
            "queues": [_charted(row, hours.get(row.queue.name)) for row in rows[:QUEUES_MAX]],
            "workers": sorted(doing.workers, key=_busy),
            "schedules": sorted(schedules.schedules, key=_urgency),
        },
        "counted": {"queues": len(queues)},
        "hour": _hour(list(hours.values())),
        "workers_alive": sum(worker.alive for worker in doing.workers),
    }


def _part(seen: dict[str, Any], kind: str, most: int) -> dict[str, Any]:
    """Return the first `most` of a kind, sorted by name so that they keep their places, and the number left out."""
    found = seen["found"][kind]
    shown = found[:most]
    if kind == "queues":
        shown = sorted(shown, key=lambda row: row.queue.name)
    elif kind == "schedules":  # the busiest workers stay on top
        shown = sorted(shown, key=lambda schedule: schedule.name)
    return {kind: shown, f"{kind}_left_out": seen["counted"].get(kind, len(found)) - len(shown)}


def _row(queue: QueueSchema, hours: Mapping[str, QueueHistorySchema], standing: Standing) -> QueueRow:
    hour = hours.get(queue.name)
    lags = [lag for lag in hour.lag_seconds if lag is not None] if hour else []
    return QueueRow(
        queue,
        failed=standing.ended.get(queue.name, {}).get(Status.FAILED, 0),
        done_hour=sum(hour.succeeded) if hour else 0,
        failed_hour=sum(hour.failed) if hour else 0,
        lag_most=max(lags, default=None),
    )


def _charted(row: QueueRow, hour: QueueHistorySchema | None) -> QueueRow:
    """Return a row with its small charts."""
    done_chart, lag_chart, whose = None, None, f"Queue {row.queue.name}"
    if hour and (row.done_hour or row.failed_hour):
        done, failed = charts.coarser(hour.succeeded, sum), charts.coarser(hour.failed, sum)
        done_chart = charts.bars(done, failed, f"{whose}, last hour: {_ended(hour.succeeded, hour.failed)}")
    if hour and row.lag_most:
        lags = charts.coarser(hour.lag_seconds, max)
        lag_chart = charts.line(lags, f"{whose}, last hour: {_waited(row.lag_most)}", filled=False)
    return replace(row, done_chart=done_chart, lag_chart=lag_chart)


def _hour(queues: Sequence[QueueHistorySchema]) -> Hour:
    """Return the last hour of all queues together: sums, the longest lag, and charts."""
    done = [sum(minute) for minute in zip(*(queue.succeeded for queue in queues), strict=True)]
    failed = [sum(minute) for minute in zip(*(queue.failed for queue in queues), strict=True)]
    known = (
        [lag for lag in minute if lag is not None] for minute in zip(*(q.lag_seconds for q in queues), strict=True)
    )
    lags = [max(minute, default=None) for minute in known]
    most = max((lag for lag in lags if lag is not None), default=None)
    peak = _peak(done, failed)
    return Hour(
        sum(done),
        sum(failed),
        peak,
        most,
        charts.bars(done, failed, f"All queues, last hour: {_ended(done, failed)}") if peak else None,
        charts.line(lags, f"All queues, last hour: {_waited(most)}") if most else None,
    )


def _ended(done: Sequence[int], failed: Sequence[int]) -> str:
    peak = _peak(done, failed)
    return f"{sum(done):,} done, {sum(failed):,} failed, at most {peak:,} in a minute"


def _waited(most: float | None) -> str:
    return f"the oldest waiting job waited {words.seconds(most)} at most"


def _peak(done: Sequence[int], failed: Sequence[int]) -> int:
    return max(map(sum, zip(done, failed, strict=True)), default=0)


def _importance(row: QueueRow) -> tuple[Any, ...]:
    queue = row.queue
    return queue.paused, queue.ready + queue.processing + row.failed, row.done_hour, queue.delayed


def _busy(worker: BusyWorkerSchema) -> tuple[Any, ...]:
    return not worker.alive, -len(worker.jobs), worker.name


def _urgency(schedule: ScheduleSchema) -> tuple[Any, ...]:
    """Sort key: schedules whose last run failed, then active ones, then paused ones, each by next run."""
    last = schedule.last_run
    return not (last and last.error), schedule.paused, schedule.next_at or _LONG_AGO, schedule.name
