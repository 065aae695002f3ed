"""Enqueue through a caller's connection: the jobs commit or roll back with its transaction."""

from __future__ import annotations

import asyncio
import json

import pytest

from conformance.builders import (
    ANN,
    EVERYTHING,
    end,
    forever,
    near,
    new_job,
    new_jobs,
    newest_wins,
    put,
    put_and_take,
    record,
    status,
    taken,
    while_active,
)
from conformance.callers import Caller
from conformance.stores import Rig
from rowlock.clock import FakeClock
from rowlock.errors import DuplicateJob
from rowlock.storage.contract import Store
from rowlock.storage.records import OnConflict, Outcome, Receipt, Status
from rowlock.storage.sqlite import SqliteStore


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


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "rollback"])
async def test_a_key_is_not_freed_while_a_caller_may_be_answered_with_its_job(
    store: Store, caller: Caller, committed: bool
) -> None:
    holder = await put_and_take(store, unique=newest_wins())
    job = new_job(unique=newest_wins())
    assert await caller.enqueue(store, [job]) == [Receipt(holder.id, False)]
    freeing = asyncio.create_task(store.free_keys({holder.id: holder.id}))
    done, _ = await asyncio.wait({freeing}, timeout=0.05)
    assert not done
    await (caller.commit() if committed else caller.rollback())
    assert await freeing == ([holder.id] if committed else [])
    assert list(await store.newest([holder.id])) == ([holder.id] if committed else [])
    (receipt,) = await store.enqueue([new_job(unique=newest_wins())])
    assert receipt.created is not committed, "the key is kept while there is something newer to do"


async def test_keys_that_wait_for_a_callers_transaction_keep_no_connection(rig: Rig, store: Store) -> None:
    """Test with more jobs than the store has connections."""
    if isinstance(store, SqliteStore):
        return  # SQLite has one writer at a time: all wait
    keys = [newest_wins(f"k{number}") for number in range(8)]
    await store.enqueue([*(new_job(unique=key) for key in keys), new_job()])
    held = await store.claim("default", ANN, 8)
    open_caller = next(iter(rig.callers.values()))
    async with open_caller(rig.url) as caller:
        await caller.enqueue(store, [new_job(unique=key) for key in keys])
        freeing = [asyncio.create_task(store.free_keys({job.id: job.id})) for job in held]
        done, _ = await asyncio.wait(freeing, timeout=0.1)
        assert not done
        assert len(await store.claim("default", ANN, 1)) == 1
        assert await store.settle(ANN, [end(held[0], Outcome.RETRY, error="no")]) == []
        assert not any(task.done() for task in freeing)
        await caller.rollback()
        assert await asyncio.gather(*freeing) == [[]] * 8


async def test_a_job_that_takes_over_in_a_callers_transaction_is_in_nobodys_way(store: Store, caller: Caller) -> None:
    """Not on SQLite, which has one writer at a time: there, all wait."""
    holder, other = await put(store, unique=newest_wins()), await put(store)
    await caller.enqueue(store, [new_job(unique=newest_wins())])
    if isinstance(store, SqliteStore):
        await caller.commit()
    claims = await store.claim("default", ANN, 10)
    assert [claimed.id for claimed in claims] == [holder, other]
    assert await store.settle(ANN, [end(claims[0], Outcome.RETRY, error="no"), end(claims[1])]) == []
    if not isinstance(store, SqliteStore):
        await caller.commit()
    assert list(await store.newest([holder])) == [holder]
