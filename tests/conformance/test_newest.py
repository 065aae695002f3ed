"""newest_wins: the job that holds a key takes over payload and place of the newest enqueue with that key."""

from __future__ import annotations

import asyncio

import pytest

from conformance.builders import (
    ANN,
    EVERYTHING,
    forever,
    new_job,
    newest_wins,
    put,
    put_and_end,
    put_and_take,
    record,
    settle,
    take,
    while_active,
)
from rowlock.clock import FakeClock
from rowlock.ids import uuid7, uuid7s
from rowlock.storage.contract import Store
from rowlock.storage.records import JobId, Newest, OnConflict, Outcome, Receipt, Status, UniqueKey

ROUNDS = 20
RETURN = OnConflict.RETURN_EXISTING
OLD, NEW, NEWER = '{"v": 1}', '{"v":2}', '{"v":3}'


async def again(store: Store, payload: str = NEW, *, id: JobId | None = None, unique: UniqueKey | None = None) -> JobId:
    """Enqueue again with a key in use. Returns the id of the job that was not created."""
    job = new_job(id=id or uuid7(), payload=payload, unique=unique or newest_wins())
    (receipt,) = await store.enqueue([job])
    assert not receipt.created
    return job.id


async def created(store: Store, key: str = "k") -> bool:
    """Enqueue again with the key. Returns whether that created a job."""
    return (await store.enqueue([new_job(unique=newest_wins(key))]))[0].created


async def test_a_job_that_waits_takes_over(store: Store) -> None:
    holder = await put(store, payload=OLD, unique=newest_wins())
    assert await store.newest([holder, uuid7()]) == {}
    await again(store, NEW)
    newer = await again(store, NEWER)
    assert await store.newest([holder, uuid7()]) == {holder: Newest(newer, NEWER)}
    assert (await record(store, holder)).payload == NEWER
    assert (await take(store)).id == holder
    assert await store.count(EVERYTHING, 10) == 1


@pytest.mark.parametrize("payload", ['{"a.b": 1}', '{"v":  1}', '{"v": 12345678901234567890123}', "{}"])
async def test_any_payload_is_taken_over_as_it_is(store: Store, payload: str) -> None:
    holder = await put(store, payload=OLD, unique=newest_wins())
    for given in (payload, NEW, payload):
        newer = await again(store, given)
        assert await store.newest([holder]) == {holder: Newest(newer, given)}
    assert (await record(store, holder)).payload == payload


async def test_a_job_that_waits_for_its_retry_takes_over_and_waits_on(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store, payload=OLD, unique=newest_wins())
    await settle(store, claimed, Outcome.RETRY, delay_seconds=60.0, error="no")
    await again(store)
    assert await store.claim("default", ANN, 1) == []
    clock.advance(61)
    assert (await take(store))[:3] == (claimed.id, 2, 2)
    assert [found.payload for found in (await store.newest([claimed.id])).values()] == [NEW]


async def test_a_job_that_runs_takes_over_and_its_key_stays_its_own_until_it_has_run_again(store: Store) -> None:
    claimed = await put_and_take(store, payload=OLD, unique=newest_wins())
    newer = await again(store)
    assert claimed.payload == OLD
    assert await store.free_keys({claimed.id: claimed.id}) == [claimed.id]
    assert not await created(store, "k"), "it still is the answer"
    assert (await store.newest([claimed.id]))[claimed.id].id > newer
    latest = (await store.newest([claimed.id]))[claimed.id].id
    assert await store.free_keys({claimed.id: newer}) == [claimed.id]
    assert await store.free_keys({claimed.id: latest}) == []
    assert await created(store, "k"), "this one does not look any more"


async def test_a_key_that_is_freed_is_the_next_ones(store: Store) -> None:
    first = await put_and_take(store, unique=newest_wins())
    assert await store.free_keys({first.id: first.id}) == []
    assert await store.free_keys({first.id: first.id}) == [], "asked again, as its answer may be lost"
    second = await put(store, payload=OLD, unique=newest_wins())
    await again(store, NEW)
    assert await store.free_keys({first.id: first.id}) == [], "it has nothing to free"
    await settle(store, first)
    assert list(await store.newest([first.id, second])) == [second]
    assert not await created(store)


async def test_many_keys_are_freed_at_once(store: Store) -> None:
    keys = [f"k{number}" for number in range(40)]
    jobs = [new_job(unique=newest_wins(key)) for key in keys]
    await store.enqueue(jobs)
    for job, key in list(zip(jobs, keys, strict=True))[:20]:
        await again(store, unique=newest_wins(key))
        assert job.id
    freed = await store.free_keys({job.id: job.id for job in jobs})
    assert sorted(freed) == sorted(job.id for job in jobs[:20])
    assert [await created(store, key) for key in keys] == [False] * 20 + [True] * 20
    assert await store.free_keys({}) == []
    assert await store.newest([]) == {}


async def test_of_two_the_greater_id_stays_however_they_come(store: Store) -> None:
    """One producer's clock may be behind: order is always by id."""
    first, second, third, fourth = uuid7s(4)
    holder = await put(store, id=second, payload=OLD, unique=newest_wins())
    await again(store, NEW, id=first)
    assert await store.newest([holder]) == {}
    await again(store, NEWER, id=fourth)
    await again(store, NEW, id=third)
    assert await store.newest([holder]) == {holder: Newest(fourth, NEWER)}
    assert await store.free_keys({holder: third}) == [holder]


async def test_in_one_call_the_last_of_a_key_is_the_newest(store: Store) -> None:
    jobs = [new_job(id=id, payload=f'{{"v":{number}}}', unique=newest_wins()) for number, id in enumerate(uuid7s(4))]
    receipts = await store.enqueue([new_job(), *jobs, new_job(unique=newest_wins("other"))])
    assert receipts[1:5] == [Receipt(jobs[0].id, number == 0) for number in range(4)]
    assert await store.newest([job.id for job in jobs]) == {jobs[0].id: Newest(jobs[3].id, '{"v":3}')}


@pytest.mark.parametrize("unique", [while_active("k", RETURN), forever("k", RETURN)], ids=["while-active", "forever"])
async def test_others_that_are_answered_with_a_job_change_nothing(store: Store, unique: UniqueKey) -> None:
    holder = await put(store, payload=OLD, unique=newest_wins())
    await again(store, unique=unique)
    assert await store.newest([holder]) == {}
    assert (await take(store)).payload == OLD


async def test_a_key_that_outlives_its_job_is_neither_taken_over_nor_freed(store: Store) -> None:
    holder = await put(store, payload=OLD, unique=forever())
    await again(store)
    assert await store.newest([holder]) == {}
    assert await store.free_keys({holder: holder}) == []
    assert not await created(store)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED])
async def test_a_job_that_is_over_keeps_its_place_for_a_retry(store: Store, outcome: Outcome) -> None:
    claimed = await put_and_take(store, payload=OLD, unique=newest_wins())
    newer = await again(store)
    await settle(store, claimed, outcome, error="no")
    await store.retry(EVERYTHING, 10)
    assert await store.newest([claimed.id]) == {claimed.id: Newest(newer, NEW)}
    assert await store.free_keys({claimed.id: newer}) == []


async def test_a_job_that_is_over_takes_nothing_over(store: Store) -> None:
    holder = await put_and_end(store, unique=newest_wins())
    assert await created(store)
    assert await store.newest([holder]) == {}


async def test_a_rescued_job_keeps_what_it_took_over(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store, payload=OLD, unique=newest_wins())
    newer = await again(store)
    clock.advance(31)
    await store.rescue(10, {}, str)
    assert (await take(store)).id == claimed.id
    assert await store.newest([claimed.id]) == {claimed.id: Newest(newer, NEW)}


async def test_an_enqueue_that_fails_is_not_taken_over(store: Store) -> None:
    await put(store, unique=forever("taken"))
    holder = await put(store, payload=OLD, unique=newest_wins())
    with pytest.raises(Exception, match="with the same unique key already exists"):
        await store.enqueue([new_job(payload=NEW, unique=newest_wins()), new_job(unique=forever("taken"))])
    assert await store.newest([holder]) == {}


async def test_an_enqueue_and_the_freeing_of_its_key_agree_about_who_came_first(store: Store, other: Store) -> None:
    for number in range(ROUNDS):
        key = newest_wins(f"k{number}")
        claimed = await put_and_take(store, unique=key)
        job = new_job(unique=key)
        (receipt,), kept = await asyncio.gather(
            other.enqueue([job]), store.free_keys({claimed.id: claimed.id}), return_exceptions=False
        )
        if receipt.created:
            assert kept == []
            await settle(store, await take(store))
        else:
            assert kept == [claimed.id]
            assert (await store.newest([claimed.id]))[claimed.id].id == job.id
        await settle(store, claimed)


async def test_an_enqueue_and_the_end_of_the_job_agree_about_who_came_first(store: Store, other: Store) -> None:
    for number in range(ROUNDS):
        key = newest_wins(f"k{number}")
        claimed = await put_and_take(store, unique=key)
        job = new_job(unique=key)
        (receipt,), _ = await asyncio.gather(other.enqueue([job]), settle(store, claimed, Outcome.FAILED, error="no"))
        assert (claimed.id in await store.newest([claimed.id])) is not receipt.created
        if receipt.created:
            await settle(store, await take(store))


async def test_producers_with_the_same_keys_do_not_block_each_other(store: Store, other: Store) -> None:
    keys = [newest_wins(f"k{number}") for number in range(30)]
    holders = [new_job(unique=key) for key in keys]
    await store.enqueue(holders)
    batches = [[new_job(id=id, unique=key) for id, key in zip(uuid7s(30), keys, strict=True)] for _ in range(4)]
    await asyncio.gather(
        *((store, other)[number % 2].enqueue(batch[:: (-1) ** number]) for number, batch in enumerate(batches)),
        store.free_keys({job.id: "ffffffff-ffff-7fff-bfff-ffffffffffff" for job in holders[:5]}),
    )
    found = await store.newest([job.id for job in holders[5:]])
    assert {newest.id for newest in found.values()} == {job.id for job in batches[-1][5:]}
    assert (await store.counts())[Status.QUEUED] >= 30


async def test_what_was_taken_over_goes_with_its_job(store: Store) -> None:
    claimed = await put_and_take(store, unique=newest_wins())
    await again(store)
    await settle(store, claimed, Outcome.FAILED, error="no")
    assert await store.discard(EVERYTHING, 10) == [claimed.id]
    assert await store.newest([claimed.id]) == {}
