"""I13: one unique key, one job, however many processes ask for it at once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from faults import key_race
from faults.databases import Database, PostgresDatabase
from faults.processes import Fleet
from faults.until import until

PROCESSES = 8
KEYS = 1_000


def race(fleet: Fleet, database: Database, seed: int, processes: int, keys: int, mutant: str = "") -> tuple[int, int]:
    """After so many processes asked for the same keys: how many jobs there are, and how many keys have several."""
    rng = random.Random(seed)
    racers = [
        fleet.start(
            "faults.key_race", database.url, str(keys), str(rng.random()).removeprefix("0."), FAULTS_MUTANT=mutant
        )
        for _ in range(processes)
    ]
    until(lambda: len(fleet.journal.all("ready")) == processes, 60, racers[0].tail)
    (fleet.folder / key_race.START).touch()
    until(lambda: not any(racer.alive for racer in racers), 90, racers[0].tail)
    jobs = Counter(job.unique_key for job in database.records().values())
    return jobs.total(), sum(number > 1 for number in jobs.values())


def test_eight_processes_and_a_thousand_keys_make_a_thousand_jobs(
    database: Database, fleet: Fleet, seed: int, figure: Callable[[str], None]
) -> None:
    jobs, several = race(fleet, database, seed, PROCESSES, KEYS)
    assert [racer.code for racer in fleet.trees] == [0] * PROCESSES, fleet.trees[0].tail()
    figure(f"I13 {database.kind}: {PROCESSES} processes, {KEYS:,} keys each: {jobs:,} jobs")
    assert (jobs, several) == (KEYS, 0)
    assert len(database.keys()) == KEYS


@pytest.mark.long
@pytest.mark.parametrize("round", range(5))
def test_a_thousand_keys_again_and_again(database: Database, fleet: Fleet, seed: int, round: int) -> None:
    assert race(fleet, database, seed + round, PROCESSES, KEYS) == (KEYS, 0)


def test_the_attack_notices_keys_that_are_looked_up_and_then_inserted(
    postgres_database: PostgresDatabase, fleet: Fleet, seed: int
) -> None:
    postgres_database.run("ALTER TABLE rowlock.unique_keys DROP CONSTRAINT unique_keys_pkey")
    postgres_database.change_function("enqueue_many", look_then_insert)
    _, several = race(fleet, postgres_database, seed, 4, KEYS)
    assert several


def look_then_insert(enqueue: str) -> str:
    head, guard, tail = enqueue.partition("ON CONFLICT (key)")
    assert guard
    _, returning, tail = tail.partition("RETURNING k.job_id")
    head = head.replace(
        "FROM first ORDER BY key",
        "FROM first WHERE NOT EXISTS (SELECT FROM rowlock.unique_keys o WHERE o.key = first.key) ORDER BY key",
    )
    return head + returning + tail


def test_the_attack_notices_that_keys_are_not_looked_at(sqlite_database: Database, fleet: Fleet, seed: int) -> None:
    jobs, _ = race(fleet, sqlite_database, seed, 2, 100, mutant="keyless")
    assert jobs > 100
