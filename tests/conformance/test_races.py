"""Races: concurrent processes get one consistent answer."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from conformance.builders import (
    ANN,
    BEN,
    EVERYTHING,
    counted,
    end,
    flat,
    forever,
    ids,
    new_job,
    new_jobs,
    put,
    put_and_end,
    put_and_take,
    put_many,
    record,
    status,
    taken,
    while_active,
    window,
    worker,
)
from rowlock.clock import FakeClock
from rowlock.control import requests
from rowlock.errors import DuplicateJob
from rowlock.ids import uuid7, uuid7s
from rowlock.storage.access import RequestState
from rowlock.storage.contract import Store
from rowlock.storage.records import (
    CancelResult,
    JobFilter,
    KeepPolicy,
    Limit,
    OnConflict,
    Outcome,
    Progress,
    Status,
)

ROUNDS = 5


async def test_concurrent_claims_never_overlap(store: Store, other: Store) -> None:
    jobs = await put_many(store, 200)
    owners = uuid7s(20)
    claims = await asyncio.gather(
        *((store, other)[place % 2].claim("default", owner, 10) for place, owner in enumerate(owners))
    )
    assert max(Counter(ids(flat(claims))).values()) == 1
    leftovers = await taken(store, limit=200)
    assert sorted(ids(flat(claims)) + leftovers) == sorted(jobs)
    for owner, batch in zip(owners, claims, strict=True):
        assert {held.job_id for held in await store.held(owner)} == set(ids(batch))


async def test_concurrent_claims_of_due_jobs_never_overlap(store: Store, other: Store, clock: FakeClock) -> None:
    jobs = await put_many(store, 100, delay_seconds=60)
    clock.advance(61)
    claims = flat(await asyncio.gather(*(each.claim("default", ANN, 10) for each in (store, other) for _ in range(5))))
    assert sorted(ids(claims) + await taken(store)) == sorted(jobs)


async def test_one_key_enqueued_eight_times_at_once_is_one_job(store: Store, other: Store) -> None:
    for number in range(ROUNDS):
        policy = forever(f"k{number}", OnConflict.RETURN_EXISTING)
        receipts = flat(
            await asyncio.gather(*((store, other)[n % 2].enqueue([new_job(unique=policy)]) for n in range(8)))
        )
        assert sum(receipt.created for receipt in receipts) == 1
        (winner,) = {receipt.job_id for receipt in receipts}
        assert await status(store, winner) is Status.QUEUED
    assert await store.count(EVERYTHING, 100) == ROUNDS


async def test_one_key_rejected_at_once_names_the_winner(store: Store, other: Store) -> None:
    answers = await asyncio.gather(
        *((store, other)[n % 2].enqueue([new_job(unique=forever())]) for n in range(8)), return_exceptions=True
    )
    (winner,) = [answer for answer in answers if not isinstance(answer, BaseException)]
    refusals = [answer for answer in answers if isinstance(answer, DuplicateJob)]
    assert len(refusals) == 7
    assert {refusal.existing_job_id for refusal in refusals} == {winner[0].job_id}
    assert await store.count(EVERYTHING, 10) == 1


async def test_batches_with_the_same_keys_in_different_order_do_not_deadlock(store: Store, other: Store) -> None:
    keys = [forever(f"k{number}", OnConflict.RETURN_EXISTING) for number in range(50)]
    orders = [keys, keys[::-1], keys[25:] + keys[:25], keys[::2] + keys[1::2]]
    receipts = await asyncio.gather(
        *(
            (store, other)[place % 2].enqueue([new_job(unique=key) for key in order])
            for place, order in enumerate(orders)
        )
    )
    assert sum(receipt.created for receipt in flat(receipts)) == 50
    assert len({receipt.job_id for receipt in flat(receipts)}) == 50
    assert await store.count(EVERYTHING, 200) == 50


async def test_concurrent_enqueues_keep_every_job(store: Store, other: Store) -> None:
    await asyncio.gather(*((store, other)[n % 2].enqueue(new_jobs(10)) for n in range(20)))
    assert await store.count(EVERYTHING, 500) == 200
    assert len(await taken(store, limit=500)) == 200


async def test_a_concurrency_limit_holds_under_concurrent_claims(store: Store, other: Store) -> None:
    await store.define_limits([Limit("api", concurrency=3)])
    await put_many(store, 40, limit_key="api")
    for _ in range(ROUNDS):
        await asyncio.gather(*((store, other)[n % 2].claim("default", ANN, 5) for n in range(8)))
    assert await counted(store) == {Status.QUEUED: 37, Status.PROCESSING: 3}


async def test_a_rate_holds_under_concurrent_claims(store: Store, other: Store, clock: FakeClock) -> None:
    await store.define_limits([Limit("api", rate=4, per_seconds=10)])
    await put_many(store, 40, limit_key="api")
    for _ in range(ROUNDS):
        await asyncio.gather(*((store, other)[n % 2].claim("default", ANN, 5) for n in range(8)))
    assert (await store.counts())[Status.PROCESSING] == 4


async def test_a_cancel_and_a_claim_agree_about_who_came_first(store: Store, other: Store) -> None:
    for _ in range(ROUNDS * 4):
        job_id = await put(store)
        answer, claims = await asyncio.gather(store.cancel(job_id), other.claim("default", ANN, 1))
        if claims:
            assert answer is CancelResult.REQUESTED
            assert (await record(store, job_id)).cancel_requested
            assert await store.settle(ANN, [end(claims[0])]) == []
        else:
            assert answer is CancelResult.CANCELLED
            assert await status(store, job_id) is Status.CANCELLED


async def test_a_settlement_and_a_rescue_agree_about_who_came_first(
    store: Store, other: Store, clock: FakeClock
) -> None:
    for _ in range(ROUNDS):
        claimed = await put_and_take(store)
        clock.advance(31)
        lost, rescued = await asyncio.gather(store.settle(ANN, [end(claimed)]), other.rescue(10, {}, str))
        assert [one.job_id for one in rescued] == lost
        expected = Status.QUEUED if lost else Status.SUCCEEDED
        assert await status(store, claimed.id) is expected
        await store.cancel(claimed.id)


async def test_a_beat_and_a_rescue_agree_about_who_came_first(store: Store, other: Store, clock: FakeClock) -> None:
    for _ in range(ROUNDS):
        claimed = await put_and_take(store)
        clock.advance(31)
        held, rescued = await asyncio.gather(store.beat([worker(ANN)]), other.rescue(10, {}, str))
        now_held = await store.held(ANN)
        assert len(rescued) + len(now_held) == 1
        assert len(held) + len(rescued) >= 1
        if now_held:
            assert await store.settle(ANN, [end(claimed)]) == []
        else:
            await store.cancel(claimed.id)


async def test_two_rescues_at_once_rescue_each_job_once(store: Store, other: Store, clock: FakeClock) -> None:
    jobs = await put_many(store, 100)
    await taken(store)
    clock.advance(31)
    rescued = flat(await asyncio.gather(*(each.rescue(50, {}, str) for each in (store, other, store, other))))
    rescued += await store.rescue(100, {}, str)
    assert sorted(one.job_id for one in rescued) == sorted(jobs)


async def test_one_lease_settled_twice_at_once_is_settled_once(store: Store, other: Store) -> None:
    for _ in range(ROUNDS):
        claimed = await put_and_take(store)
        one, two = await asyncio.gather(
            store.settle(ANN, [end(claimed, Outcome.SUCCEEDED)]), other.settle(ANN, [end(claimed, Outcome.FAILED)])
        )
        assert sorted([one, two]) == [[], [claimed.id]]
        expected = Status.SUCCEEDED if two else Status.FAILED
        assert await status(store, claimed.id) is expected


async def test_settlements_and_reports_in_different_orders_do_not_deadlock(store: Store, other: Store) -> None:
    await put_many(store, 100)
    claims = await store.claim("default", ANN, 100)
    reports = [Progress(claimed.id, claimed.lease, 50, "half") for claimed in claims]
    half, rest = claims[:50], claims[50:]
    answers = await asyncio.gather(
        store.progress(ANN, reports),
        other.progress(ANN, reports[::-1]),
        store.settle(ANN, [end(claimed) for claimed in half]),
        other.settle(ANN, [end(claimed, Outcome.RETRY) for claimed in rest[::-1]]),
        store.beat([worker(ANN), worker(BEN)]),
        other.beat([worker(BEN), worker(ANN)]),
    )
    assert answers[2:4] == [[], []]
    assert await counted(store) == {Status.SUCCEEDED: 50, Status.QUEUED: 50}


async def test_a_job_retried_by_two_operators_at_once_is_retried_once(store: Store, other: Store) -> None:
    for _ in range(ROUNDS):
        job_id = await put_and_end(store, Outcome.FAILED)
        answers = await asyncio.gather(store.retry(EVERYTHING, 10), other.retry(EVERYTHING, 10))
        assert flat(answer.retried for answer in answers) == [job_id]
        assert await taken(store) == [job_id]


async def test_a_retry_and_an_enqueue_do_not_both_get_the_key(store: Store, other: Store) -> None:
    for number in range(ROUNDS):
        policy = while_active(f"k{number}", OnConflict.RETURN_EXISTING)
        old = await put_and_end(store, Outcome.FAILED, unique=policy)
        answer, receipts = await asyncio.gather(
            store.retry(JobFilter(ids=[old]), 1), other.enqueue([new_job(unique=policy)])
        )
        assert len(answer.retried) + receipts[0].created == 1
        assert len(await taken(store)) == 1


async def test_a_discard_and_a_retry_agree_about_who_came_first(store: Store, other: Store) -> None:
    for _ in range(ROUNDS):
        job_id = await put_and_end(store, Outcome.FAILED)
        where = JobFilter(ids=[job_id])
        gone, answer = await asyncio.gather(store.discard(where, 1), other.retry(where, 1))
        assert sorted([*gone, *answer.retried]) == [job_id]
        assert (await store.get(job_id) is None) == bool(gone)
        assert await taken(store) == answer.retried


async def test_concurrent_prunes_count_each_job_once(store: Store, other: Store) -> None:
    await put_many(store, 60)
    claims = await store.claim("default", ANN, 60)
    await store.settle(ANN, [end(claimed) for claimed in claims])
    policies = {Status.SUCCEEDED: KeepPolicy(count=0)}
    removed = await asyncio.gather(*(each.prune(policies, 20) for each in (store, other, store, other)))
    removed.append(await store.prune(policies, 100))
    assert sum(each.get(Status.SUCCEEDED, 0) for each in removed) == 60
    assert await store.count(EVERYTHING, 100) == 0


async def test_a_pause_and_claims_do_not_block_each_other(store: Store, other: Store) -> None:
    await put_many(store, 20)
    await asyncio.gather(
        *(each.claim("default", ANN, 1) for each in (store, other) for _ in range(5)),
        store.pause("default"),
        other.resume("default"),
        store.pause_key("api", 5),
        other.pause_key("api", 9),
    )
    assert await store.count(EVERYTHING, 100) == 20


async def test_many_calls_at_once_on_one_store_object_all_come_back(store: Store) -> None:
    async with asyncio.timeout(60):
        await asyncio.gather(*(store.enqueue([new_job()]) for _ in range(100)))
        answers = await asyncio.gather(*(store.counts() for _ in range(50)), *(store.queues() for _ in range(50)))
    assert len(answers) == 100


async def test_a_call_that_was_cancelled_leaves_the_store_usable(store: Store) -> None:
    for _ in range(ROUNDS):
        task = asyncio.create_task(store.enqueue(new_jobs(50)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store.count(EVERYTHING, 1_000) % 50 == 0
    job_id = await put(store, priority=1)
    assert await taken(store, limit=1) == [job_id]


async def begun_at_once(*stores: Store) -> Counter[RequestState]:
    """Begin one request eight times at once, each with another job id. All get the same job; returns their states."""
    answers = await asyncio.gather(
        *(
            requests.begin(stores[n % len(stores)], "k", "f", job_id, keep_seconds=3_600, stale_seconds=60)
            for n, job_id in enumerate(uuid7s(8))
        )
    )
    assert len({answer.job_id for answer in answers}) == 1
    return Counter(answer.state for answer in answers)


async def test_one_request_begun_eight_times_at_once_is_new_once(store: Store, other: Store, clock: FakeClock) -> None:
    for _ in range(ROUNDS):
        assert await begun_at_once(store, other) == {RequestState.NEW: 1, RequestState.RUNNING: 7}
        clock.advance(3_600)  # expired


async def test_one_request_broken_off_is_taken_over_by_one_of_eight(
    store: Store, other: Store, clock: FakeClock
) -> None:
    await begun_at_once(store)
    for _ in range(ROUNDS):
        clock.advance(61)
        assert await begun_at_once(store, other) == {RequestState.BROKEN_OFF: 1, RequestState.RUNNING: 7}


async def test_an_end_and_eight_who_ask_agree_about_who_came_first(store: Store, other: Store) -> None:
    begun = await requests.begin(store, "k", "f", uuid7(), keep_seconds=3_600, stale_seconds=60)
    ending = requests.end(other, "k", begun.begun_at, 201, "{}")
    counts, _ = await asyncio.gather(begun_at_once(store, other), ending)
    assert counts.keys() <= {RequestState.RUNNING, RequestState.DONE}
    assert await begun_at_once(store, other) == {RequestState.DONE: 8}


async def test_a_prune_leaves_a_key_that_an_open_transaction_has_retaken(
    store: Store, other: Store, clock: FakeClock
) -> None:
    first = await put_and_end(store, unique=window(60))
    clock.advance(61)
    async with store.transaction() as transaction:
        (receipt,) = await transaction.enqueue([new_job(unique=window(60))])
        pruning = asyncio.create_task(other.prune({}, 100))
        await asyncio.wait({pruning}, timeout=0.5)  # it ends at once, or waits for the transaction
    await pruning
    assert receipt.created
    assert receipt.job_id != first
    with pytest.raises(DuplicateJob) as refusal:
        await put(store, unique=window(60))
    assert refusal.value.existing_job_id == receipt.job_id
