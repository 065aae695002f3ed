"""I8: workers' clocks do not matter: outcomes are the same with a clock an hour ahead or behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.databases import Database
from faults.processes import QUICK, TESTS, Fleet, Tree
from faults.producer import Producer
from faults.until import after, until

HOUR_SECONDS = 3_600
LEASE_SECONDS = 2.5  # longer than a supervisor on a busy machine stands still
LEASE = {"QUEUE_VISIBILITY_MS": "2500"}
PATIENCE_SECONDS = 60.0  # by a wrong clock the wait would be an hour
copies = pytest.mark.parametrize(
    "copies",
    [pytest.param(1, id="short"), pytest.param(10, id="long", marks=[pytest.mark.long, pytest.mark.timeout(300)])],
)


def worker_at(fleet: Fleet, database: Database, offset_seconds: int, mutant: str = "") -> Tree:
    """Start a tree of processes with a clock that is ahead or behind."""
    skewed = Path(__file__).parent / "skewed"
    return fleet.worker(
        database,
        ready=False,
        concurrency=50,  # room for the other tree's jobs
        PYTHONPATH=":".join(filter(None, [str(skewed), str(TESTS), os.environ.get("PYTHONPATH")])),
        FAULTS_CLOCK_SECONDS=str(offset_seconds),
        FAULTS_MUTANT=mutant,
        **LEASE,
    )


def both(fleet: Fleet, database: Database, mutant: str = "") -> tuple[Tree, Tree]:
    ahead, behind = (worker_at(fleet, database, offset, mutant) for offset in (HOUR_SECONDS, -HOUR_SECONDS))
    for tree in (ahead, behind):
        fleet.await_workers(tree, database)
        (stamp,) = {event["timestamp"][:13] for event in tree.events("worker.started")}
        assert stamp != time.strftime("%Y-%m-%dT%H", time.gmtime()), "the clock of these workers is right"
    return ahead, behind


@copies
def test_workers_an_hour_ahead_and_behind_do_the_same(
    database: Database, fleet: Fleet, copies: int, figure: Callable[[str], None]
) -> None:
    ahead, behind = both(fleet, database)
    with Producer(database, {**QUICK, **LEASE}) as producer:
        # Longer than a lease: a rescue by the wrong clock would take these jobs.
        steady = producer.put("nap", 6 * copies, seconds=1.5 * LEASE_SECONDS)
        asked = time.monotonic()
        delayed = producer.put("nap", 4 * copies, options={"delay_seconds": 1.0})
    until(lambda: database.waiting() == 0, PATIENCE_SECONDS + 10 * copies, lambda: ahead.tail() + behind.tail())
    starts = fleet.journal.by_job("start")
    assert {job: len(starts[job]) for job in steady + delayed} == dict.fromkeys(steady + delayed, 1)
    assert {(job.status, job.attempts) for job in database.records().values()} == {("succeeded", 1)}
    waits = [starts[job][0].at - asked for job in delayed]
    assert min(waits) >= 1.0
    assert max(waits) < PATIENCE_SECONDS + 10 * copies

    until_killed = [rescued_from(fleet, database, ahead, behind)]
    if copies > 1:  # the check above showed that the tree ahead takes nothing too early
        ahead = worker_at(fleet, database, HOUR_SECONDS)
        fleet.await_workers(ahead, database)
        until_killed.append(rescued_from(fleet, database, behind, ahead))
    figure(
        f"I8 {database.kind}: an hour ahead and behind: {len(steady + delayed)} long and delayed jobs, once each; "
        f"rescued at most {max(until_killed):.2f} s after a death (lease {LEASE_SECONDS:g} s)"
    )


def rescued_from(fleet: Fleet, database: Database, dying: Tree, heir: Tree) -> float:
    """Kill a tree that runs jobs. Returns the seconds until they run in the other tree."""
    pids = set(dying.workers())

    def in_dying() -> set[str]:
        return {e.job for e in fleet.journal.all("start") if e.pid in pids} - fleet.journal.jobs("end")

    with Producer(database, {**QUICK, **LEASE}) as producer:
        while not in_dying():
            producer.put("nap", seconds=600, again=0)
            until(lambda: not database.ready(), 60, heir.tail)
    jobs, killed = in_dying(), time.monotonic()
    dying.kill()
    until(lambda: jobs <= fleet.journal.jobs("end"), PATIENCE_SECONDS, heir.tail)
    return max(e.at for e in fleet.journal.all("end") if e.job in jobs) - killed


def test_a_pause_asked_for_by_a_worker_with_a_wrong_clock_ends_in_time(database: Database, fleet: Fleet) -> None:
    """A service sets the end in true time; a worker whose clock is an hour behind must not wait an hour."""
    tree = worker_at(fleet, database, -HOUR_SECONDS)
    with Producer(database) as producer:
        (job,) = producer.put("throttled", until=time.time() + 1.0)
    until(lambda: job in fleet.journal.jobs("end"), PATIENCE_SECONDS, tree.tail)
    first, second = fleet.journal.by_job("start")[job]
    assert second.at - first.at < PATIENCE_SECONDS


def test_the_attack_notices_leases_by_local_time(database: Database, fleet: Fleet) -> None:
    both(fleet, database, mutant="local_clock")

    def taken_twice() -> bool:
        nonlocal pause
        if pause():
            producer.put("nap", seconds=1.5 * LEASE_SECONDS)  # until the tree behind has a job
            pause = after(0.1)
        return any(len(starts) > 1 for starts in fleet.journal.by_job("start").values())

    pause = after(0)
    with Producer(database) as producer:
        until(taken_twice, 60, "no job was taken twice")
