"""I17: stopping is timely, loses nothing and costs no attempt."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import pytest

from faults.databases import Database
from faults.processes import LONG_LEASE, Fleet
from faults.producer import Producer
from faults.until import after, until

GRACE_SECONDS = 1.0
BUSY_MACHINE_SECONDS = 30.0  # on two shared cores; without a limit on the grace period it would be 600
LONG_JOBS = ("nap", "plain", "stubborn")
rounds = pytest.mark.parametrize(
    "rounds",
    [pytest.param(1, id="short"), pytest.param(25, id="long", marks=[pytest.mark.long, pytest.mark.timeout(400)])],
)


def stop_again_and_again(
    fleet: Fleet, database: Database, rng: random.Random, rounds: int, mutant: str = ""
) -> tuple[list[float], list[str]]:
    """Stop a loaded tree at random moments. Returns the seconds of each stop, and the jobs that never end."""
    took = []
    with Producer(database, LONG_LEASE) as producer:
        endless = [job for name in LONG_JOBS for job in producer.put(name, 2, seconds=600, options={"priority": 1})]
        for _ in range(rounds):
            producer.put("nap", 100, seconds=0.05)
            begun = len(fleet.journal.all("start"))
            tree = fleet.worker(
                database,
                ready=False,
                processes=2,
                concurrency=8,
                FAULTS_MUTANT=mutant,
                **LONG_LEASE | {"ROWLOCK_GRACE_SECONDS": str(GRACE_SECONDS)},
            )
            until(lambda: len(fleet.journal.all("start")) > begun + len(endless), 60, tree.tail)  # noqa: B023
            until(after(rng.uniform(0, 0.5)), 1)
            if rng.random() < 0.5:
                tree.signal(signal.SIGTERM)  # to all processes at once, as a container or a terminal does
            took.append(tree.stop(60))
            assert tree.code == 0, tree.tail()
            assert database.running() == 0, tree.tail()
    return took, endless


@rounds
def test_stopping_under_load_is_quick_and_free(
    database: Database, fleet: Fleet, rng: random.Random, rounds: int, figure: Callable[[str], None]
) -> None:
    took, endless = stop_again_and_again(fleet, database, rng, rounds)
    figure(
        f"I17 {database.kind}: {rounds} stops under load, the slowest {max(took):.2f} s "
        f"(promised: grace of {GRACE_SECONDS:g} s + 1 s)"
    )
    assert max(took) <= GRACE_SECONDS + 1.0 + BUSY_MACHINE_SECONDS
    if rounds > 1:
        assert min(took) <= GRACE_SECONDS + 1.0
    records = database.records()
    assert {(records[job].status, records[job].attempts) for job in endless} == {("queued", 0)}
    tree = fleet.worker(database, ready=False, concurrency=16, **LONG_LEASE)
    until(lambda: database.waiting() <= len(endless), 60, tree.tail)
    done = [job for job in database.records().values() if job.id not in endless]
    assert len(done) == 100 * rounds
    assert {(job.status, job.attempts) for job in done} == {("succeeded", 1)}


def test_the_attack_notices_that_a_release_counts(database: Database, fleet: Fleet, rng: random.Random) -> None:
    _, endless = stop_again_and_again(fleet, database, rng, 1, mutant="release_counts")
    records = database.records()
    assert any(records[job].attempts for job in endless)
