"""Rescue: takes back jobs with an expired lease, and no others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from conformance.builders import (
    ANN,
    BEN,
    VISIBILITY_SECONDS,
    ids,
    near,
    put,
    put_and_end,
    put_and_take,
    put_many,
    record,
    settle,
    status,
    take,
    taken,
    worker,
)
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.records import Outcome, Rescued, Status

LATE = VISIBILITY_SECONDS + 1


async def test_a_job_whose_lease_ran_out_is_queued_again(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store, type="t")
    clock.advance(LATE)
    assert await store.rescue(10, {}, str) == [Rescued(claimed.id, "t", "default", ANN, 1, 5, Status.QUEUED)]
    found = await record(store, claimed.id)
    assert (found.status, found.lock_owner, found.locked_at) == (Status.QUEUED, None, None)
    assert await taken(store, BEN) == [claimed.id]


async def test_a_live_lease_is_left_alone(store: Store, clock: FakeClock) -> None:
    await put_and_take(store)
    clock.advance(VISIBILITY_SECONDS - 1)
    assert await store.rescue(10, {}, str) == []


async def test_every_job_has_its_own_visibility_timeout(store: Store, clock: FakeClock) -> None:
    short = await put_and_take(store, visibility_ms=500)
    long = await put_and_take(store, visibility_ms=600_000)
    clock.advance(1)
    assert [rescued.job_id for rescued in await store.rescue(10, {}, str)] == [short.id]
    clock.advance(601)
    assert [rescued.job_id for rescued in await store.rescue(10, {}, str)] == [long.id]


async def test_a_lost_attempt_counts(store: Store, clock: FakeClock) -> None:
    await put_and_take(store)
    clock.advance(LATE)
    (rescued,) = await store.rescue(10, {}, str)
    assert (await record(store, rescued.job_id)).attempts == 1
    assert (await take(store)).attempt == 2


async def test_a_job_whose_attempts_are_spent_fails_with_a_reason(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store, max_attempts=1)
    clock.advance(LATE)
    (rescued,) = await store.rescue(10, {}, str)
    assert (rescued.status, rescued.attempt, rescued.max_attempts) == (Status.FAILED, 1, 1)
    found = await record(store, claimed.id)
    assert (found.status, found.attempts) == (Status.FAILED, 1)
    assert near(found.finished_at, clock.now())
    assert found.error
    assert await taken(store) == []


async def test_attempts_never_exceed_their_limit_however_often_leases_run_out(store: Store, clock: FakeClock) -> None:
    job_id = await put(store, max_attempts=3)
    statuses = []
    for attempt in (1, 2, 3):
        assert (await take(store)).attempt == attempt
        clock.advance(LATE)
        statuses += [rescued.status for rescued in await store.rescue(10, {}, str)]
    assert statuses == [Status.QUEUED, Status.QUEUED, Status.FAILED]
    assert await taken(store) == []
    assert (await record(store, job_id)).attempts == 3


async def test_a_job_that_was_to_be_cancelled_is_cancelled(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    await store.cancel(claimed.id)
    clock.advance(LATE)
    (rescued,) = await store.rescue(10, {}, str)
    assert rescued.status is Status.CANCELLED
    assert await status(store, claimed.id) is Status.CANCELLED
    assert await taken(store) == []


async def test_a_rescued_job_waits_for_the_delay_of_its_queue(store: Store, clock: FakeClock) -> None:
    slow, quick = await put_and_take(store, queue="sync"), await put_and_take(store, queue="mail")
    clock.advance(LATE)
    await store.rescue(10, {"sync": 300.0, "nobody's": 5.0}, str)
    assert near((await record(store, slow.id)).available_at, clock.now() + timedelta(seconds=300))
    assert await taken(store, queue="mail") == [quick.id]
    assert await taken(store, queue="sync") == []
    clock.advance(301)
    assert await taken(store, queue="sync") == [slow.id]


async def test_a_rescue_takes_no_more_than_its_limit(store: Store, clock: FakeClock) -> None:
    await put_many(store, 5)
    assert len(await taken(store)) == 5
    clock.advance(LATE)
    rounds = [len(await store.rescue(2, {}, str)) for _ in range(4)]
    assert rounds == [2, 2, 1, 0]


async def test_a_rescue_of_none_takes_none(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    clock.advance(LATE)
    assert await store.rescue(0, {}, str) == []
    assert await status(store, claimed.id) is Status.PROCESSING


async def test_a_beat_keeps_every_lease_of_its_worker(store: Store, clock: FakeClock) -> None:
    await put_many(store, 3)
    await store.claim("default", ANN, 3)
    for _ in range(5):
        clock.advance(20)
        await store.beat([worker(ANN)])
        assert await store.rescue(10, {}, str) == []


async def test_a_beat_keeps_no_lease_of_another_worker(store: Store, clock: FakeClock) -> None:
    await store.beat([worker(ANN), worker(BEN)])
    claimed = await put_and_take(store, BEN)
    clock.advance(20)
    await store.beat([worker(ANN)])
    clock.advance(11)
    assert [rescued.job_id for rescued in await store.rescue(10, {}, str)] == [claimed.id]


async def test_a_beat_before_the_rescue_keeps_a_lease_that_was_late(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    clock.advance(LATE)
    assert [held.job_id for held in await store.beat([worker(ANN)])] == [claimed.id]
    assert await store.rescue(10, {}, str) == []


async def test_a_lease_runs_out_after_the_last_beat(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    clock.advance(20)
    await store.beat([worker(ANN)])
    clock.advance(VISIBILITY_SECONDS - 1)
    assert await store.rescue(10, {}, str) == []
    clock.advance(2)
    assert [rescued.job_id for rescued in await store.rescue(10, {}, str)] == [claimed.id]


async def test_a_fresh_claim_is_alive_though_its_worker_was_not_seen_for_long(store: Store, clock: FakeClock) -> None:
    await store.beat([worker(ANN)])
    clock.advance(hours=1)
    await put_and_take(store)
    clock.advance(VISIBILITY_SECONDS - 1)
    assert await store.rescue(10, {}, str) == []


async def test_the_leases_of_a_retired_worker_run_out_by_themselves(store: Store, clock: FakeClock) -> None:
    await store.beat([worker(ANN)])
    claimed = await put_and_take(store)
    await store.retire(ANN)
    assert (await record(store, claimed.id)).lock_owner == ANN
    clock.advance(LATE)
    assert [rescued.job_id for rescued in await store.rescue(10, {}, str)] == [claimed.id]


async def test_a_rescue_touches_nothing_that_does_not_run(store: Store, clock: FakeClock) -> None:
    waiting, delayed = await put(store, queue="a"), await put(store, queue="a", delay_seconds=9_999)
    done = [await put_and_end(store, outcome) for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED)]
    before = [await record(store, id) for id in (waiting, delayed, *done)]
    clock.advance(hours=1)
    assert await store.rescue(10, {}, str) == []
    assert [await record(store, id) for id in (waiting, delayed, *done)] == before


async def test_a_job_is_rescued_once(store: Store, other: Store, clock: FakeClock) -> None:
    await put_and_take(store)
    clock.advance(LATE)
    assert len(await store.rescue(10, {}, str)) == 1
    assert await other.rescue(10, {}, str) == []


async def test_a_rescue_spans_queues_and_owners(store: Store, clock: FakeClock) -> None:
    claims = [await put_and_take(store, owner, queue=queue) for owner, queue in ((ANN, "a"), (BEN, "b"))]
    clock.advance(LATE)
    rescued = {(one.job_id, one.owner, one.queue) for one in await store.rescue(10, {}, str)}
    assert rescued == {(claims[0].id, ANN, "a"), (claims[1].id, BEN, "b")}


async def test_a_rescue_with_nothing_to_do_does_nothing(store: Store) -> None:
    assert await store.rescue(10, {"default": 5.0}, str) == []


@pytest.mark.parametrize("again", [Outcome.RETRY, Outcome.CRASH])
async def test_lost_and_failed_attempts_count_together(store: Store, clock: FakeClock, again: Outcome) -> None:
    claimed = await put_and_take(store, max_attempts=2)
    await settle(store, claimed, again)
    await take(store)
    clock.advance(LATE)
    assert [rescued.status for rescued in await store.rescue(10, {}, str)] == [Status.FAILED]


async def test_a_thousand_jobs_are_rescued_with_one_call(store: Store, clock: FakeClock) -> None:
    await put_many(store, 1_000)
    claims = await store.claim("default", ANN, 1_000)
    clock.advance(LATE)
    assert sorted(one.job_id for one in await store.rescue(1_000, {}, str)) == sorted(ids(claims))
