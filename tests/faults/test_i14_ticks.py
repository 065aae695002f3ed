"""I14: a tick of a schedule fires once, however many schedulers there are, and whoever of them dies."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from faults import tick_race
from faults.databases import Database, PostgresDatabase
from faults.processes import Fleet
from faults.until import until

SCHEDULERS = 4
TICKS = 300


def race(fleet: Fleet, database: Database, ticks: int, kills: int, seed: int, mutant: str = "") -> tuple[int, int, int]:
    """How many runs there are, how many ticks have one, and how many jobs there are, after all of them raced."""
    rng = random.Random(seed)
    racers = [
        fleet.start("faults.tick_race", database.url, str(ticks), FAULTS_MUTANT=mutant) for _ in range(SCHEDULERS)
    ]
    until(lambda: len(fleet.journal.all("ready")) == SCHEDULERS, 60, racers[0].tail)
    (fleet.folder / tick_race.START).touch()
    for victim in rng.sample(racers, kills):
        time.sleep(rng.uniform(0.05, 0.3))  # wherever it is: between two statements, or within one
        victim.kill()
    until(lambda: not any(racer.alive for racer in racers), 90, racers[0].tail)
    assert len(fleet.journal.all("done")) >= SCHEDULERS - kills, racers[0].tail()
    ticks = database.ticks()
    return len(ticks), len(set(ticks)), len(database.records())


def test_four_schedulers_of_which_two_are_killed_fire_every_tick_once(
    database: Database, fleet: Fleet, seed: int, figure: Callable[[str], None]
) -> None:
    runs, distinct, jobs = race(fleet, database, TICKS, kills=2, seed=seed)
    figure(f"I14 {database.kind}: {SCHEDULERS} schedulers, 2 killed: {TICKS} ticks, {runs} runs, {jobs} jobs")
    assert (runs, distinct, jobs) == (TICKS, TICKS, TICKS)


@pytest.mark.long
@pytest.mark.parametrize("round", range(5))
def test_thousands_of_ticks(database: Database, fleet: Fleet, seed: int, round: int) -> None:
    assert race(fleet, database, 2_000, kills=3, seed=seed + round) == (2_000, 2_000, 2_000)


def test_the_attack_notices_ticks_without_their_guard(
    postgres_database: PostgresDatabase, fleet: Fleet, seed: int
) -> None:
    # The first run makes the schedule known; the table has no key from the start.
    postgres_database.run("ALTER TABLE rowlock.schedule_runs DROP CONSTRAINT schedule_runs_pkey")
    runs, distinct, _ = race(fleet, postgres_database, TICKS, kills=0, seed=seed, mutant="free_ticks")
    assert runs > distinct
