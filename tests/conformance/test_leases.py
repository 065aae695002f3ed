"""Leases: a change to a running job names its id, lease and owner, or changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.builders import (
    ANN,
    BEN,
    end,
    new_job,
    put,
    put_and_take,
    put_many,
    record,
    settle,
    status,
    take,
    worker,
)
from rowlock.clock import FakeClock
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.storage.records import Claimed, JobFilter, Outcome, Progress, Settlement, Status

OUTCOMES = list(Outcome)


async def superseded(store: Store, clock: FakeClock) -> tuple[Claimed, Claimed]:
    """Return Ann's attempt, whose lease expired, and Ben's, which followed."""
    old = await put_and_take(store, ANN)
    clock.advance(31)
    await store.rescue(10, {}, str)
    return old, await take(store, BEN)


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_a_superseded_lease_cannot_settle(store: Store, clock: FakeClock, outcome: Outcome) -> None:
    old, new = await superseded(store, clock)
    before = await record(store, old.id)
    assert await store.settle(ANN, [end(old, outcome, result="1", error="late")]) == [old.id]
    assert await record(store, old.id) == before
    await settle(store, new, owner=BEN)


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_a_rescued_lease_cannot_settle_while_its_job_waits(
    store: Store, clock: FakeClock, outcome: Outcome
) -> None:
    old = await put_and_take(store)
    clock.advance(31)
    await store.rescue(10, {}, str)
    before = await record(store, old.id)
    assert await store.settle(ANN, [end(old, outcome)]) == [old.id]
    assert await record(store, old.id) == before


async def test_a_superseded_lease_of_the_same_owner_cannot_settle(store: Store) -> None:
    old = await put_and_take(store)
    await settle(store, old, Outcome.RELEASE)
    new = await take(store)
    assert await store.settle(ANN, [end(old)]) == [old.id]
    assert await status(store, old.id) is Status.PROCESSING
    await settle(store, new)


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_another_owner_cannot_settle_with_the_right_lease(store: Store, outcome: Outcome) -> None:
    claimed = await put_and_take(store, ANN)
    assert await store.settle(BEN, [end(claimed, outcome)]) == [claimed.id]
    assert (await record(store, claimed.id)).lock_owner == ANN


@pytest.mark.parametrize("change", [lambda lease: lease - 1, lambda lease: lease + 1, lambda lease: 0])
async def test_a_lease_number_that_is_not_the_current_one_cannot_settle(
    store: Store, change: Callable[[int], int]
) -> None:
    claimed = await put_and_take(store)
    assert await store.settle(ANN, [Settlement(claimed.id, change(claimed.lease))]) == [claimed.id]
    assert await status(store, claimed.id) is Status.PROCESSING


@pytest.mark.parametrize("first", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED, Outcome.FATAL])
@pytest.mark.parametrize("second", OUTCOMES)
async def test_a_finished_job_cannot_be_settled_again(store: Store, first: Outcome, second: Outcome) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, first)
    before = await record(store, claimed.id)
    assert await store.settle(ANN, [end(claimed, second, result="2", error="again")]) == [claimed.id]
    assert await record(store, claimed.id) == before


async def test_a_waiting_job_cannot_be_settled(store: Store) -> None:
    job = new_job()
    await store.enqueue([job])
    for lease in (0, 1):
        assert await store.settle(ANN, [Settlement(job.id, lease)]) == [job.id]
    assert await status(store, job.id) is Status.QUEUED


async def test_an_unknown_job_is_a_lost_lease(store: Store) -> None:
    unknown = uuid7()
    assert await store.settle(ANN, [Settlement(unknown, 1)]) == [unknown]
    assert await store.progress(ANN, [Progress(unknown, 1, 50, None)]) == [unknown]


async def test_lost_leases_do_not_stop_the_rest_of_the_batch(store: Store, clock: FakeClock) -> None:
    lost, _ = await superseded(store, clock)
    await put_many(store, 2)
    first, second = await store.claim("default", ANN, 2)
    unknown = uuid7()
    answer = await store.settle(ANN, [end(first), end(lost), Settlement(unknown, 1), end(second, Outcome.FAILED)])
    assert sorted(answer) == sorted([lost.id, unknown])
    assert await status(store, first.id) is Status.SUCCEEDED
    assert await status(store, second.id) is Status.FAILED
    assert await status(store, lost.id) is Status.PROCESSING


async def test_an_expired_lease_that_nobody_took_may_still_settle(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    clock.advance(hours=1)
    await settle(store, claimed)
    assert await status(store, claimed.id) is Status.SUCCEEDED
    assert await store.rescue(10, {}, str) == []


async def test_a_lease_survives_an_operators_retry(store: Store) -> None:
    old = await put_and_take(store)
    await settle(store, old, Outcome.FAILED)
    await store.retry(JobFilter(ids=[old.id]), 1)
    new = await take(store)
    assert new.lease > old.lease
    assert await store.settle(ANN, [end(old)]) == [old.id]
    await settle(store, new)


async def test_a_superseded_owner_no_longer_holds_the_lease(store: Store, clock: FakeClock) -> None:
    _, new = await superseded(store, clock)
    assert await store.held(ANN) == []
    (held,) = await store.held(BEN)
    assert (held.job_id, held.lease, held.owner, held.attempt) == (new.id, new.lease, BEN, 2)


async def test_a_superseded_owners_beat_does_not_bring_its_lease_back(store: Store, clock: FakeClock) -> None:
    old, new = await superseded(store, clock)
    assert await store.beat([worker(ANN)]) == []
    found = await record(store, old.id)
    assert (found.lock_owner, found.lease) == (BEN, new.lease)


async def test_held_tells_all_about_each_lease(store: Store) -> None:
    claimed = await put_and_take(store, ANN, max_attempts=4)
    await settle(store, claimed, Outcome.CRASH)
    await take(store, BEN)
    (held,) = await store.held(BEN)
    assert (held.attempt, held.max_attempts, held.deaths, held.cancel_requested) == (2, 4, 1, False)


async def test_held_is_empty_for_a_stranger(store: Store) -> None:
    await put_and_take(store, ANN)
    assert await store.held(BEN) == []


async def test_every_owner_holds_its_own(store: Store) -> None:
    first, second = await put_and_take(store, ANN), await put_and_take(store, BEN)
    assert [held.job_id for held in await store.held(ANN)] == [first.id]
    assert [held.job_id for held in await store.held(BEN)] == [second.id]


async def test_a_settlement_repeated_after_a_lost_reply_changes_nothing(store: Store, other: Store) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, result="1")
    assert await other.settle(ANN, [end(claimed, result="1")]) == [claimed.id]
    assert (await record(store, claimed.id)).result == "1"


async def test_a_discarded_job_cannot_be_settled(store: Store) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, Outcome.FAILED)
    await store.discard(JobFilter(ids=[claimed.id]), 1)
    assert await store.settle(ANN, [end(claimed)]) == [claimed.id]
    assert await store.get(claimed.id) is None


async def test_a_lease_belongs_to_its_job(store: Store) -> None:
    claimed = await put_and_take(store)
    waiting = await put(store)
    assert await store.settle(ANN, [Settlement(waiting, claimed.lease)]) == [waiting]
    assert await status(store, waiting) is Status.QUEUED
    assert await status(store, claimed.id) is Status.PROCESSING


async def test_the_shortest_lease_of_some_workers_is_known(store: Store, clock: FakeClock) -> None:
    assert await store.shortest_lease([ANN, BEN]) is None
    await put(store, visibility_ms=30_000)
    short = await put(store, visibility_ms=1_500)
    await store.claim("default", ANN, 1)
    assert await store.shortest_lease([ANN]) == 30
    (claimed,) = await store.claim("default", BEN, 1)
    assert claimed.id == short
    assert await store.shortest_lease([ANN]) == 30
    assert await store.shortest_lease([ANN, BEN]) == 1.5
    await settle(store, claimed, owner=BEN)
    assert await store.shortest_lease([BEN]) is None
