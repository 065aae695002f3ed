"""Storms: too many calls, a token that is no longer taken. The fleet rests as one, and nobody pays with an attempt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from faults.databases import Database
from faults.processes import Fleet
from faults.syncing import Syncing, judge
from faults.until import until
from sync.standin import StandIn

SLACK_SECONDS = 0.4  # a call that was allowed before the rest may arrive a little later


def some(syncing: Syncing, number: int) -> None:
    for index in range(number):
        email = f"m{index}@x.org"
        syncing.put("create_contact", {"email": email, "firstName": "Ann"})
        syncing.put("sync_payment", {"email": email, "paymentIntentId": f"pi_{index}", "amount": 100})
        syncing.put("update_contact", {"email": email, "properties": {"city": "Bern"}})


_LONG = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        pytest.param("429_after", 2.5, id="short"),
        pytest.param("429", 60.0, id="without a word, long", marks=_LONG),
        pytest.param("429_after", 60.0, id="long", marks=_LONG),
    ],
)
def test_a_storm_of_refusals_costs_no_attempt(
    postgres_database: Database,
    fleet: Fleet,
    standin: StandIn,
    figure: Callable[[str], None],
    kind: str,
    seconds: float,
) -> None:
    with Syncing(postgres_database, standin) as syncing:
        trees = [syncing.worker(fleet), syncing.worker(fleet)]
        standin.trouble(storms=[{"kind": kind, "seconds": seconds}], retry_after_seconds=1)
        some(syncing, 10)
        until(syncing.succeeded, seconds + 60, trees[0].tail)
    judged = judge(standin)
    refused = judged["trouble"][kind]
    figure(f"storm of {kind}, {seconds:g} s: {refused} calls refused, {judged['calls']} in all")
    jobs = syncing.jobs().values()
    assert {job.attempts for job in jobs} == {1}
    # Everyone rests when one is refused: not each of them finds out alone, again and again.
    assert refused <= 12 + 4 * seconds


def test_one_refusal_lets_the_whole_fleet_rest(postgres_database: Database, fleet: Fleet, standin: StandIn) -> None:
    rest = 2
    with Syncing(postgres_database, standin) as syncing:
        trees = [syncing.worker(fleet), syncing.worker(fleet)]
        standin.trouble(
            scripts=[{"kind": "429_after", "skip": 20}], retry_after_seconds=rest, latency_seconds=(0.0, 0.05)
        )
        some(syncing, 20)
        until(syncing.succeeded, 60, trees[0].tail)
    calls = standin.journal()
    (refused,) = [call["ended"] for call in calls if call["trouble"] == "429_after"]
    early = [call for call in calls if refused + SLACK_SECONDS < call["arrived"] < refused + rest]
    assert early == []
    judge(standin)
    assert len([call for call in calls if call["arrived"] > refused + rest]) > 20
    workers = {event["pid"] for tree in trees for event in tree.events("job.succeeded")}
    assert len(workers) == 2


def test_a_token_that_is_not_taken_costs_one_call_and_all_of_it_can_be_done_again(
    postgres_database: Database, fleet: Fleet, standin: StandIn
) -> None:
    with Syncing(postgres_database, standin) as syncing:
        tree = syncing.worker(fleet)
        standin.access(scopes=["crm.objects.contacts.read", "crm.objects.contacts.write"])
        some(syncing, 5)
        until(syncing.over, 60, tree.tail)
        dead = [job for job in syncing.jobs().values() if job.status != "succeeded"]
        assert {job.type for job in dead} == {"hubspot.sync_payment"}
        assert [job.attempts for job in dead] == [1] * 5
        assert all("MISSING_SCOPES" in (job.error or "") for job in dead)
        assert all("https://app.hubspot.com/private-apps" in (job.error or "") for job in dead)
        standin.access(
            scopes=[f"crm.objects.{kind}.{may}" for kind in ("contacts", "deals") for may in ("read", "write")]
        )
        assert syncing.retry_dead() == 5
        until(syncing.succeeded, 60, tree.tail)
    assert len(standin.things("deals")) == 5
    judge(standin)
