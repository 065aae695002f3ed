"""I14: each tick of a schedule fires once, however many schedulers run and whichever of them dies."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from faults import tick_race
from faults.databases import Database, PostgresDatabase
from faults.processes import Fleet
from faults.until import after, until

SCHEDULERS = 4
TICKS, TICKS_TO_NOTICE = 100, 10


def race(fleet: Fleet, database: Database, ticks: int, kills: int, seed: int, mutant: str = "") -> tuple[int, int, int]:
    """Let all schedulers race. Returns the number of runs, of distinct ticks, and of jobs."""
    rng = random.Random(seed)
    racers = fleet.start("faults.tick_race", database.url, str(ticks), str(SCHEDULERS), FAULTS_MUTANT=mutant)
    ready = until(lambda: len(found := fleet.journal.all("ready")) == SCHEDULERS and found, 60, racers.tail)
    (fleet.folder / tick_race.START).touch()
    for victim in rng.sample(ready, kills):
        until(after(rng.uniform(0.05, 0.3)), 1)  # at any point: between two statements or within one
        racers.kill_worker(victim.pid)
    until(lambda: not racers.alive, 90, racers.tail)
    assert len(fleet.journal.all("done")) >= SCHEDULERS - kills, racers.tail()
    ticks = database.ticks()
    return len(ticks), len(set(ticks)), len(database.records())


@pytest.mark.every_store
def test_four_schedulers_of_which_two_are_killed_fire_every_tick_once(
    database: Database, fleet: Fleet, seed: int, figure: Callable[[str], None]
) -> None:
    runs, distinct, jobs = race(fleet, database, TICKS, kills=2, seed=seed)
    # A scheduler retries after an error, so none runs out of time.
    assert fleet.journal.all("delayed") == []
    figure(f"I14 {database.kind}: {SCHEDULERS} schedulers, 2 killed: {TICKS} ticks, {runs} runs, {jobs} jobs")
    assert (runs, distinct, jobs) == (TICKS, TICKS, TICKS)


@pytest.mark.long
@pytest.mark.parametrize("round", range(5))
def test_thousands_of_ticks(database: Database, fleet: Fleet, seed: int, round: int) -> None:
    assert race(fleet, database, 2_000, kills=3, seed=seed + round) == (2_000, 2_000, 2_000)


def test_the_attack_notices_ticks_without_their_guard(
    postgres_database: PostgresDatabase, fleet: Fleet, seed: int
) -> None:
    # The first run declares the schedule; the table has no key from the start.
    postgres_database.run("ALTER TABLE rowlock.schedule_runs DROP CONSTRAINT schedule_runs_pkey")
    runs, distinct, _ = race(fleet, postgres_database, TICKS_TO_NOTICE, kills=0, seed=seed, mutant="free_ticks")
    assert runs > distinct
