"""Transaction: a handler's own writes and its job's settlement commit together or not at all."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from conformance.builders import (
    ANN,
    BEN,
    EVERYTHING,
    end,
    forever,
    new_job,
    put,
    put_and_take,
    record,
    status,
    take,
    taken,
)
from conformance.stores import Rig
from rowlock.clock import FakeClock
from rowlock.errors import DuplicateJob
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.storage.records import OnConflict, Outcome, Progress, Receipt, Settlement, Status

REPORT_SECONDS = 0.3


class Interrupted(Exception):
    """Any exception of a handler."""


@pytest.fixture(autouse=True)
async def ledger(rig: Rig, store: Store) -> None:
    await rig.make_ledger(store)


async def lines(rig: Rig, store: Store) -> list[str]:
    async with store.transaction() as transaction:
        return await rig.read_ledger(transaction)


async def test_what_a_job_reports_meanwhile_does_not_undo_it(rig: Rig, store: Store, other: Store) -> None:
    claimed = await put_and_take(store)
    async with store.transaction() as transaction:
        await rig.write_ledger(transaction, "paid")
        report = asyncio.create_task(other.progress(ANN, [Progress(claimed.id, claimed.lease, 50, "half")]))
        await asyncio.wait({report}, timeout=REPORT_SECONDS)  # if writers wait for each other, it follows later
        assert await transaction.settle(ANN, end(claimed)) is True
    await report
    assert await status(store, claimed.id) == Status.SUCCEEDED
    assert await lines(rig, store) == ["paid"]


async def test_writes_and_the_end_of_the_job_commit_together(rig: Rig, store: Store, other: Store) -> None:
    claimed = await put_and_take(store)
    async with store.transaction() as transaction:
        await rig.write_ledger(transaction, "paid")
        assert await transaction.settle(ANN, end(claimed, result='{"paid": 1}')) is True
    found = await record(other, claimed.id)
    assert (found.status, found.result) == (Status.SUCCEEDED, '{"paid": 1}')
    assert await lines(rig, other) == ["paid"]


async def test_writes_and_the_end_of_the_job_vanish_together(rig: Rig, store: Store, other: Store) -> None:
    claimed = await put_and_take(store)
    with suppress(Interrupted):
        async with store.transaction() as transaction:
            await rig.write_ledger(transaction, "paid")
            assert await transaction.settle(ANN, end(claimed)) is True
            raise Interrupted
    assert await status(other, claimed.id) is Status.PROCESSING
    assert await lines(rig, other) == []
    assert await store.settle(ANN, [end(claimed)]) == []


async def test_nothing_is_seen_before_the_commit(rig: Rig, store: Store, other: Store) -> None:
    claimed = await put_and_take(store)
    job = new_job()
    async with store.transaction() as transaction:
        await transaction.settle(ANN, end(claimed))
        await transaction.enqueue([job])
        assert await status(other, claimed.id) is Status.PROCESSING
        assert await other.get(job.id) is None
    assert await status(other, claimed.id) is Status.SUCCEEDED
    assert await status(other, job.id) is Status.QUEUED


async def test_a_transaction_reads_its_own_writes(rig: Rig, store: Store) -> None:
    async with store.transaction() as transaction:
        await rig.write_ledger(transaction, "b")
        await rig.write_ledger(transaction, "a")
        assert await rig.read_ledger(transaction) == ["a", "b"]


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_a_lost_lease_settles_nothing_in_a_transaction(
    rig: Rig, store: Store, clock: FakeClock, outcome: Outcome
) -> None:
    old = await put_and_take(store)
    clock.advance(31)
    await store.rescue(10, {}, str)
    new = await take(store, BEN)
    async with store.transaction() as transaction:
        assert await transaction.settle(ANN, end(old, outcome)) is False
    found = await record(store, old.id)
    assert (found.status, found.lock_owner, found.lease) == (Status.PROCESSING, BEN, new.lease)


async def test_a_handler_that_lost_its_lease_can_take_its_writes_back(rig: Rig, store: Store, clock: FakeClock) -> None:
    old = await put_and_take(store)
    clock.advance(31)
    await store.rescue(10, {}, str)
    with suppress(Interrupted):
        async with store.transaction() as transaction:
            await rig.write_ledger(transaction, "stale")
            if not await transaction.settle(ANN, end(old)):
                raise Interrupted
    assert await lines(rig, store) == []


@pytest.mark.parametrize("settlement", [Settlement(uuid7(), 1), Settlement(uuid7(), 0)])
async def test_an_unknown_job_settles_nothing_in_a_transaction(store: Store, settlement: Settlement) -> None:
    async with store.transaction() as transaction:
        assert await transaction.settle(ANN, settlement) is False


async def test_a_job_settles_once_in_a_transaction(store: Store) -> None:
    claimed = await put_and_take(store)
    async with store.transaction() as transaction:
        assert await transaction.settle(ANN, end(claimed)) is True
        assert await transaction.settle(ANN, end(claimed, Outcome.FAILED)) is False
    assert await status(store, claimed.id) is Status.SUCCEEDED


async def test_a_retry_in_a_transaction_waits_again(rig: Rig, store: Store) -> None:
    claimed = await put_and_take(store)
    async with store.transaction() as transaction:
        await rig.write_ledger(transaction, "half done")
        await transaction.settle(ANN, end(claimed, Outcome.RETRY, error="later"))
    assert (await take(store)).attempt == 2
    assert await lines(rig, store) == ["half done"]


async def test_jobs_enqueued_in_a_transaction_exist_when_it_commits(store: Store) -> None:
    jobs = [new_job(), new_job(priority=1)]
    async with store.transaction() as transaction:
        assert await transaction.enqueue(jobs) == [Receipt(job.id, True) for job in jobs]
    assert await taken(store) == [jobs[1].id, jobs[0].id]


async def test_calls_that_enqueue_in_a_transaction_before_the_last_returned_come_in_turn(store: Store) -> None:
    pieces = [[new_job() for _ in range(20)], [new_job(unique=forever()), new_job()], [new_job()]]
    async with store.transaction() as transaction:
        receipts = await asyncio.gather(*(transaction.enqueue(piece) for piece in pieces))
    jobs = [job.id for piece in pieces for job in piece]
    assert [receipt for some in receipts for receipt in some] == [Receipt(job_id, True) for job_id in jobs]
    assert await taken(store) == jobs


async def test_jobs_enqueued_in_a_transaction_vanish_with_it(store: Store) -> None:
    with suppress(Interrupted):
        async with store.transaction() as transaction:
            await transaction.enqueue([new_job(unique=forever())])
            raise Interrupted
    assert await store.count(EVERYTHING, 10) == 0
    assert (await store.enqueue([new_job(unique=forever())]))[0].created


async def test_a_duplicate_in_a_transaction_is_refused_and_the_rest_stands(rig: Rig, store: Store) -> None:
    holder = await put(store, unique=forever())
    async with store.transaction() as transaction:
        await rig.write_ledger(transaction, "before")
        with pytest.raises(DuplicateJob) as refusal:
            await transaction.enqueue([new_job(), new_job(unique=forever())])
        await rig.write_ledger(transaction, "then")
    assert refusal.value.existing_job_id == holder
    assert await lines(rig, store) == ["before", "then"]
    assert await taken(store) == [holder]


async def test_a_duplicate_in_a_transaction_may_return_the_existing_job(store: Store) -> None:
    holder = await put(store, unique=forever())
    async with store.transaction() as transaction:
        receipts = await transaction.enqueue([new_job(unique=forever("k", OnConflict.RETURN_EXISTING))])
    assert receipts == [Receipt(holder, False)]


async def test_an_error_of_the_users_is_raised_as_it_is(store: Store) -> None:
    with pytest.raises(Interrupted):
        async with store.transaction():
            raise Interrupted
    assert await store.count(EVERYTHING, 1) == 0


async def test_a_bad_query_of_the_users_undoes_the_transaction(rig: Rig, store: Store) -> None:
    claimed = await put_and_take(store)

    async def handler() -> None:
        async with store.transaction() as transaction:
            await transaction.settle(ANN, end(claimed))
            await transaction.execute(rig.bad_query)

    with pytest.raises(Exception, match="no_such_table"):
        await handler()
    assert await status(store, claimed.id) is Status.PROCESSING
    await rig.make_ledger(store)


async def test_a_transaction_offers_the_drivers_own_connection(store: Store) -> None:
    async with store.transaction() as transaction:
        assert transaction.connection is not None


async def test_transactions_follow_each_other(rig: Rig, store: Store, other: Store) -> None:
    for place, each in enumerate([store, other, store, other]):
        async with each.transaction() as transaction:
            await rig.write_ledger(transaction, str(place))
    assert await lines(rig, store) == ["0", "1", "2", "3"]


async def test_the_store_works_on_while_a_transaction_is_open(store: Store, other: Store) -> None:
    claimed = await put_and_take(store)
    async with store.transaction() as transaction:
        await transaction.settle(ANN, end(claimed))
        assert await store.count(EVERYTHING, 10) == 1
        assert (await store.counts())[Status.PROCESSING] == 1
        assert await other.held(ANN) != []
