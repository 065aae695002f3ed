"""I8: workers' clocks do not matter: an hour ahead, an hour behind, the same outcomes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.databases import Database
from faults.processes import TESTS, Fleet, Tree
from faults.producer import Producer
from faults.until import until

HOUR_SECONDS = 3_600
LEASE_SECONDS = 1.0
SLACK_SECONDS = 2.5
copies = pytest.mark.parametrize(
    "copies",
    [pytest.param(1, id="short"), pytest.param(10, id="long", marks=[pytest.mark.long, pytest.mark.timeout(300)])],
)


def worker_at(fleet: Fleet, database: Database, offset_seconds: int, mutant: str = "") -> Tree:
    """A tree of processes that believe it is later, or earlier."""
    skewed = Path(__file__).parent / "skewed"
    return fleet.worker(
        database,
        ready=False,
        concurrency=50,  # room for what the other leaves behind
        PYTHONPATH=":".join(filter(None, [str(skewed), str(TESTS), os.environ.get("PYTHONPATH")])),
        FAULTS_CLOCK_SECONDS=str(offset_seconds),
        FAULTS_MUTANT=mutant,
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
    with Producer(database) as producer:
        # Longer than a lease: a rescue by the wrong clock would take them.
        steady = producer.put("nap", 6 * copies, seconds=1.5 * LEASE_SECONDS)
        asked = time.monotonic()
        delayed = producer.put("nap", 4 * copies, options={"delay_seconds": 1.0})
    until(lambda: database.waiting() == 0, 20 + 10 * copies, lambda: ahead.tail() + behind.tail())
    starts = fleet.journal.by_job("start")
    assert {job: len(starts[job]) for job in steady + delayed} == dict.fromkeys(steady + delayed, 1)
    assert {(job.status, job.attempts) for job in database.records().values()} == {("succeeded", 1)}
    waits = [starts[job][0].at - asked for job in delayed]
    assert min(waits) >= 1.0
    assert max(waits) < (1.0 + SLACK_SECONDS) * copies

    until_killed = [rescued_from(fleet, database, ahead, behind)]
    ahead = worker_at(fleet, database, HOUR_SECONDS)
    fleet.await_workers(ahead, database)
    until_killed.append(rescued_from(fleet, database, behind, ahead))
    figure(
        f"I8 {database.kind}: an hour ahead and behind: {len(steady + delayed)} long and delayed jobs, once each; "
        f"rescued {until_killed[0]:.2f} s and {until_killed[1]:.2f} s after a death (lease {LEASE_SECONDS:g} s)"
    )


def rescued_from(fleet: Fleet, database: Database, dying: Tree, heir: Tree) -> float:
    """Kill a tree that runs jobs; how long until they run in the other, in seconds."""
    pids = set(dying.workers())

    def in_dying() -> set[str]:
        return {e.job for e in fleet.journal.all("start") if e.pid in pids} - fleet.journal.jobs("end")

    with Producer(database) as producer:
        while not in_dying():
            producer.put("nap", seconds=600, again=0)
            until(lambda: not database.ready(), 10, heir.tail)
    jobs, killed = in_dying(), time.monotonic()
    dying.kill()
    until(lambda: jobs <= fleet.journal.jobs("end"), LEASE_SECONDS + SLACK_SECONDS, heir.tail)
    return max(e.at for e in fleet.journal.all("end") if e.job in jobs) - killed


def test_a_pause_asked_for_by_a_worker_with_a_wrong_clock_ends_in_time(database: Database, fleet: Fleet) -> None:
    """The other side said until when, in true time; an hour behind, a worker must not make an hour of it."""
    tree = worker_at(fleet, database, -HOUR_SECONDS)
    with Producer(database) as producer:
        (job,) = producer.put("throttled", until=time.time() + 1.0)
    until(lambda: job in fleet.journal.jobs("end"), 15, tree.tail)
    first, second = fleet.journal.by_job("start")[job]
    assert second.at - first.at < 1.0 + SLACK_SECONDS


def test_the_attack_notices_leases_by_local_time(database: Database, fleet: Fleet) -> None:
    both(fleet, database, mutant="local_clock")

    def taken_twice() -> bool:
        producer.put("nap", seconds=1.5 * LEASE_SECONDS)  # until the one behind gets some, for the one ahead to take
        return any(len(starts) > 1 for starts in fleet.journal.by_job("start").values())

    with Producer(database) as producer:
        until(taken_twice, 10, "no job was taken twice")
