"""I13: one unique key, one job, however many processes enqueue it at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from faults import key_race
from faults.databases import Database, PostgresDatabase
from faults.processes import Fleet
from faults.until import until

PROCESSES = 8
SHORT, LONG = 100, 1_000


def race(fleet: Fleet, database: Database, seed: int, processes: int, keys: int, mutant: str = "") -> tuple[int, int]:
    """Let `processes` processes enqueue the same keys. Returns the number of jobs, and of keys with several jobs."""
    arguments = (database.url, str(keys), str(processes), str(seed))
    racers = fleet.start("faults.key_race", *arguments, FAULTS_MUTANT=mutant)
    until(lambda: len(fleet.journal.all("ready")) == processes, 60, racers.tail)
    (fleet.folder / key_race.START).touch()
    until(lambda: not racers.alive, 90, racers.tail)
    jobs = Counter(job.unique_key for job in database.records().values())
    return jobs.total(), sum(number > 1 for number in jobs.values())


@pytest.mark.every_store
@pytest.mark.parametrize(
    "keys", [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.long)]
)
def test_eight_processes_that_ask_for_the_same_keys_make_one_job_of_each(
    database: Database, fleet: Fleet, seed: int, keys: int, figure: Callable[[str], None]
) -> None:
    jobs, several = race(fleet, database, seed, PROCESSES, keys)
    assert [racers.code for racers in fleet.trees] == [0], fleet.trees[0].tail()
    figure(f"I13 {database.kind}: {PROCESSES} processes, {keys:,} keys each: {jobs:,} jobs")
    assert (jobs, several) == (keys, 0)
    assert len(database.keys()) == keys


@pytest.mark.long
@pytest.mark.parametrize("round", range(5))
def test_a_thousand_keys_again_and_again(database: Database, fleet: Fleet, seed: int, round: int) -> None:
    assert race(fleet, database, seed + round, PROCESSES, LONG) == (LONG, 0)


def test_the_attack_notices_keys_that_are_looked_up_and_then_inserted(
    postgres_database: PostgresDatabase, fleet: Fleet, seed: int
) -> None:
    postgres_database.run("ALTER TABLE rowlock.unique_keys DROP CONSTRAINT unique_keys_pkey")
    postgres_database.change_function("enqueue_many", look_then_insert)
    _, several = race(fleet, postgres_database, seed, 4, SHORT)  # some racers fail: their inserts are rolled back
    assert several


def look_then_insert(enqueue: str) -> str:
    """Look up, then insert: no guard, and slow enough that others insert meanwhile even if processes take turns."""
    head, guard, tail = enqueue.partition("ON CONFLICT (key)")
    assert guard
    _, returning, tail = tail.partition("RETURNING k.job_id")
    known = "SELECT FROM rowlock.unique_keys o WHERE o.key = first.key"
    slow = f"FROM first, (SELECT pg_sleep(0.5)) AS slow WHERE NOT EXISTS ({known}) ORDER BY key"
    head = head.replace("FROM first ORDER BY key", slow)
    return head + returning + tail


def test_the_attack_notices_that_keys_are_not_looked_at(sqlite_database: Database, fleet: Fleet, seed: int) -> None:
    jobs, _ = race(fleet, sqlite_database, seed, 2, 100, mutant="keyless")
    assert jobs > 100
