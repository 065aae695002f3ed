"""Unique keys: at most one job holds a key, as long as its policy says."""

from __future__ import annotations

import pytest

from conformance.builders import (
    EVERYTHING,
    forever,
    new_job,
    new_jobs,
    put,
    put_and_end,
    put_and_take,
    record,
    settle,
    take,
    taken,
    while_active,
    window,
)
from rowlock.clock import FakeClock
from rowlock.errors import DuplicateJob
from rowlock.storage.contract import Store
from rowlock.storage.records import JobFilter, KeepPolicy, OnConflict, Outcome, Receipt, Status, UniqueKey

RETURN = OnConflict.RETURN_EXISTING
FINAL = [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED, Outcome.FATAL]
POLICIES = [forever(), window(60), while_active()]
NAMES = ["forever", "window", "while-active"]


async def is_free(store: Store, key: str = "k") -> bool:
    """Enqueue a job with the key. Returns whether the key was free."""
    (receipt,) = await store.enqueue([new_job(unique=forever(key, RETURN))])
    return receipt.created


@pytest.mark.parametrize("policy", POLICIES, ids=NAMES)
async def test_a_taken_key_is_rejected_with_the_job_that_holds_it(store: Store, policy: UniqueKey) -> None:
    holder = await put(store, unique=policy)
    with pytest.raises(DuplicateJob) as refusal:
        await put(store, unique=policy)
    assert refusal.value.existing_job_id == holder
    assert await store.count(EVERYTHING, 10) == 1


@pytest.mark.parametrize(
    "policy", [forever("k", RETURN), window(60, "k", RETURN), while_active("k", RETURN)], ids=NAMES
)
async def test_a_taken_key_returns_the_job_that_holds_it(store: Store, policy: UniqueKey) -> None:
    holder = await put(store, unique=policy)
    assert await store.enqueue([new_job(unique=policy)]) == [Receipt(holder, False)]
    assert await taken(store) == [holder]


@pytest.mark.parametrize("policy", [forever(), window(60)], ids=["forever", "window"])
async def test_a_key_that_outlives_its_job_says_so(store: Store, policy: UniqueKey) -> None:
    holder = await put_and_end(store, unique=policy)
    with pytest.raises(DuplicateJob) as refusal:
        await put(store, unique=policy)
    assert not refusal.value.removed
    await store.prune({Status.SUCCEEDED: KeepPolicy(count=0)}, 10)
    with pytest.raises(DuplicateJob, match="has ended and was pruned") as refusal:
        await put(store, unique=policy)
    assert (refusal.value.existing_job_id, refusal.value.removed) == (holder, True)
    again = forever(on_conflict=RETURN)
    other = forever("other", RETURN)
    first, second = new_job(unique=other), new_job(unique=other)
    assert await store.enqueue([new_job(unique=again), first, second]) == [
        Receipt(holder, False, removed=True),
        Receipt(first.id, True),
        Receipt(first.id, False),
    ]


async def test_a_rejected_job_takes_its_batch_with_it(store: Store) -> None:
    await put(store, unique=forever())
    before, after = new_jobs(3, unique=None), new_jobs(3)
    with pytest.raises(DuplicateJob):
        await store.enqueue([*before, new_job(unique=forever("fresh")), new_job(unique=forever()), *after])
    assert await store.count(EVERYTHING, 10) == 1
    assert await is_free(store, "fresh")


async def test_an_existing_job_leaves_the_rest_of_its_batch_alone(store: Store) -> None:
    holder = await put(store, unique=forever())
    batch = [new_job(), new_job(unique=forever("k", RETURN)), new_job(unique=forever("l", RETURN))]
    assert await store.enqueue(batch) == [
        Receipt(batch[0].id, True),
        Receipt(holder, False),
        Receipt(batch[2].id, True),
    ]
    assert await taken(store) == [holder, batch[0].id, batch[2].id]


async def test_the_first_of_a_batch_gets_the_key(store: Store) -> None:
    batch = new_jobs(3, unique=forever("k", RETURN))
    assert await store.enqueue(batch) == [
        Receipt(batch[0].id, True),
        Receipt(batch[0].id, False),
        Receipt(batch[0].id, False),
    ]
    assert await taken(store) == [batch[0].id]


async def test_a_batch_that_repeats_a_rejecting_key_is_refused_whole(store: Store) -> None:
    with pytest.raises(DuplicateJob):
        await store.enqueue([new_job(), *new_jobs(2, unique=forever())])
    assert await store.count(EVERYTHING, 10) == 0
    assert await is_free(store)


async def test_each_newcomer_decides_between_rejection_and_the_existing_job(store: Store) -> None:
    holder = await put(store, unique=forever())
    assert await store.enqueue([new_job(unique=forever("k", RETURN))]) == [Receipt(holder, False)]
    with pytest.raises(DuplicateJob):
        await put(store, unique=forever())


async def test_keys_are_one_space_whatever_the_type_queue_and_policy(store: Store) -> None:
    await put(store, unique=forever(), type="a", queue="one")
    with pytest.raises(DuplicateJob):
        await put(store, unique=while_active(), type="b", queue="two")
    with pytest.raises(DuplicateJob):
        await put(store, unique=window(1), type="c", queue="three")


async def test_different_keys_do_not_meet(store: Store) -> None:
    keys = ["k", "K", "k ", " k", "ķ", "k\u0301", ""]
    for key in keys:
        await put(store, unique=forever(key))
    assert await store.count(EVERYTHING, 100) == len(keys)


async def test_a_key_may_be_long_and_odd(store: Store) -> None:
    key = "日本 '\";-- " * 40
    job_id = await put(store, unique=forever(key))
    assert (await record(store, job_id)).unique_key == key
    with pytest.raises(DuplicateJob):
        await put(store, unique=forever(key))


async def test_the_record_shows_the_key(store: Store) -> None:
    assert (await record(store, await put(store, unique=forever("import:42")))).unique_key == "import:42"


@pytest.mark.parametrize("outcome", FINAL)
async def test_a_key_held_forever_outlives_the_end_of_its_job(store: Store, outcome: Outcome) -> None:
    holder = await put_and_end(store, outcome, unique=forever())
    with pytest.raises(DuplicateJob) as refusal:
        await put(store, unique=forever())
    assert refusal.value.existing_job_id == holder


async def test_a_key_held_forever_outlives_any_time(store: Store, clock: FakeClock) -> None:
    await put(store, unique=forever())
    clock.advance(days=4_000)
    assert not await is_free(store)


@pytest.mark.parametrize("outcome", FINAL)
async def test_a_key_held_while_active_is_free_when_its_job_is_over(store: Store, outcome: Outcome) -> None:
    await put_and_end(store, outcome, unique=while_active())
    assert await is_free(store)


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.RELEASE, Outcome.CRASH, Outcome.SUSPECT])
async def test_a_key_held_while_active_stays_while_its_job_waits_again(store: Store, outcome: Outcome) -> None:
    claimed = await put_and_take(store, unique=while_active())
    assert not await is_free(store)
    await settle(store, claimed, outcome, delay_seconds=600)
    assert not await is_free(store)


async def test_a_key_held_while_active_is_free_when_its_waiting_job_is_cancelled(store: Store) -> None:
    await store.cancel(await put(store, unique=while_active()))
    assert await is_free(store)


async def test_a_key_held_while_active_is_free_when_a_rescue_ends_its_job(store: Store, clock: FakeClock) -> None:
    await put_and_take(store, unique=while_active(), max_attempts=1)
    clock.advance(31)
    await store.rescue(10, {}, str)
    assert await is_free(store)


async def test_a_key_held_while_active_stays_when_a_rescue_queues_its_job(store: Store, clock: FakeClock) -> None:
    await put_and_take(store, unique=while_active())
    clock.advance(31)
    await store.rescue(10, {}, str)
    assert not await is_free(store)


async def test_the_end_of_an_old_job_does_not_free_a_key_that_another_holds(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store, unique=UniqueKey("k", seconds=10, while_active=True))
    clock.advance(11)
    successor = await put(store, unique=while_active())
    await settle(store, claimed)
    with pytest.raises(DuplicateJob) as refusal:
        await put(store, unique=while_active())
    assert refusal.value.existing_job_id == successor


@pytest.mark.parametrize("end", [None, *FINAL])
async def test_a_window_holds_its_key_for_its_seconds_and_no_longer(
    store: Store, clock: FakeClock, end: Outcome | None
) -> None:
    await (put(store, unique=window(60)) if end is None else put_and_end(store, end, unique=window(60)))
    clock.advance(59)
    with pytest.raises(DuplicateJob):
        await put(store, unique=window(60))
    clock.advance(2)
    await put(store, unique=window(60))


async def test_a_refused_job_does_not_prolong_the_window(store: Store, clock: FakeClock) -> None:
    await put(store, unique=window(60))
    clock.advance(50)
    await store.enqueue([new_job(unique=window(60, "k", RETURN))])
    clock.advance(11)
    assert await is_free(store)


async def test_a_new_window_opens_with_the_new_job(store: Store, clock: FakeClock) -> None:
    await put(store, unique=window(60))
    clock.advance(61)
    holder = await put(store, unique=window(60))
    clock.advance(59)
    with pytest.raises(DuplicateJob) as refusal:
        await put(store, unique=window(60))
    assert refusal.value.existing_job_id == holder


async def test_a_window_ends_though_its_job_still_waits(store: Store, clock: FakeClock) -> None:
    first = await put(store, unique=window(60))
    clock.advance(61)
    second = await put(store, unique=window(60))
    assert await taken(store) == [first, second]


async def test_a_key_held_forever_outlives_the_record_of_its_job(store: Store, clock: FakeClock) -> None:
    holder = await put_and_end(store, unique=forever())
    clock.advance(days=31)
    assert (await store.prune({Status.SUCCEEDED: KeepPolicy(days=30)}, 100))[Status.SUCCEEDED] == 1
    assert await store.get(holder) is None
    with pytest.raises(DuplicateJob) as refusal:
        await put(store, unique=forever())
    assert refusal.value.existing_job_id == holder


@pytest.mark.parametrize("policy", [forever(), window(60)], ids=["forever", "window"])
async def test_discarding_a_job_frees_its_key(store: Store, policy: UniqueKey) -> None:
    job_id = await put_and_end(store, Outcome.FAILED, unique=policy)
    assert await store.discard(JobFilter(ids=[job_id]), 10) == [job_id]
    assert await is_free(store)


async def test_discarding_an_old_job_leaves_a_key_that_another_holds(store: Store) -> None:
    old = await put_and_end(store, Outcome.FAILED, unique=while_active())
    successor = await put(store, unique=while_active())
    await store.discard(JobFilter(ids=[old]), 10)
    with pytest.raises(DuplicateJob) as refusal:
        await put(store, unique=while_active())
    assert refusal.value.existing_job_id == successor


async def test_a_retried_job_holds_its_key_again(store: Store) -> None:
    job_id = await put_and_end(store, Outcome.FAILED, unique=while_active())
    assert (await store.retry(EVERYTHING, 10)).retried == [job_id]
    with pytest.raises(DuplicateJob) as refusal:
        await put(store, unique=while_active())
    assert refusal.value.existing_job_id == job_id
    await settle(store, await take(store))
    assert await is_free(store)


async def test_a_job_that_holds_its_own_key_forever_can_be_retried(store: Store) -> None:
    job_id = await put_and_end(store, Outcome.FAILED, unique=forever())
    answer = await store.retry(EVERYTHING, 10)
    assert (answer.retried, answer.conflicts) == ([job_id], [])


async def test_a_job_whose_key_another_holds_is_not_retried_and_named(store: Store) -> None:
    old = await put_and_end(store, Outcome.FAILED, unique=while_active())
    await put(store, unique=while_active())
    answer = await store.retry(JobFilter(ids=[old]), 10)
    assert (answer.retried, answer.conflicts) == ([], [old])
    assert (await record(store, old)).status is Status.FAILED


async def test_a_job_whose_window_another_holds_is_not_retried_and_named(store: Store, clock: FakeClock) -> None:
    old = await put_and_end(store, Outcome.FAILED, unique=window(60))
    clock.advance(61)
    await put(store, unique=window(60))
    answer = await store.retry(JobFilter(ids=[old]), 10)
    assert (answer.retried, answer.conflicts) == ([], [old])


async def test_of_ended_jobs_with_one_key_only_the_newest_is_retried(store: Store) -> None:
    first = await put_and_end(store, Outcome.FAILED, unique=while_active())
    second = await put_and_end(store, Outcome.CANCELLED, unique=while_active())
    free = await put_and_end(store, Outcome.FAILED)
    answer = await store.retry(EVERYTHING, 10)
    assert answer.conflicts == [first]
    assert sorted(answer.retried) == sorted([second, free])


async def test_a_thousand_keys_go_in_with_one_call(store: Store) -> None:
    jobs = [new_job(unique=forever(f"k{number}", RETURN)) for number in range(1_000)]
    assert all(receipt.created for receipt in await store.enqueue(jobs))
    again = await store.enqueue([new_job(unique=job.unique) for job in jobs])
    assert again == [Receipt(job.id, False) for job in jobs]
