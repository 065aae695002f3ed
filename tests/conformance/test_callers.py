"""Enqueue through a connection of the caller's: the jobs share the fate of its transaction."""

from __future__ import annotations

import json

import pytest

from conformance.builders import EVERYTHING, forever, near, new_job, new_jobs, put, record, status, taken, while_active
from conformance.callers import Caller
from conformance.stores import Rig
from rowlock.clock import FakeClock
from rowlock.errors import DuplicateJob
from rowlock.storage.base import Store
from rowlock.storage.records import OnConflict, Receipt, Status


@pytest.fixture(autouse=True)
async def ledger(rig: Rig, store: Store) -> None:
    await rig.make_ledger(store)


async def test_jobs_are_invisible_before_the_callers_commit_and_exist_after_it(store: Store, caller: Caller) -> None:
    jobs = new_jobs(3)
    assert await caller.enqueue(store, jobs) == [Receipt(job.id, True) for job in jobs]
    assert await store.get(jobs[0].id) is None
    assert await store.count(EVERYTHING, 10) == 0
    await caller.commit()
    assert await taken(store) == [job.id for job in jobs]


async def test_jobs_vanish_with_the_callers_rollback(store: Store, caller: Caller) -> None:
    await caller.enqueue(store, [new_job(), new_job(unique=forever())])
    await caller.rollback()
    assert await store.count(EVERYTHING, 10) == 0
    assert (await store.enqueue([new_job(unique=forever())]))[0].created


async def test_every_field_is_kept_through_a_caller(store: Store, caller: Caller, clock: FakeClock) -> None:
    payload = {"text": "zażółć ' \" $1 ? %s :x {} \u0000 🛶", "list": [1, None]}
    plain = new_job(payload=json.dumps(payload, ensure_ascii=False))
    full = new_job(
        payload=json.dumps(payload),
        queue="q",
        priority=-3,
        max_attempts=2,
        visibility_ms=9_000,
        delay_seconds=5,
        company_id="it's 100%",
        limit_key="api:acme",
        trace="00-a-b-01",
        unique=while_active("key: 100%"),
    )
    await caller.enqueue(store, [plain, full])
    await caller.commit()
    assert json.loads((await record(store, plain.id)).payload) == payload
    found = await record(store, full.id)
    assert json.loads(found.payload) == payload
    assert (found.queue, found.priority, found.max_attempts) == ("q", -3, 2)
    assert (found.visibility_timeout_ms, found.company_id, found.limit_key) == (9_000, "it's 100%", "api:acme")
    assert (found.trace, found.unique_key) == ("00-a-b-01", "key: 100%")
    assert near(found.created_at, clock.now())


async def test_a_duplicate_is_refused_and_the_callers_transaction_goes_on(
    rig: Rig, store: Store, caller: Caller
) -> None:
    holder = await put(store, unique=forever())
    kept, refused = new_job(), new_job()
    await caller.enqueue(store, [kept])
    with pytest.raises(DuplicateJob) as refusal:
        await caller.enqueue(store, [refused, new_job(unique=forever())])
    assert refusal.value.existing_job_id == holder
    await caller.write("after all")
    await caller.commit()
    assert await status(store, kept.id) is Status.QUEUED
    assert await store.get(refused.id) is None
    async with store.transaction() as transaction:
        assert await rig.read_ledger(transaction) == ["after all"]


async def test_a_duplicate_may_return_the_existing_job_to_the_caller(store: Store, caller: Caller) -> None:
    holder = await put(store, unique=forever())
    fresh = new_job(unique=forever("l", OnConflict.RETURN_EXISTING))
    receipts = await caller.enqueue(store, [new_job(unique=forever("k", OnConflict.RETURN_EXISTING)), fresh])
    assert receipts == [Receipt(holder, False), Receipt(fresh.id, True)]
    await caller.commit()
    assert await store.count(EVERYTHING, 10) == 2


async def test_a_caller_sees_its_own_keys_before_its_commit(store: Store, caller: Caller) -> None:
    job = new_job(unique=forever("k", OnConflict.RETURN_EXISTING))
    assert await caller.enqueue(store, [job]) == [Receipt(job.id, True)]
    again = new_job(unique=forever("k", OnConflict.RETURN_EXISTING))
    assert await caller.enqueue(store, [again]) == [Receipt(job.id, False)]


async def test_a_caller_may_enqueue_nothing(store: Store, caller: Caller) -> None:
    assert await caller.enqueue(store, []) == []
    await caller.commit()


async def test_a_caller_may_enqueue_a_thousand(store: Store, caller: Caller) -> None:
    jobs = new_jobs(1_000)
    assert len(await caller.enqueue(store, jobs)) == 1_000
    await caller.commit()
    assert await taken(store, limit=1_000) == [job.id for job in jobs]


async def test_the_connection_stays_the_callers(store: Store, caller: Caller) -> None:
    await caller.enqueue(store, [new_job()])
    await store.close()
    await caller.write("mine")
    await caller.commit()


async def test_without_a_transaction_the_jobs_exist_at_once(store: Store, autocommit_caller: Caller) -> None:
    jobs = new_jobs(2)
    await autocommit_caller.enqueue(store, jobs)
    assert await taken(store) == [job.id for job in jobs]


async def test_without_a_transaction_a_batch_is_still_all_or_none(store: Store, autocommit_caller: Caller) -> None:
    await put(store, unique=forever())
    with pytest.raises(DuplicateJob):
        await autocommit_caller.enqueue(store, [new_job(), new_job(unique=forever())])
    assert await store.count(EVERYTHING, 10) == 1


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "rollback"])
async def test_a_process_that_never_opens_its_store_can_enqueue(
    rig: Rig, offline_caller: Caller, clock: FakeClock, committed: bool
) -> None:
    store = rig.store_at(rig.url, clock)
    job, keyed = new_job(), new_job(unique=forever())
    assert await offline_caller.enqueue(store, [job, keyed]) == [Receipt(job.id, True), Receipt(keyed.id, True)]
    with pytest.raises(DuplicateJob):
        await offline_caller.enqueue(store, [new_job(), new_job(unique=forever())])
    await (offline_caller.commit() if committed else offline_caller.rollback())
    assert offline_caller.close is not None
    offline_caller.close()
    opened = await rig.another(clock)
    assert await taken(opened) == ([job.id, keyed.id] if committed else [])
