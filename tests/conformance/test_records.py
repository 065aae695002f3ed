"""Records: reads, and writes that happen only if the record is still the one that was read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from conformance.builders import listed, new_job
from conformance.stores import Rig
from rowlock.clock import FakeClock, StoreClock
from rowlock.errors import LeaseLost, SchemaMissing, StoreError
from rowlock.storage.contract import RecordTransaction, Store
from rowlock.storage.kinds import MOMENT, Records
from rowlock.storage.reliability import LOCKS, LockRecord, LockStatus

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
LOCK = LockRecord("acme", "report", "all", LockStatus.RUNNING, "data", 1, "ann", NOON, None)
KEY = LOCKS.key_of(LOCK)
ENDED = replace(LOCK, status=LockStatus.COMPLETED, ended_at=NOON + timedelta(hours=1))
CHANGES: list[dict[str, Any]] = [
    {"status": LockStatus.FAILED},
    {"payload_hash": "other"},
    {"payload_hash": ""},
    {"token": 2},
    {"holder": "ben"},
    {"locked_at": NOON + MOMENT},
    {"ended_at": NOON},
]

Where = Callable[[Store, Callable[[Records], Awaitable[None]]], Awaitable[None]]


async def on_its_own(store: Store, work: Callable[[Records], Awaitable[None]]) -> None:
    await work(store)


async def in_a_transaction(store: Store, work: Callable[[Records], Awaitable[None]]) -> None:
    await store.atomic(work)


async def in_a_jobs_transaction(store: Store, work: Callable[[Records], Awaitable[None]]) -> None:
    async with store.transaction() as transaction:
        await work(transaction)


EVERYWHERE = pytest.mark.parametrize("where", [on_its_own, in_a_transaction, in_a_jobs_transaction])


async def found(records: Records) -> LockRecord | None:
    return (await records.read(LOCKS, *KEY)).record


@EVERYWHERE
async def test_a_record_is_added_changed_and_removed(store: Store, where: Where) -> None:
    async def work(records: Records) -> None:
        assert await found(records) is None
        assert await records.insert(LOCKS, LOCK)
        assert await found(records) == LOCK
        assert await records.update(LOCKS, LOCK, ENDED)
        assert await found(records) == ENDED
        assert await records.update(LOCKS, ENDED, LOCK)
        assert await found(records) == LOCK
        assert await records.delete(LOCKS, LOCK)
        assert await found(records) is None

    await where(store, work)
    assert await found(store) is None


@EVERYWHERE
async def test_a_key_is_taken_once(store: Store, where: Where) -> None:
    await store.insert(LOCKS, LOCK)

    async def work(records: Records) -> None:
        assert not await records.insert(LOCKS, replace(LOCK, holder="ben"))

    await where(store, work)
    assert await found(store) == LOCK


@EVERYWHERE
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: "-".join(map(str, change.values())))
async def test_a_record_that_has_changed_in_any_field_is_left_alone(
    store: Store, where: Where, change: dict[str, Any]
) -> None:
    now = replace(LOCK, **change)
    await store.insert(LOCKS, now)

    async def work(records: Records) -> None:
        assert not await records.update(LOCKS, LOCK, replace(LOCK, token=9))
        assert not await records.delete(LOCKS, LOCK)

    await where(store, work)
    assert await found(store) == now
    assert await store.update(LOCKS, now, LOCK)
    assert await found(store) == LOCK


async def test_a_record_that_is_gone_cannot_be_changed(store: Store) -> None:
    assert not await store.update(LOCKS, LOCK, ENDED)
    assert not await store.update(LOCKS, LOCK, LOCK)
    assert not await store.delete(LOCKS, LOCK)
    assert await found(store) is None


async def test_a_change_to_the_same_is_guarded_too(store: Store) -> None:
    await store.insert(LOCKS, LOCK)
    assert await store.update(LOCKS, LOCK, LOCK)
    assert not await store.update(LOCKS, ENDED, ENDED)


async def test_a_record_is_found_by_every_part_of_its_key(store: Store) -> None:
    await store.insert(LOCKS, LOCK)
    for key in (("", *KEY[1:]), (KEY[0], "recalc", KEY[2]), (*KEY[:2], "ALL")):
        assert (await store.read(LOCKS, *key)).record is None


async def test_a_read_comes_with_the_stores_time(store: Store, clock: FakeClock) -> None:
    assert await store.read(LOCKS, *KEY) == (None, clock.now())
    await store.insert(LOCKS, LOCK)
    clock.advance(1)
    assert await store.read(LOCKS, *KEY) == (LOCK, clock.now())


async def test_without_a_fake_clock_the_time_is_the_databases_own(rig: Rig, store: Store) -> None:
    own = await rig.another(StoreClock())
    before = await own.now()
    absent = await own.read(LOCKS, *KEY)
    await own.insert(LOCKS, replace(LOCK, locked_at=absent.now))
    present = await own.read(LOCKS, *KEY)
    assert before <= absent.now <= present.now <= await own.now()
    assert present.record is not None
    assert present.record.locked_at == absent.now  # to the last digit, or no guarded change would succeed
    assert await own.update(LOCKS, present.record, ENDED)


async def test_of_many_who_add_a_record_one_does(store: Store, other: Store) -> None:
    records = [replace(LOCK, holder=str(number)) for number in range(8)]
    added = await asyncio.gather(*((store, other)[n % 2].insert(LOCKS, record) for n, record in enumerate(records)))
    (winner,) = [record for record, done in zip(records, added, strict=True) if done]
    assert await found(store) == winner


async def test_of_many_who_change_a_record_one_does(store: Store, other: Store) -> None:
    await store.insert(LOCKS, LOCK)
    last = LOCK
    for number in range(20):  # often enough that two would meet between check and write
        changed = [replace(LOCK, token=10 * number + n + 2) for n in range(6)]
        done = await asyncio.gather(*((store, other)[n % 2].update(LOCKS, last, changed[n]) for n in range(6)))
        assert sum(done) == 1
        last = changed[done.index(True)]
        assert await found(store) == last


async def test_of_many_who_remove_a_record_one_does(store: Store, other: Store) -> None:
    await store.insert(LOCKS, LOCK)
    assert sum(await asyncio.gather(*((store, other)[n % 2].delete(LOCKS, LOCK) for n in range(6)))) == 1


# -- several records ---------------------------------------------------------------------------------


def lock(scope: str, **changes: Any) -> LockRecord:
    return replace(LOCK, scope_key=scope, **changes)


async def test_records_are_read_in_the_order_of_an_index(store: Store) -> None:
    kept = [lock(str(n), company_id="abc"[n % 3], locked_at=NOON + timedelta(hours=n)) for n in range(6)]
    for number in (3, 0, 5, 1, 4, 2):
        await store.insert(LOCKS, kept[number])
    assert await store.scan(LOCKS) == [kept[n] for n in (0, 3, 1, 4, 2, 5)]
    assert await store.scan(LOCKS, "in_time") == kept[::-1]
    assert await store.scan(LOCKS, "in_time", limit=2) == [kept[5], kept[4]]
    assert await store.scan(LOCKS, "in_time", before=kept[2].locked_at) == [kept[1], kept[0]]
    assert await store.scan(LOCKS, "of_company", equal={"company_id": "b"}) == [kept[4], kept[1]]
    before = kept[4].locked_at
    assert await store.scan(LOCKS, "of_company", equal={"company_id": "b"}, before=before) == [kept[1]]
    assert await store.scan(LOCKS, "in_time", equal={"status": LockStatus.FAILED}) == []
    assert await store.scan(LOCKS, limit=0) == []


async def test_records_without_a_value_are_found(store: Store) -> None:
    await store.insert(LOCKS, lock("runs"))
    await store.insert(LOCKS, replace(ENDED, scope_key="ended"))
    assert await store.scan(LOCKS, "in_time", equal={"ended_at": None}) == [lock("runs")]


async def test_the_lowest_are_removed_first_and_those_without_a_value_stay(store: Store) -> None:
    ended = [replace(ENDED, scope_key=str(n), ended_at=NOON + timedelta(hours=n)) for n in range(5)]
    for record in (*ended[::-1], lock("runs")):
        await store.insert(LOCKS, record)
    assert await store.remove(LOCKS, "ended", NOON + timedelta(hours=4), 3) == 3
    assert await store.scan(LOCKS) == [ended[3], ended[4], lock("runs")]
    assert [await store.remove(LOCKS, "ended", NOON + timedelta(hours=4), 3) for _ in range(2)] == [1, 0]
    assert await store.remove(LOCKS, "ended", NOON + timedelta(days=9), 0) == 0


async def test_two_who_remove_at_once_count_each_record_once(store: Store, other: Store) -> None:
    for number in range(30):
        await store.insert(LOCKS, replace(ENDED, scope_key=str(number)))
    asked = [each.remove(LOCKS, "ended", NOON + timedelta(days=1), 10) for each in (store, other, store, other)]
    removed = await asyncio.gather(*asked)
    assert sum(removed) + await store.remove(LOCKS, "ended", NOON + timedelta(days=1), 100) == 30


# -- transactions ------------------------------------------------------------------------------------


async def test_records_and_jobs_change_together(store: Store) -> None:
    job = new_job()

    async def work(transaction: RecordTransaction) -> str:
        assert await transaction.insert(LOCKS, LOCK)
        (receipt,) = await transaction.enqueue([job])
        return receipt.job_id

    assert await store.atomic(work) == job.id
    assert await found(store) == LOCK
    assert await listed(store) == [job.id]


async def test_an_exception_undoes_all_changes(store: Store) -> None:
    await store.insert(LOCKS, LOCK)

    async def work(transaction: RecordTransaction) -> None:
        await transaction.update(LOCKS, LOCK, ENDED)
        await transaction.insert(LOCKS, lock("another"))
        await transaction.enqueue([new_job()])
        raise LeaseLost("on purpose")

    with pytest.raises(LeaseLost, match="on purpose"):
        await store.atomic(work)
    assert await store.scan(LOCKS) == [LOCK]
    assert await listed(store) == []


async def test_transactions_that_change_the_same_records_follow_each_other(store: Store, other: Store) -> None:
    """Each reads a counter and writes it one higher, together with another record."""
    await store.insert(LOCKS, LOCK)

    async def count(transaction: RecordTransaction) -> bool:
        read = await found(transaction)
        assert read is not None
        if not await transaction.update(LOCKS, read, replace(read, token=read.token + 1)):
            return False
        return await transaction.insert(LOCKS, lock(str(read.token)))

    async def again(own: Store) -> None:
        while not await own.atomic(count):
            continue

    await asyncio.gather(*(again((store, other)[n % 2]) for n in range(6)))
    assert await found(store) == replace(LOCK, token=7)
    assert [one.scope_key for one in await store.scan(LOCKS)] == ["1", "2", "3", "4", "5", "6", "all"]


# -- odd values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "żółw 日本", "' OR 1=1 --", "$set", "a.b", "%", "k" * 1_000])
async def test_a_text_comes_back_as_it_was(store: Store, text: str) -> None:
    record = replace(LOCK, scope_key=text, holder=text)
    assert await store.insert(LOCKS, record)
    assert (await store.read(LOCKS, *LOCKS.key_of(record))).record == record
    assert await store.scan(LOCKS, equal={"holder": text}) == [record]
    assert await store.update(LOCKS, record, replace(record, token=2))


async def test_a_text_that_no_database_can_hold_is_refused(store: Store) -> None:
    record = replace(LOCK, scope_key="\udcff")
    with pytest.raises(StoreError):
        await store.insert(LOCKS, record)
    with pytest.raises(StoreError):
        await store.read(LOCKS, *LOCKS.key_of(record))
    assert await store.scan(LOCKS) == []


async def test_a_store_without_a_schema_says_so(rig: Rig, clock: FakeClock) -> None:
    bare = await rig.make_bare(clock)
    with pytest.raises(SchemaMissing):
        await bare.read(LOCKS, *KEY)
    with pytest.raises(SchemaMissing):
        await bare.insert(LOCKS, LOCK)
