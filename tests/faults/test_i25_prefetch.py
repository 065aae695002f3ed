"""I25: a worker holds jobs for about 1 s of work: when jobs turn slow, urgent jobs and other workers do not wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from faults.databases import Database
from faults.processes import Fleet, Tree
from faults.producer import Producer
from faults.until import until

CONCURRENCY = 4
SLOW_SECONDS = 0.5
AHEAD_MAX = 64  # slow jobs that may start first, 8 s of work; a hoarding worker would hold minutes of work here
PATIENCE_SECONDS = 60.0


def turn_slow(fleet: Fleet, database: Database, producer: Producer, mutant: str = "") -> Tree:
    """Start a worker whose quick jobs have just turned into slow ones."""
    producer.put("noop", 6_000)
    producer.put("nap", 2_500, seconds=SLOW_SECONDS)
    tree = fleet.worker(database, concurrency=CONCURRENCY, FAULTS_MUTANT=mutant)
    until(lambda: fleet.journal.all("start"), 60, tree.tail)
    return tree


def soon(fleet: Fleet, tree: Tree, condition: Callable[[], bool]) -> bool:
    """Whether the condition is true before AHEAD_MAX more jobs have started: a slow machine only makes this slower."""
    before = len(fleet.journal.all("start"))
    until(lambda: condition() or len(fleet.journal.all("start")) - before > AHEAD_MAX, PATIENCE_SECONDS, tree.tail)
    return condition()


def urgent_seconds(fleet: Fleet, tree: Tree, producer: Producer) -> float | None:
    """Return how long a new urgent job waits; None if longer than AHEAD_MAX others."""
    began = max(entry.at for entry in fleet.journal)
    (urgent,) = producer.put("tick", options={"priority": 1})
    if not soon(fleet, tree, lambda: urgent in fleet.journal.jobs("end")):
        return None
    return fleet.journal.by_job("end")[urgent][0].at - began


@pytest.mark.every_store
def test_when_quick_jobs_turn_slow_the_worker_releases_what_it_holds(
    database: Database, fleet: Fleet, figure: Callable[[str], None]
) -> None:
    with Producer(database) as producer:
        tree = turn_slow(fleet, database, producer)
        waited = urgent_seconds(fleet, tree, producer)
        assert waited is not None, tree.tail()
        assert soon(fleet, tree, lambda: database.running() <= 3 * CONCURRENCY), tree.tail()
        figure(f"I25 {database.kind}: an urgent job started {waited:.1f} s after quick jobs had turned slow")
        other = fleet.worker(database, concurrency=CONCURRENCY)
        until(lambda: {entry.pid for entry in fleet.journal} & set(other.workers()), 30, other.tail)
        producer.put("noop", 3_000, options={"priority": 1})  # quick jobs again, claimed by the hundred
        until(lambda: database.finished() >= 9_000, 60, tree.tail)


@pytest.mark.every_store
def test_slow_jobs_among_quick_ones_keep_no_urgent_job_waiting(
    database: Database, fleet: Fleet, figure: Callable[[str], None]
) -> None:
    with Producer(database) as producer:
        producer.put("noop", 3_000)
        for _ in range(60):
            producer.put("nap", 8, seconds=SLOW_SECONDS)
            producer.put("noop", 50)
        tree = fleet.worker(database, concurrency=CONCURRENCY)
        until(lambda: fleet.journal.all("start"), 60, tree.tail)
        waited = urgent_seconds(fleet, tree, producer)
        assert waited is not None, tree.tail()
        figure(f"I25 {database.kind}: an urgent job started {waited:.1f} s after slow jobs among quick ones had begun")


def test_the_attack_notices_prefetch_that_is_judged_by_the_last_start(sqlite_database: Database, fleet: Fleet) -> None:
    with Producer(sqlite_database) as producer:
        tree = turn_slow(fleet, sqlite_database, producer, mutant="by_last_start")
        assert urgent_seconds(fleet, tree, producer) is None, tree.tail()
