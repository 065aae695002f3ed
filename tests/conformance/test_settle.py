"""Settle: records how an attempt ended together with the job's next state."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from conformance.builders import (
    ANN,
    counted,
    end,
    ids,
    near,
    new_jobs,
    put_and_take,
    put_many,
    record,
    settle,
    status,
    take,
    taken,
)
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.records import Outcome, Status

FINAL = [
    (Outcome.SUCCEEDED, Status.SUCCEEDED),
    (Outcome.FAILED, Status.FAILED),
    (Outcome.CANCELLED, Status.CANCELLED),
    (Outcome.FATAL, Status.FAILED),
]
AGAIN = [Outcome.RETRY, Outcome.RELEASE, Outcome.CRASH, Outcome.SUSPECT]


@pytest.mark.parametrize(("outcome", "expected"), FINAL)
async def test_a_final_outcome_ends_the_job(store: Store, clock: FakeClock, outcome: Outcome, expected: Status) -> None:
    claimed = await put_and_take(store)
    clock.advance(5)
    await settle(store, claimed, outcome, seconds=5)
    found = await record(store, claimed.id)
    assert found.status is expected
    assert near(found.finished_at, clock.now())
    assert near(found.updated_at, clock.now())
    assert (found.lock_owner, found.locked_at) == (None, None)
    assert (found.attempts, found.lease) == (1, claimed.lease)
    assert await store.held(ANN) == []


async def test_a_result_is_kept(store: Store) -> None:
    claimed = await put_and_take(store)
    result = {"sent": 3, "to": ["a@b.c", "日本"], "nul": "\u0000"}
    await settle(store, claimed, result=json.dumps(result))
    found = await record(store, claimed.id)
    assert found.result is not None
    assert json.loads(found.result) == result
    assert found.error is None


@pytest.mark.parametrize("result", ["null", "42", '"text"', "[]", "{}", None])
async def test_a_result_may_be_any_json_or_none(store: Store, result: str | None) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, result=result)
    assert (await record(store, claimed.id)).result == result


async def test_a_result_of_a_megabyte_is_kept(store: Store) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, result=json.dumps("x" * 1_000_000))
    assert len((await record(store, claimed.id)).result or "") == 1_000_002


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED, Outcome.FATAL, *AGAIN])
async def test_an_error_is_kept(store: Store, outcome: Outcome) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, outcome, error="ValueError: über $1 ? % 日本")
    assert (await record(store, claimed.id)).error == "ValueError: über $1 ? % 日本"


@pytest.mark.parametrize("text", ["before\x00after", "file \udcff.csv"], ids=["nul", "surrogate"])
async def test_an_error_that_no_database_takes_does_not_stop_the_batch(store: Store, text: str) -> None:
    await put_many(store, 2)
    bad, good = await store.claim("default", ANN, 2)
    assert await store.settle(ANN, [end(bad, Outcome.FAILED, error=text), end(good)]) == []
    assert await status(store, bad.id) is Status.FAILED
    assert await status(store, good.id) is Status.SUCCEEDED


@pytest.mark.parametrize("outcome", AGAIN)
async def test_a_job_that_waits_again_is_queued_and_has_no_owner(
    store: Store, clock: FakeClock, outcome: Outcome
) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, outcome)
    found = await record(store, claimed.id)
    assert found.status is Status.QUEUED
    assert (found.lock_owner, found.locked_at, found.finished_at) == (None, None, None)
    assert found.lease == claimed.lease
    assert await store.held(ANN) == []
    assert await taken(store) == [claimed.id]


@pytest.mark.parametrize("outcome", AGAIN)
async def test_a_job_waits_again_for_as_long_as_told(store: Store, clock: FakeClock, outcome: Outcome) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, outcome, delay_seconds=60)
    found = await record(store, claimed.id)
    assert found.status is Status.QUEUED
    assert near(found.available_at, clock.now() + timedelta(seconds=60))
    clock.advance(59)
    assert await taken(store) == []
    clock.advance(2)
    assert await taken(store) == [claimed.id]


async def test_a_retry_spends_its_attempt(store: Store) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, Outcome.RETRY)
    found = await record(store, claimed.id)
    assert (found.attempts, found.deaths) == (1, 0)


async def test_a_release_gives_its_attempt_back(store: Store) -> None:
    claimed = await put_and_take(store)
    for _ in range(3):
        await settle(store, claimed, Outcome.RELEASE)
        found = await record(store, claimed.id)
        assert (found.attempts, found.deaths) == (0, 0)
        claimed = await take(store)
        assert claimed.attempt == 1


async def test_a_release_gives_back_its_own_attempt_only(store: Store) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, Outcome.RETRY)
    await settle(store, await take(store), Outcome.RELEASE)
    assert (await record(store, claimed.id)).attempts == 1
    assert (await take(store)).attempt == 2


async def test_a_crash_spends_its_attempt_and_counts_a_death(store: Store) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, Outcome.CRASH)
    found = await record(store, claimed.id)
    assert (found.attempts, found.deaths) == (1, 1)


async def test_deaths_outlive_other_outcomes(store: Store) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, Outcome.CRASH)
    await settle(store, await take(store), Outcome.RETRY)
    await settle(store, await take(store), Outcome.RELEASE)
    await settle(store, await take(store), Outcome.FAILED)
    found = await record(store, claimed.id)
    assert (found.deaths, found.attempts) == (1, 3)


async def test_the_last_attempt_may_succeed(store: Store) -> None:
    claimed = await put_and_take(store, max_attempts=2)
    await settle(store, claimed, Outcome.RETRY)
    last = await take(store)
    assert (last.attempt, last.max_attempts) == (2, 2)
    await settle(store, last)
    assert await status(store, claimed.id) is Status.SUCCEEDED


async def test_settling_nothing_does_nothing(store: Store) -> None:
    assert await store.settle(ANN, []) == []


async def test_one_call_settles_every_outcome(store: Store) -> None:
    expected = {
        Outcome.SUCCEEDED: (Status.SUCCEEDED, 1, 0),
        Outcome.FAILED: (Status.FAILED, 1, 0),
        Outcome.CANCELLED: (Status.CANCELLED, 1, 0),
        Outcome.RETRY: (Status.QUEUED, 1, 0),
        Outcome.RELEASE: (Status.QUEUED, 0, 0),
        Outcome.CRASH: (Status.QUEUED, 1, 1),
        Outcome.SUSPECT: (Status.QUEUED, 0, 1),
        Outcome.FATAL: (Status.FAILED, 1, 1),
    }
    await store.enqueue(new_jobs(len(Outcome)))
    claims = dict(zip(Outcome, await store.claim("default", ANN, len(Outcome)), strict=True))
    ends = [end(claimed, outcome, error=outcome.name) for outcome, claimed in claims.items()]
    assert await store.settle(ANN, ends) == []
    found = {outcome: await record(store, claimed.id) for outcome, claimed in claims.items()}
    assert {outcome: (job.status, job.attempts, job.deaths) for outcome, job in found.items()} == expected
    assert all(job.error == outcome.name for outcome, job in found.items())


async def test_a_thousand_jobs_are_settled_with_one_call(store: Store) -> None:
    await store.enqueue(new_jobs(1_000))
    claims = await store.claim("default", ANN, 1_000)
    assert await store.settle(ANN, [end(claimed) for claimed in claims]) == []
    assert await counted(store) == {Status.SUCCEEDED: 1_000}


async def test_jobs_are_settled_in_any_order(store: Store) -> None:
    await put_many(store, 5)
    claims = await store.claim("default", ANN, 5)
    assert await store.settle(ANN, [end(claimed) for claimed in reversed(claims)]) == []
    assert {await status(store, id) for id in ids(claims)} == {Status.SUCCEEDED}


async def test_the_error_of_an_earlier_attempt_is_gone_after_success(store: Store) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, Outcome.RETRY, error="boom")
    await settle(store, await take(store), result="1")
    found = await record(store, claimed.id)
    assert (found.status, found.error, found.result) == (Status.SUCCEEDED, None, "1")


@pytest.mark.parametrize(
    ("outcome", "status", "attempts", "deaths"),
    [
        (Outcome.CRASH, Status.QUEUED, 1, 1),
        (Outcome.SUSPECT, Status.QUEUED, 0, 1),
        (Outcome.FATAL, Status.FAILED, 1, 1),
    ],
)
async def test_a_death_is_counted(store: Store, outcome: Outcome, status: Status, attempts: int, deaths: int) -> None:
    claimed = await put_and_take(store)
    await store.settle(ANN, [end(claimed, outcome, error="the process died")])
    found = await record(store, claimed.id)
    assert (found.status, found.attempts, found.deaths) == (status, attempts, deaths)
    assert found.error == "the process died"
