"""Order: of many updates of a contact the newest value stays, despite late writers; and the attack notices mutants."""

from __future__ import annotations

import random
from typing import Any

from faults.databases import Database
from faults.processes import Fleet, Tree
from faults.syncing import Syncing, judge
from faults.until import after, until
from sync.standin import StandIn

PEOPLE, ROUNDS = 4, 5
LATENCY_SECONDS = 2.0
HALF = {"500": 2.0, "cut": 1.0, "500_after": 1.0}


def rush(syncing: Syncing, fleet: Fleet, rng: random.Random, **environment: str) -> tuple[Tree, dict[str, Any]]:
    """Enqueue many updates of few contacts. Half of the calls fail or seem to, so that older updates run later."""
    tree = syncing.worker(fleet, processes=2, **environment)
    syncing.standin.trouble(share=0.4, kinds=HALF, latency_seconds=(0.0, 0.1), seed=rng.randrange(1_000))
    return tree, put_updates(syncing)


def put_updates(syncing: Syncing, name: str = "City") -> dict[str, Any]:
    """Enqueue updates of every contact. Returns the last value of each."""
    last: dict[str, Any] = {}
    for number in range(ROUNDS):
        for person in range(PEOPLE):
            email = f"m{person}@x.org"
            last[email] = f"{name} {number}"
            syncing.put("update_contact", {"email": email, "properties": {"city": last[email]}}, max_attempts=50)
    return last


def write_late(syncing: Syncing, tree: Tree) -> str | None:
    """Run an older update of a contact after a newer one. Returns the contact's value."""
    email = "late@x.org"
    older = syncing.put("update_contact", {"email": email, "properties": {"city": "Old"}}, delay_seconds=3_600.0)
    newer = syncing.put("update_contact", {"email": email, "properties": {"city": "New"}}, max_attempts=50)
    until(lambda: syncing.jobs()[newer].status == "succeeded", 60, tree.tail)
    assert syncing.run_now(older)
    until(lambda: syncing.jobs()[older].status == "succeeded", 60, tree.tail)
    return cities(syncing.standin)[email]


def cities(standin: StandIn) -> dict[str, str | None]:
    return {each["email"]: each.get("city") for each in standin.things("contacts")}


def test_an_older_update_that_is_tried_again_late_writes_over_nothing(
    database: Database, fleet: Fleet, standin: StandIn, rng: random.Random
) -> None:
    with Syncing(database, standin) as syncing:
        tree, last = rush(syncing, fleet, rng)
        until(syncing.succeeded, 60, tree.tail)
        assert cities(standin) == last
        standin.trouble()
        assert write_late(syncing, tree) == "New"
    judge(standin)


def test_a_worker_that_stood_still_writes_over_nothing(
    sqlite_database: Database, fleet: Fleet, standin: StandIn, rng: random.Random
) -> None:
    """It is paused while it holds contacts and awaits answers; others take over after the lock expires; it resumes."""
    standin.trouble(latency_seconds=(0.1, 0.3))
    with Syncing(sqlite_database, standin, ROWLOCK_SYNC_TIMEOUT_SECONDS="0.8") as syncing:
        sleeper = syncing.worker(fleet)
        put_updates(syncing)
        until(lambda: standin.judgement()["under_way"], 60, sleeper.tail)
        sleeper.pause()
        until(sqlite_database.writable, 20, "nobody holds the write lock")
        other = syncing.worker(fleet)
        last = put_updates(syncing, "Town")
        until(syncing.succeeded, 60, other.tail)
        before = standin.judgement()["calls"]
        sleeper.resume()
        late = syncing.put("update_contact", {"email": "late@x.org", "properties": {"city": "Late"}})
        until(lambda: syncing.jobs()[late].status == "succeeded", 60, sleeper.tail)
        until(after(1.0), 2)
    judge(standin)
    assert standin.judgement()["calls"] > before
    assert cities(standin) == last | {"late@x.org": "Late"}


def test_companies_of_one_domain_that_come_at_once_do_not_take_each_other(
    sqlite_database: Database, fleet: Fleet, standin: StandIn
) -> None:
    """The domain has one unclaimed company: one job claims it, the others create their own."""
    standin.search_lag(2.0)
    standin.trouble(latency_seconds=(0.05, 0.2))
    with Syncing(sqlite_database, standin) as syncing:
        standin.objects("companies", [{"name": "Found", "domain": "x.org"}])
        for number in range(8):
            told = {"externalId": f"c_{number}", "name": f"Company {number}", "domain": "x.org"}
            syncing.put("sync_company", told)
        tree = syncing.worker(fleet)
        until(syncing.succeeded, 60, tree.tail)
    judge(standin)
    found = {each.get("billing_company_id"): each["name"] for each in standin.things("companies")}
    assert found == {f"c_{number}": f"Company {number}" for number in range(8)}


def test_the_attack_notices_updates_without_marks(sqlite_database: Database, fleet: Fleet, standin: StandIn) -> None:
    with Syncing(sqlite_database, standin) as syncing:
        tree = syncing.worker(fleet, processes=2, FAULTS_MUTANT="no_marks")
        assert write_late(syncing, tree) == "Old"


def test_the_attack_notices_updates_without_holds(sqlite_database: Database, fleet: Fleet, standin: StandIn) -> None:
    standin.trouble(latency_seconds=(LATENCY_SECONDS, LATENCY_SECONDS))
    with Syncing(sqlite_database, standin, ROWLOCK_SYNC_TIMEOUT_SECONDS="20") as syncing:
        tree = syncing.worker(fleet, processes=2, FAULTS_MUTANT="no_holds")
        for number in range(8):
            syncing.put("update_contact", {"email": "m@x.org", "properties": {"city": f"City {number}"}})
            # Enqueue the next update while this one is in progress.
            until(lambda: standin.judgement()["under_way"] or syncing.over(), 60, tree.tail)
        until(lambda: standin.judgement()["overlaps"], 60, tree.tail)
