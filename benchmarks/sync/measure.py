"""Measure contact updates into an idle worker, until the last one has reached the service."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import report
from benchmarks.clients import ClientError
from benchmarks.imports.worker_tree import WorkerTree, workers
from benchmarks.places import PostgresPlace, SqlitePlace
from benchmarks.plan import Plan
from benchmarks.server import Server
from benchmarks.sync.app import CALLS, SECONDS, application
from benchmarks.sync.bars import CASES, PART
from benchmarks.usage import cpu
from rowlock import Rowlock, RowlockError
from rowlock.settings import load

NAMES = (PART, *CASES)
BATCH = 100
_TESTS = Path(__file__).resolve().parent.parent.parent / "tests"
_APP = "benchmarks.sync.app:app"
_LOOK_SECONDS = 0.1
_WARM = 50
_ENSURED_SECONDS_MAX = 60.0  # it starts 15 s after a worker


def chosen(only: Sequence[str]) -> list[str]:
    """Return the named cases; all if none is named, or if the part is named."""
    return [case for case in CASES if not only or PART in only or case in only]


def measure(plan: Plan, server: Server, directory: Path, cases: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Measure every case, with one entry per repetition."""
    runs: dict[str, list[dict[str, Any]]] = {case: [] for case in cases}
    for _ in range(plan.repeat):
        for case in cases:
            try:
                entry = _measure_case(plan, server, directory, case)
            except (ClientError, RowlockError, OSError, psycopg.Error, subprocess.TimeoutExpired) as error:
                entry = {"error": report.without_paths(f"{type(error).__name__}: {error}")}
            runs[case].append(entry)
            print(f"{time.strftime('%H:%M:%S')} {PART:16} {case:22} {report.line(entry)}", flush=True)
    return runs


def _measure_case(plan: Plan, server: Server, directory: Path, case: str) -> dict[str, Any]:
    where = PostgresPlace(server, "sync") if case == CASES[0] else SqlitePlace(directory / "sync-sqlite")
    where.reset()
    sys.path[:0] = [] if str(_TESTS) in sys.path else [str(_TESTS)]
    from sync.standin import StandIn  # of the tests

    try:
        with StandIn() as standin:
            standin.limits(CALLS, SECONDS)
            return asyncio.run(_measured(plan, where, directory, standin))
    finally:
        where.remove()


async def _measured(plan: Plan, where: PostgresPlace | SqlitePlace, directory: Path, standin: Any) -> dict[str, Any]:
    url = where.url if isinstance(where, PostgresPlace) else f"sqlite:///{where.url}"
    told = {"DATABASE_URL": url, "ROWLOCK_HUBSPOT_URL": standin.url, "ROWLOCK_HUBSPOT_TOKEN": standin.token}
    app = application(load(database_url=url, hubspot_url=standin.url, hubspot_token=standin.token))
    emails = [f"m{number}@x.org" for number in range(plan.sync_updates)]
    standin.objects("contacts", [{"email": email} for email in emails])
    try:
        await app.migrate()
        with workers(_APP, told, directory, 1, queues=app.integrations["hubspot"].queues) as running:
            return await _run(app, running, where, standin, emails, plan.sync_seconds_max)
    finally:
        await app.close()


async def _run(
    app: Rowlock,
    running: WorkerTree,
    where: PostgresPlace | SqlitePlace,
    standin: Any,
    emails: list[str],
    seconds_max: float,
) -> dict[str, Any]:
    hub = app.integrations["hubspot"]
    await hub.enqueue_many("update_contact", [_update(email, "warm") for email in emails[:_WARM]])
    await _done(app, running, seconds_max)
    await _ensured(app, running)
    await asyncio.sleep(2 * SECONDS)  # until the whole limit is available again
    warm = len(standin.journal())
    used, began = cpu([running.pid], where.server_pid), time.monotonic()
    await hub.enqueue_many("update_contact", [_update(email, "done") for email in emails])
    await _done(app, running, seconds_max)
    spent = cpu([running.pid], where.server_pid) - used
    calls = standin.journal()[warm:]
    wrong = sum(each.get("city") != "done" for each in standin.things("contacts"))
    judged = standin.judgement()
    if wrong or judged["complaints"]:
        raise ClientError(f"{wrong} contacts were not updated; complaints: {judged['complaints'][:3]}")
    seconds = max(call["worked"] for call in calls) - began
    needed = math.ceil(len(emails) / BATCH)
    allowed = (needed - 1) // CALLS * SECONDS
    return {
        "updates": len(emails),
        "calls": len(calls),
        "needed_calls": needed,
        "seconds": seconds,
        "allowed_seconds": allowed,
        "share": seconds / allowed,
        "first_ms": (min(call["arrived"] for call in calls) - began) * 1_000,
        "most": judged["windows"][0]["most"],
        "overruns": judged["windows"][0]["overruns"],
        "client_cpu_us": spent.client / len(emails) / 1_000,
        "other_cores": max(0.0, spent.others / seconds / 1e9),
    }


def _update(email: str, city: str) -> Mapping[str, Any]:
    return {"email": email, "properties": {"city": city}}


async def _ensured(app: Rowlock, running: WorkerTree) -> None:
    """Wait for the job that runs at each start: its calls count against the limit, too."""
    ends = time.monotonic() + _ENSURED_SECONDS_MAX
    while not (await app.jobs(status="succeeded", type="hubspot.ensure", limit=1)).jobs:
        if time.monotonic() > ends:
            raise ClientError(f"hubspot.ensure was not done in {_ENSURED_SECONDS_MAX:g} s")
        running.check()
        await asyncio.sleep(_LOOK_SECONDS)


async def _done(app: Rowlock, running: WorkerTree, seconds_max: float) -> None:
    ends = time.monotonic() + seconds_max
    while time.monotonic() < ends:
        found = await app.integrations["hubspot"].stats()
        if not found["pending"] and not found["processing"] and not found["failed"]:
            if found["dead"]:
                raise ClientError(f"jobs died: {found}")
            return
        running.check()
        await asyncio.sleep(_LOOK_SECONDS)
    raise ClientError(f"not done in {seconds_max:g} s: {found}; {os.linesep}{running.log.read_text()[-1500:]}")
