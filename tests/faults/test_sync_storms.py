"""A storm of 429: the whole fleet rests, and no job loses an attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count, islice

import pytest

from faults.databases import Database
from faults.processes import Fleet
from faults.syncing import CALLS, SECONDS, Syncing, judge
from faults.until import until
from sync.standin import StandIn

REST_SECONDS = 4
SLACK_SECONDS = 2.5  # a call permitted before the rest may arrive later, on a busy machine
_LONG = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        pytest.param("429_after", 1.5, id="short"),
        pytest.param("429_after", 60.0, id="long", marks=_LONG),
        pytest.param("429", 60.0, id="without a word, long", marks=_LONG),
    ],
)
def test_a_storm_lets_the_whole_fleet_rest_and_costs_no_attempt(
    postgres_database: Database,
    fleet: Fleet,
    standin: StandIn,
    figure: Callable[[str], None],
    kind: str,
    seconds: float,
) -> None:
    # A call that a busy machine answers late is no failure of the service: it would cost an attempt.
    with Syncing(postgres_database, standin, ROWLOCK_SYNC_TIMEOUT_SECONDS="30") as syncing:
        trees = [syncing.worker(fleet), syncing.worker(fleet)]
        people = count()
        while not all(tree.events("job.succeeded") for tree in trees):  # both take part
            put_some(syncing, islice(people, 4))
            until(syncing.succeeded, 60, trees[0].tail)
        told = {"latency_seconds": (0.0, 0.05), "retry_after_seconds": REST_SECONDS}
        standin.trouble(scripts=[{"kind": kind, "skip": 10}], **told)
        put_some(syncing, islice(people, 12))
        until(lambda: kind in standin.judgement()["trouble"], 30, trees[0].tail)
        standin.trouble(storms=[{"kind": kind, "seconds": seconds}], **told)
        until(syncing.succeeded, seconds + 60, trees[0].tail)
        attempts = {job.attempts for job in syncing.jobs().values()}
    judged = judge(standin)
    calls = standin.journal()
    refusals = [call["ended"] for call in calls if call["trouble"] == kind]
    figure(f"storm of {kind}, {seconds:g} s: {len(refusals)} calls refused, {judged['calls']} in all")
    assert attempts == {1}
    if kind == "429_after":  # no call in either process for REST_SECONDS
        early = [
            call["arrived"]
            for call in calls
            if any(ended + SLACK_SECONDS < call["arrived"] < ended + REST_SECONDS for ended in refusals)
        ]
        assert early == []
    # All callers share the rest: otherwise the limits would allow eight times as many refusals.
    assert len(refusals) <= 12 + CALLS / SECONDS * seconds / 8


def put_some(syncing: Syncing, people: Iterable[int]) -> None:
    for index in people:
        email = f"m{index}@x.org"
        syncing.put("create_contact", {"email": email, "firstName": "Ann"})
        syncing.put("sync_payment", {"email": email, "paymentIntentId": f"pi_{index}", "amount": 100})
        syncing.put("update_contact", {"email": email, "properties": {"city": "Bern"}})
