"""The overview: is all well, and where not?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from rowlock.desk import Desk
from rowlock.imports.importer import IMPORT_JOB
from rowlock.shapes import Shape
from rowlock.web.guard import Caller, FleetOperator, Viewer
from rowlock.web.pages import charts, words
from rowlock.web.pages.paint import back, page, rowlock
from rowlock.web.pages.shared import shared

SECONDS = 2.0  # as often as one open page asks again at most: many of them cost no more than it
QUEUES_MAX = 100  # how many are shown: those where most is waiting or wrong
WORKERS_MAX = 50
WORKER_JOBS_MAX = 6
SCHEDULES_MAX = 100
IMPORTS_MAX = 5

router = APIRouter()


@router.get("/")
async def overview(request: Request, caller: Viewer) -> Response:
    if caller.token.company_id is not None:
        return await _own(request, caller)
    app = rowlock(request)
    seen = await shared(request).get("overview", lambda: _seen(caller.desk), SECONDS)
    types = sorted(declared.name for declared in app.registry if declared.name != IMPORT_JOB)
    return page(
        request,
        caller,
        "overview.html",
        live="/api/v1/events",
        **seen,
        spike=seen["failed_attempts"] >= app.settings.spike_threshold,
        first_type="healthPing" if "healthPing" in types else next(iter(types), None),
        imports_some=bool(app.importers),
        worker_jobs_max=WORKER_JOBS_MAX,
    )


async def _own(request: Request, caller: Caller) -> Response:
    """What a company's token sees: its own jobs and imports."""
    company, desk, seen = caller.token.company_id, caller.desk, shared(request)
    stats = await seen.get(("stats", company), desk.stats)
    imports = await seen.get(("imports", company, IMPORTS_MAX), lambda: desk.import_jobs(limit=IMPORTS_MAX))
    found = imports["imports"]
    return page(request, caller, "overview-own.html", live="/api/v1/events", stats=stats, imports=found)


# -- what operators may do -------------------------------------------------------------------------


@router.post("/queues/{name:path}/pause")
async def pause_queue(request: Request, caller: FleetOperator, name: str) -> Response:
    await caller.desk.switch(name, paused=True)
    return back(request, "/", f"Queue {name} is paused: nothing of it starts until it is resumed.")


@router.post("/queues/{name:path}/resume")
async def resume_queue(request: Request, caller: FleetOperator, name: str) -> Response:
    await caller.desk.switch(name, paused=False)
    return back(request, "/", f"Queue {name} is worked on again.")


@router.post("/schedules/{name:path}/pause")
async def pause_schedule(request: Request, caller: FleetOperator, name: str) -> Response:
    await caller.desk.pause_schedule(name)
    return back(request, "/", f"Schedule {name} is paused: it does not run until it is resumed.")


@router.post("/schedules/{name:path}/resume")
async def resume_schedule(request: Request, caller: FleetOperator, name: str) -> Response:
    await caller.desk.resume_schedule(name)
    return back(request, "/", f"Schedule {name} goes on with its next run.")


@router.post("/schedules/{name:path}/run")
async def run_schedule(request: Request, caller: FleetOperator, name: str) -> Response:
    told = await caller.desk.run_schedule(name)
    return back(request, f"/jobs/{told['jobId']}", f"Schedule {name} runs now, out of turn: this is its job.")


# -- what is seen ----------------------------------------------------------------------------------


async def _seen(desk: Desk) -> dict[str, Any]:
    """All of it, once for all who look."""
    standing, history, doing, schedules, totals = await asyncio.gather(
        desk.standing(), desk.history(), desk.doing(), desk.schedules(), desk.totals()
    )
    queues = [_queue(queue, history["queues"].get(queue["name"]), totals["queues"]) for queue in standing["queues"]]
    failing = Counter({name: sum(queue["failedAttempts"]) for name, queue in history["queues"].items()})
    shown = sorted(queues, key=_importance, reverse=True)[:QUEUES_MAX]
    workers = sorted(doing["workers"], key=lambda w: (not w["alive"], -len(w["jobs"]), w["name"]))
    return {
        "jobs": standing["jobs"],
        "waiting": {state: sum(queue[state] for queue in queues) for state in ("ready", "delayed", "processing")},
        "warnings": standing["warnings"],
        "failed_attempts": failing.total(),
        "failing": [name for name, count in failing.most_common(3) if count],
        "queues": sorted(shown, key=lambda queue: queue["name"]),
        "queues_left_out": len(queues) - len(shown),
        "hour": _hour(list(history["queues"].values())),
        "workers": workers[:WORKERS_MAX],
        "workers_left_out": max(0, len(workers) - WORKERS_MAX),
        "workers_alive": sum(worker["alive"] for worker in workers),
        "schedules": schedules["schedules"][:SCHEDULES_MAX],
        "schedules_left_out": max(0, len(schedules["schedules"]) - SCHEDULES_MAX),
    }


def _queue(queue: Shape, history: Shape | None, totals: dict[str, Shape]) -> Shape:
    """A queue with what became of its jobs, and its charts."""
    name, told = queue["name"], queue | {"failed": totals.get(queue["name"], {}).get("failed", 0)}
    if history is None:
        return told | {"done_hour": 0, "failed_hour": 0, "lag_most": None, "done_chart": None, "lag_chart": None}
    return told | _charted(history, f"Queue {name}")


def _charted(history: Shape, whose: str) -> Shape:
    """The last hour of one queue, or of all: in sum, and as charts."""
    done, failed, lags = history["succeeded"], history["failed"], history["lagSeconds"]
    known = [lag for lag in lags if lag is not None]
    most, peak = max(known, default=None), max(map(sum, zip(done, failed, strict=True)), default=0)
    told = f"{whose}, last hour: {sum(done):,} done, {sum(failed):,} failed for good, at most {peak:,} in a minute"
    waited = f"{whose}, last hour: the oldest waiting job had waited {words.seconds(most)} at most"
    return {
        "done_hour": sum(done),
        "failed_hour": sum(failed),
        "peak": peak,
        "lag_most": most,
        "lag_now": known[-1] if known else None,
        "done_chart": charts.bars(done, failed, told) if peak else None,
        "lag_chart": charts.line(lags, waited) if most else None,
    }


def _hour(queues: Sequence[Shape]) -> Shape:
    """The last hour of all queues together: sums, and the longest lag."""
    columns = {name: zip(*(queue[name] for queue in queues), strict=True) for name in ("succeeded", "failed")}
    lags = zip(*(queue["lagSeconds"] for queue in queues), strict=True)
    added = {
        **{name: [sum(minute) for minute in minutes] for name, minutes in columns.items()},
        "lagSeconds": [max((lag for lag in minute if lag is not None), default=None) for minute in lags],
    }
    return _charted(added, "All queues")


def _importance(queue: Shape) -> tuple[Any, ...]:
    return queue["paused"], queue["ready"] + queue["processing"] + queue["failed"], queue["done_hour"], queue["delayed"]
