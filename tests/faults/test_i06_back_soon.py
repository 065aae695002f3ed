"""I6: a dead worker's jobs run again soon: at once where its supervisor lives, else when their lease has run out."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from faults.databases import Database
from faults.processes import Fleet
from faults.producer import Producer
from faults.until import until

SOON_SECONDS = 1.0
BUSY_MACHINE_SECONDS = 1.0  # two cores shared with others: the figure is what counts
LEASE_SECONDS = 1.0
AFTER_LEASE_SECONDS = 2.0
JOBS = 4


def started_again(fleet: Fleet, jobs: set[str], since: float) -> float | None:
    """How long after a moment the last of these jobs was started again; None while one was not."""
    again = {e.job: e.at for e in reversed(fleet.journal.all("start")) if e.at > since and e.job in jobs}
    return max(again.values()) - since if set(again) == jobs else None


def now_in(fleet: Fleet, pids: set[int]) -> set[str]:
    """The jobs that run in one of these processes."""
    starts, ended = fleet.journal.by_job("start"), fleet.journal.jobs("end")
    return {job for job, entries in starts.items() if entries[-1].pid in pids and job not in ended}


def kill_workers_and_trees(
    fleet: Fleet, database: Database, rounds: int, mutant: str = ""
) -> tuple[list[float], list[float]]:
    """Measure, in seconds, how long jobs are away when a worker process dies, and when its whole tree does."""
    after_worker, after_tree = [], []

    def put_and_start() -> None:
        with Producer(database) as producer:
            jobs = set(producer.put("nap", JOBS, seconds=600, again=0))
        until(lambda: jobs <= fleet.journal.jobs("start"), 20, tree.tail)

    tree = fleet.worker(database, processes=2, FAULTS_MUTANT=mutant)
    for _ in range(rounds):
        put_and_start()
        victim = next(pid for pid in tree.workers() if now_in(fleet, {pid}))
        jobs = now_in(fleet, {victim})
        killed = tree.kill_worker(victim)
        after_worker.append(until(lambda: started_again(fleet, jobs, killed), SOON_SECONDS + BUSY_MACHINE_SECONDS))  # noqa: B023

        put_and_start()
        heir = fleet.worker(database, processes=2, FAULTS_MUTANT=mutant)
        jobs = now_in(fleet, set(tree.workers()))
        assert jobs
        killed = time.monotonic()
        tree.kill()
        after_tree.append(until(lambda: started_again(fleet, jobs, killed), LEASE_SECONDS + AFTER_LEASE_SECONDS))  # noqa: B023
        tree = heir
    return after_worker, after_tree


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(1, id="short"), pytest.param(10, id="long", marks=[pytest.mark.long, pytest.mark.timeout(300)])],
)
def test_the_jobs_of_a_dead_worker_start_again_soon(
    database: Database, fleet: Fleet, rounds: int, figure: Callable[[str], None]
) -> None:
    after_worker, after_tree = kill_workers_and_trees(fleet, database, rounds)
    figure(
        f"I6 {database.kind}: started again {max(after_worker):.2f} s after the worker's death (promised: 1 s), "
        f"{max(after_tree):.2f} s after the tree's (promised: lease of {LEASE_SECONDS:g} s + 2 s)"
    )


def test_the_attack_notices_that_rescue_is_off(sqlite_database: Database, fleet: Fleet) -> None:
    with pytest.raises(AssertionError, match="not within"):
        kill_workers_and_trees(fleet, sqlite_database, 1, mutant="no_rescue")
