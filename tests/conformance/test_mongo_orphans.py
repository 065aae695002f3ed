"""On MongoDB, the transaction of a verb whose process was killed midway does not block others for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from conformance.builders import ANN, BEN, end, new_job, put, put_and_take, status
from conformance.stores import MongoRig
from mongo_server import MongoServer
from rowlock.clock import FakeClock
from rowlock.errors import StoreUnavailable
from rowlock.storage.contract import Store
from rowlock.storage.mongo import MongoStore, connection
from rowlock.storage.mongo.connection import Scope
from rowlock.storage.mongo.jobs import orphans, settle
from rowlock.storage.records import Limit, Outcome, Status, UniqueKey

SOON_SECONDS = 15.0  # generous, and far from the server's minute
KEY = UniqueKey("k", None, False)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ORPHAN_SECONDS", 0.05)
    monkeypatch.setattr(orphans, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(orphans, "STILL_SECONDS", 0.3)


@pytest.fixture
async def mongo_rig(mongo: MongoServer, tmp_path: Path) -> AsyncIterator[MongoRig]:
    rig = MongoRig(tmp_path, mongo)
    yield rig
    await rig.dispose()


@pytest.fixture
async def store(mongo_rig: MongoRig, clock: FakeClock) -> Store:
    return await mongo_rig.make(clock)


@pytest.fixture
async def dead(mongo_rig: MongoRig, store: Store, clock: FakeClock) -> MongoStore:
    """The store object of a process that is killed in the middle of a verb."""
    made = await mongo_rig.another(clock)
    assert isinstance(made, MongoStore)
    return made


@asynccontextmanager
async def stopped_before_its_commit(monkeypatch: pytest.MonkeyPatch, verb: Any) -> AsyncIterator[None]:
    """Keep the transaction of this call open, with its writes, until the end of the block."""
    reached = asyncio.Event()

    async def never(*_: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(connection, "commit", never)
        task = asyncio.create_task(verb)
        async with asyncio.timeout(SOON_SECONDS):
            await reached.wait()
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_key_is_taken(store: Store, dead: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = new_job(unique=KEY), new_job(unique=KEY)
    async with stopped_before_its_commit(monkeypatch, dead.enqueue([theirs])), asyncio.timeout(SOON_SECONDS):
        (receipt,) = await store.enqueue([mine])
    assert (receipt.job_id, receipt.created) == (mine.id, True)


async def test_a_limit_key_goes_on(store: Store, dead: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.define_limits([Limit("api", concurrency=5)])
    job_id = await put(store, limit_key="api")
    async with stopped_before_its_commit(monkeypatch, dead.claim("default", ANN, 1)), asyncio.timeout(SOON_SECONDS):
        (claimed,) = await store.claim("default", BEN, 1)
    assert claimed.id == job_id


async def test_a_job_is_rescued_whose_settlement_never_ended(
    store: Store, dead: MongoStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = await put_and_take(store)
    failed = end(claimed, Outcome.RETRY, error="x")
    async with stopped_before_its_commit(monkeypatch, dead.settle(ANN, [failed])), asyncio.timeout(SOON_SECONDS):
        clock.advance(31)
        assert [rescued.job_id for rescued in await store.rescue(10, {}, str)] == [claimed.id]


async def test_a_success_is_recorded_of_a_job_whose_cancel_never_ended(
    store: Store, dead: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A success is recorded without a transaction: it gets no conflict error, but waits until its timeout."""
    monkeypatch.setattr(settle, "BUSY_SECONDS", 0.2)
    claimed = await put_and_take(store)
    async with stopped_before_its_commit(monkeypatch, dead.cancel(claimed.id)), asyncio.timeout(SOON_SECONDS):
        while await status(store, claimed.id) is Status.PROCESSING:
            with suppress(StoreUnavailable):
                await store.settle(ANN, [end(claimed)])
    assert await status(store, claimed.id) is Status.SUCCEEDED


async def test_a_process_that_is_alive_after_all_does_it_again(
    mongo_rig: MongoRig, store: Store, dead: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = new_job(unique=KEY), new_job()
    paused, go_on = asyncio.Event(), asyncio.Event()
    tries = 0

    async def work(scope: Scope) -> None:
        nonlocal tries
        tries += 1
        await scope["rowlock_keys"].update_one(
            {"_id": "k"}, {"$set": {"jobId": theirs.id}}, upsert=True, session=scope.session
        )
        paused.set()
        await go_on.wait()

    stuck = asyncio.create_task(dead._link.atomic(work))
    async with asyncio.timeout(SOON_SECONDS):
        await paused.wait()
        (receipt,) = await store.enqueue([mine])
        assert receipt.created
        go_on.set()
        await stuck
    assert tries == 2


async def test_a_session_that_is_handed_back_to_the_driver_is_no_longer_recorded(
    mongo_rig: MongoRig, dead: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a caller's transaction in it would be mistaken for a verb's; verbs keep using the same session."""
    recorded = mongo_rig.database[orphans.VERB_SESSIONS]
    for round_ in range(2):
        await asyncio.gather(*(dead.enqueue([new_job(unique=UniqueKey(f"{round_} {n}"))]) for n in range(8)))
        assert recorded.count_documents({})
        monkeypatch.setattr(orphans, "KEPT_SECONDS", 0.0)  # the next use considers all of them too old
    async with dead.transaction() as transaction:
        await transaction.execute({"insert": "callers", "documents": [{"x": 1}]})
        assert not recorded.count_documents({"_id": transaction.connection.session_id["id"]})
    await dead.close()
    assert recorded.count_documents({}) == 0


async def test_transactions_of_others_are_left_alone(mongo_rig: MongoRig, store: Store) -> None:
    """Transactions of the application and of handlers, however long they are idle."""
    assert isinstance(store, MongoStore)
    mongo_rig.database.create_collection("things")
    looked = 0
    insert = {"insert": "things", "documents": [{"x": 1}]}
    with mongo_rig.resource_given.client.start_session() as session, session.start_transaction():
        mongo_rig.database["things"].insert_one({"x": 1}, session=session)
        async with store.transaction() as transaction:
            await transaction.execute(insert)
            while looked < 10:
                await store._link.plain(lambda scope: store._link._orphans.end(scope.db))
                await asyncio.sleep(0.1)
                looked += 1
            await transaction.execute(insert)
        mongo_rig.database["things"].insert_one({"x": 1}, session=session)
    assert mongo_rig.database["things"].count_documents({}) == 4
