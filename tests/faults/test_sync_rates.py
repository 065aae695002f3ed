"""Calls of a service never exceed its limit in any window of its clock, even if callers die."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.databases import Database
from faults.processes import TESTS, Fleet, Tree
from faults.syncing import SECONDS
from faults.until import after, until
from sync.standin import StandIn

PROCESSES = 3
CALLS = 12  # in any period of SECONDS: few, so that a slow machine wants to make more


@pytest.fixture
def standin(standin: StandIn) -> StandIn:
    standin.limits(CALLS, SECONDS)
    return standin


def racer(fleet: Fleet, database: Database, standin: StandIn, **environment: str) -> Tree:
    arguments = ("faults.call_race", database.url, standin.url, str(CALLS), str(SECONDS))
    return fleet.start(*arguments, **environment)


def window(standin: StandIn) -> dict[str, Any]:
    found: dict[str, Any] = standin.judgement()["windows"][0]
    return found


@pytest.mark.every_store
@pytest.mark.parametrize(
    ("rounds", "windows"),
    [pytest.param(2, 3, id="short"), pytest.param(60, 80, id="long", marks=[pytest.mark.long])],
)
def test_no_window_holds_more_calls_than_its_limit_though_callers_are_killed(
    database: Database,
    fleet: Fleet,
    standin: StandIn,
    rng: random.Random,
    figure: Callable[[str], None],
    rounds: int,
    windows: int,
) -> None:
    skewed = ":".join(filter(None, [str(Path(__file__).parent / "skewed"), str(TESTS), os.environ.get("PYTHONPATH")]))
    late = {"PYTHONPATH": skewed, "FAULTS_CLOCK_SECONDS": "3600"} if database.kind == "postgres" else {}
    racers = [racer(fleet, database, standin), *(racer(fleet, database, standin, **late) for _ in range(PROCESSES - 1))]
    until(lambda: window(standin)["calls"], 60, racers[0].tail)
    for _ in range(rounds):
        until(after(rng.uniform(0.1, 0.6)), 2)
        dead = rng.randrange(PROCESSES)
        racers[dead].kill()
        racers[dead] = racer(fleet, database, standin, **(late if dead else {}))
    begun = window(standin)["calls"]
    until(lambda: window(standin)["calls"] >= begun + windows * CALLS, windows * SECONDS * 4 + 60, racers[0].tail)
    until(lambda: window(standin)["most"] >= CALLS * 3 // 4, 60, "the callers never use nearly the whole limit")
    judged = window(standin)
    figure(f"calls {database.kind}: {judged['calls']} calls, {rounds} kills, at most {judged['most']} of {CALLS}")
    assert all(each.alive for each in racers), racers[0].tail()
    assert judged["overruns"] == 0
    assert judged["most"] <= CALLS


def test_the_attack_notices_calls_that_nobody_counts(sqlite_database: Database, fleet: Fleet, standin: StandIn) -> None:
    tree = racer(fleet, sqlite_database, standin, FAULTS_MUTANT="no_permits")
    until(lambda: window(standin)["overruns"], 60, tree.tail)


def test_the_attack_notices_calls_that_count_from_their_start(
    postgres_database: Database, fleet: Fleet, standin: StandIn
) -> None:
    trees = [racer(fleet, postgres_database, standin, FAULTS_MUTANT="early_end") for _ in range(2)]
    until(lambda: window(standin)["overruns"], 60, trees[0].tail)
