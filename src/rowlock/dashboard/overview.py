"""The overview: queues, workers, schedules, the last hour, and warnings."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from rowlock.dashboard import charts
from rowlock.dashboard import filters as words
from rowlock.dashboard.rendering import back, page, rowlock
from rowlock.dashboard.shared_reads import shared
from rowlock.http.middleware.auth import Caller, FleetOperator, Viewer
from rowlock.imports.importer import IMPORT_JOB
from rowlock.management import ManagementService
from rowlock.management.schemas import Shape

SECONDS = 2.0  # an open page refreshes at most this often, so a hundred pages cost no more than one
MINUTES = 61  # the current minute and the sixty before it: the hour by which the failure watch counts, too
# How many are shown at first, and how many with ?all=1: the busiest ones and those with problems.
QUEUES_FEW, QUEUES_MAX = 20, 100
WORKERS_FEW, WORKERS_MAX = 6, 50
WORKER_JOBS_FEW, WORKER_JOBS_MAX = 2, 6
SCHEDULES_FEW, SCHEDULES_MAX = 8, 100
IMPORTS_MAX = 5

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
    found = imports["imports"]
    return page(request, caller, "overview-own.html", live="/api/v1/events", stats=stats, imports=found)


# -- actions of operators --------------------------------------------------------------------------


@router.post("/queues/{name:path}/pause")
async def pause_queue(request: Request, caller: FleetOperator, name: str) -> Response:
    await caller.management.switch(name, paused=True)
    return back(request, "/", f"Queue {name} is paused: its jobs do not start until it is resumed.")


@router.post("/queues/{name:path}/resume")
async def resume_queue(request: Request, caller: FleetOperator, name: str) -> Response:
    await caller.management.switch(name, paused=False)
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
    told = await caller.management.run_schedule(name)
    return back(request, f"/jobs/{told['jobId']}", f"Schedule {name} runs now: this is its job.")


# -- data of the page ------------------------------------------------------------------------------


async def _seen(management: ManagementService) -> dict[str, Any]:
    """Return the data of the page, to be shared by all requests; in each kind, the most important comes first."""
    standing, history, doing, schedules = await asyncio.gather(
        management.standing(), management.history(MINUTES), management.doing(), management.schedules()
    )
    hours: dict[str, Shape] = history["queues"]
    queues = [_queue(queue, hours.get(queue["name"]), standing["ended"]) for queue in standing["queues"]]
    queues.sort(key=_importance, reverse=True)
    failing = Counter({name: sum(hour["failedAttempts"]) for name, hour in hours.items()})
    return {
        "jobs": standing["jobs"],
        "waiting": {state: sum(queue[state] for queue in queues) for state in ("ready", "delayed", "processing")},
        "lag_now": max((queue["oldestReadySeconds"] or 0 for queue in queues), default=0),
        "warnings": standing["warnings"],
        "failing": failing.most_common(),
        "found": {
            "queues": [_sparks(queue, hours.get(queue["name"])) for queue in queues[:QUEUES_MAX]],
            "workers": sorted(doing["workers"], key=lambda w: (not w["alive"], -len(w["jobs"]), w["name"])),
            "schedules": sorted(schedules["schedules"], key=_urgency),
        },
        "counted": {"queues": len(queues)},
        "hour": _hour(list(hours.values())),
        "workers_alive": sum(worker["alive"] for worker in doing["workers"]),
    }


def _part(seen: Shape, kind: str, most: int) -> Shape:
    """Return the first `most` of a kind, sorted by name so that they keep their places, and the number left out."""
    found = seen["found"][kind]
    shown = found[:most]
    if kind != "workers":  # the busiest stay on top
        shown = sorted(shown, key=lambda each: str(each["name"]))
    return {kind: shown, f"{kind}_left_out": seen["counted"].get(kind, len(found)) - len(shown)}


def _queue(queue: Shape, hour: Shape | None, ended: dict[str, Shape]) -> Shape:
    """Return a queue with its failed jobs and its sums of the last hour."""
    done, failed, lags = (hour["succeeded"], hour["failed"], hour["lagSeconds"]) if hour else ([], [], [])
    return queue | {
        "failed": ended.get(queue["name"], {}).get("failed", 0),
        "done_hour": sum(done),
        "failed_hour": sum(failed),
        "lag_most": max((lag for lag in lags if lag is not None), default=None),
    }


def _sparks(queue: Shape, hour: Shape | None) -> Shape:
    """Return a queue with its small charts."""
    done_chart, lag_chart, whose = None, None, f"Queue {queue['name']}"
    if hour and (queue["done_hour"] or queue["failed_hour"]):
        done, failed = (charts.coarser(hour[name], sum) for name in ("succeeded", "failed"))
        done_chart = charts.bars(done, failed, f"{whose}, last hour: {_ended(hour)}")
    if hour and queue["lag_most"]:
        lags = charts.coarser(hour["lagSeconds"], max)
        lag_chart = charts.line(lags, f"{whose}, last hour: {_waited(queue['lag_most'])}", filled=False)
    return queue | {"done_chart": done_chart, "lag_chart": lag_chart}


def _hour(queues: Sequence[Shape]) -> Shape:
    """Return the last hour of all queues together: sums, the longest lag, and charts."""
    done, failed = (
        [sum(minute) for minute in zip(*(q[name] for q in queues), strict=True)] for name in ("succeeded", "failed")
    )
    known = (
        [lag for lag in minute if lag is not None] for minute in zip(*(q["lagSeconds"] for q in queues), strict=True)
    )
    lags = [max(minute, default=None) for minute in known]
    most = max((lag for lag in lags if lag is not None), default=None)
    added = {"succeeded": done, "failed": failed}
    return {
        "done_hour": sum(done),
        "failed_hour": sum(failed),
        "peak": _peak(added),
        "lag_most": most,
        "done_chart": charts.bars(done, failed, f"All queues, last hour: {_ended(added)}") if _peak(added) else None,
        "lag_chart": charts.line(lags, f"All queues, last hour: {_waited(most)}") if most else None,
    }


def _ended(hour: Shape) -> str:
    done, failed = sum(hour["succeeded"]), sum(hour["failed"])
    return f"{done:,} done, {failed:,} failed, at most {_peak(hour):,} in a minute"


def _waited(most: float | None) -> str:
    return f"the oldest waiting job waited {words.seconds(most)} at most"


def _peak(hour: Shape) -> int:
    return max(map(sum, zip(hour["succeeded"], hour["failed"], strict=True)), default=0)


def _importance(queue: Shape) -> tuple[Any, ...]:
    return queue["paused"], queue["ready"] + queue["processing"] + queue["failed"], queue["done_hour"], queue["delayed"]


def _urgency(schedule: Shape) -> tuple[Any, ...]:
    """Sort key: schedules whose last run failed, then active ones, then paused ones, each by next run."""
    last = schedule["lastRun"]
    return not (last and last["error"]), schedule["paused"], schedule["nextAt"] or "", schedule["name"]
