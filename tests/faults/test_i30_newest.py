"""The newest enqueued value wins, even if an older job was returned; and the attack notices mutants."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from faults.databases import Database
from faults.mutants import keep_places
from faults.processes import Fleet, Tree
from faults.syncing import TIERS, Syncing, judge
from faults.until import until
from sync.standin import StandIn

FEW = TIERS[:3]  # few, so that most enqueues find a job with their key
PEOPLE = 4
KEYS = PEOPLE * (len(FEW) + 1)  # of a contact: each tier, and the city
HALF = {"500": 2.0, "500_after": 1.0}
LATENCY_SECONDS = 4.0  # of a call during which the test enqueues
ATTEMPTS = 1_000
EACH_ROUND = 6


def put_again(two: tuple[Syncing, Syncing], rng: random.Random, people: int, number: int, want: dict[str, Any]) -> int:
    """Enqueue values through both producers in turn. Returns how many got an existing job.

    The key of `sync_tier` contains the value, that of `set_city` does not.
    """
    answered = 0
    for each in range(number):
        email, producer = f"m{rng.randrange(people)}@x.org", two[each % 2]
        if rng.random() < 0.6:
            tier = rng.choice(FEW)
            operation, payload = "sync_tier", {"email": email, "newTier": tier}
            want[email, "membership_tier"] = tier
        else:
            operation, payload = "set_city", {"email": email, "city": f"City {each} {rng.random()}"}
            want[email, "city"] = payload["city"]
        answered += not producer.send(operation, payload, max_attempts=ATTEMPTS).created
    return answered


def called(standin: StandIn, times: int) -> bool:
    return bool(standin.judgement()["calls"] >= times)


def values(standin: StandIn, want: dict[Any, Any]) -> dict[Any, Any]:
    """Return the service's values for the keys of `want`."""
    contacts = {each["email"]: each for each in standin.things("contacts")}
    return {(email, name): contacts.get(email, {}).get(name) for email, name in want}


@pytest.mark.parametrize(
    ("enqueues", "kills"),
    [
        pytest.param(60, 1, id="short", marks=[pytest.mark.timeout(240)]),
        pytest.param(1_500, 30, id="long", marks=[pytest.mark.long, pytest.mark.timeout(1_800)]),
    ],
)
def test_the_newest_value_stays_whatever_it_was_answered_with(
    database: Database,
    fleet: Fleet,
    standin: StandIn,
    rng: random.Random,
    figure: Callable[[str], None],
    enqueues: int,
    kills: int,
) -> None:
    """Calls fail or only seem to fail, workers are killed, and two producers write to the same contacts."""
    standin.trouble(share=0.4, kinds=HALF, latency_seconds=(0.0, 0.1), seed=rng.randrange(1_000))
    want: dict[str, Any] = {}
    answered = 0
    with Syncing(database, standin) as syncing, Syncing(database, standin) as other:
        # Before the worker starts, more than there are keys: so many find a job with theirs for certain.
        first = enqueues // 10 + 1 + KEYS
        answered += put_again((syncing, other), rng, PEOPLE, first, want)
        tree = syncing.worker(fleet, processes=2)
        rounds = -(-(enqueues - first) // EACH_ROUND)
        for number in range(rounds):
            calls = standin.judgement()["calls"]
            answered += put_again((syncing, other), rng, PEOPLE, EACH_ROUND, want)
            until(partial(called, standin, calls + 1), 60, tree.tail)
            if number % (rounds // kills) == rounds // kills // 2 and (pids := tree.workers()):
                tree.kill_worker(rng.choice(pids))
        standin.trouble(share=0.1, kinds=HALF, latency_seconds=(0.0, 0.1), seed=rng.randrange(1_000))
        until(syncing.succeeded, 60 + enqueues / 5, tree.tail)
        jobs = len(syncing.jobs())
    judge(standin)
    figure(f"newest {database.kind}: {enqueues} enqueues, {answered} answered with one of {jobs} jobs, {kills} kills")
    assert answered > enqueues // 10, "or the attack attacks nothing"
    assert values(standin, want) == want


def send_gold_again(syncing: Syncing, tree: Tree, standin: StandIn, email: str) -> str | None:
    """Enqueue gold with a delay, write silver, enqueue gold again. Returns the contact's tier."""
    member = {"email": email}
    gold = syncing.put("sync_tier", member | {"newTier": "premium"}, delay_seconds=3_600.0)
    silver = syncing.put("sync_tier", member | {"newTier": "core"})
    until(lambda: syncing.jobs()[silver].status == "succeeded", 60, tree.tail)
    assert syncing.put("sync_tier", member | {"newTier": "premium"}) == gold
    assert syncing.run_now(gold)
    until(lambda: syncing.jobs()[gold].status == "succeeded", 60, tree.tail)
    return {each["email"]: each.get("membership_tier") for each in standin.things("contacts")}[email]


def send_during_the_call(syncing: Syncing, fleet: Fleet, standin: StandIn, **environment: str) -> str | None:
    """Enqueue a city during the call that writes the previous one. Returns the contact's city."""
    standin.trouble(latency_seconds=(LATENCY_SECONDS, LATENCY_SECONDS))
    tree = syncing.worker(fleet, **environment)
    first = syncing.put("set_city", {"email": "late@x.org", "city": "Old"})
    until(lambda: standin.judgement()["under_way"], 60, tree.tail)
    assert syncing.put("set_city", {"email": "late@x.org", "city": "New"}) == first
    until(lambda: syncing.jobs()[first].status == "succeeded", 60, tree.tail)
    return {each["email"]: each.get("city") for each in standin.things("contacts")}["late@x.org"]


def test_the_attack_notices_that_nothing_is_taken_over(
    sqlite_database: Database, fleet: Fleet, standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Syncing(sqlite_database, standin) as syncing:
        tree = syncing.worker(fleet)
        assert send_gold_again(syncing, tree, standin, "ann@x.org") == "premium"
        keep_places(monkeypatch.setattr)
        assert send_gold_again(syncing, tree, standin, "ben@x.org") == "core"


def test_the_attack_notices_keys_that_are_freed_unseen(
    sqlite_database: Database, fleet: Fleet, standin: StandIn
) -> None:
    with Syncing(sqlite_database, standin, ROWLOCK_SYNC_TIMEOUT_SECONDS="20") as syncing:
        assert send_during_the_call(syncing, fleet, standin, FAULTS_MUTANT="free_unseen") == "Old"
