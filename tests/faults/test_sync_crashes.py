"""A worker dies between the service's success and our commit: no object is created twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from faults.databases import Database
from faults.processes import Fleet
from faults.syncing import Syncing, judge
from faults.until import until
from sync.standin import StandIn

PAID = {"email": "ann@x.org", "paymentIntentId": "pi_1", "amount": 1230, "currency": "EUR"}
OPERATIONS: list[tuple[str, dict[str, Any]]] = [
    ("create_contact", {"email": "new1@x.org", "firstName": "Ann"}),
    ("sync_payment", {**PAID, "email": "new2@x.org", "paymentIntentId": "pi_2"}),
    ("update_contact", {"email": "old1@x.org", "properties": {"city": "Bern"}}),
    ("sync_tier", {"email": "old2@x.org", "newTier": "core"}),
    ("sync_payment", {**PAID, "email": "old3@x.org", "paymentIntentId": "pi_3"}),
    ("sync_payment", {**PAID, "email": "old4@x.org", "paymentIntentId": "pi_4"}),
    ("sync_day_pass", {**PAID, "email": "old5@x.org", "paymentIntentId": "pi_5"}),
    ("sync_company", {"externalId": "c_6", "name": "Company 6", "email": "old6@x.org"}),
    ("sync_company", {"externalId": "c_7", "name": "Company 7", "email": "old7@x.org"}),
]
HANGS = [  # one call of each operation: the service does it and does not answer
    ("POST", "/contacts$", 2),
    ("POST", "/contacts/batch/upsert$", 2),
    ("POST", "/deals/batch/upsert$", 2),
    ("POST", "/companies/batch/upsert$", 1),
    ("PUT", "/associations/", 2),
]


def test_no_second_object_when_a_worker_dies_after_the_yes(
    database: Database, fleet: Fleet, standin: StandIn, figure: Callable[[str], None]
) -> None:
    standin.objects("contacts", [{"email": f"old{number}@x.org"} for number in range(1, 8)])
    scripts = [{"kind": "hang", "method": method, "path": path, "times": times} for method, path, times in HANGS]
    standin.trouble(scripts=scripts, hang_seconds=60.0)
    with Syncing(database, standin, ROWLOCK_SYNC_TIMEOUT_SECONDS="1.5", ROWLOCK_SYNC_CONCURRENCY="10") as syncing:
        tree = syncing.worker(fleet)
        for operation, payload in OPERATIONS:
            syncing.put(operation, payload)
        until(lambda: hanging(standin) == len(OPERATIONS), 60, tree.tail)
        (pid,) = tree.workers()
        tree.kill_worker(pid)
        until(syncing.succeeded, 60, tree.tail)
    judged = judge(standin)
    state = standin.state()
    counts = {kind: len(things) for kind, things in state["objects"].items() if things}
    figure(f"crash {database.kind}: {len(OPERATIONS)} operations after the yes, {judged['calls']} calls, {counts}")
    assert counts == {"contacts": 9, "companies": 2, "deals": 4}
    assert len(state["associations"]) == 2 * (4 + 2)  # in both directions


def hanging(standin: StandIn) -> int:
    return sum(call.get("trouble") == "hang" for call in standin.journal())


def test_the_attack_notices_deals_without_a_key_of_their_own(
    sqlite_database: Database, fleet: Fleet, standin: StandIn
) -> None:
    with Syncing(sqlite_database, standin) as syncing:
        tree = syncing.worker(fleet, FAULTS_MUTANT="keyless_deals")
        standin.script("500_after", path="/deals$")  # fails at once, unlike a call that may still be in progress
        syncing.put("sync_payment", PAID)
        until(syncing.succeeded, 60, tree.tail)
    assert standin.judgement()["duplicates"]["deals"] != []
