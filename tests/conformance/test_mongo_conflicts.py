"""On MongoDB, a transaction that conflicts with another is retried until its statement's time is up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient

from conformance.builders import new_job
from conformance.stores import MongoRig
from mongo_server import MongoServer
from rowlock.clock import FakeClock
from rowlock.control import schedules
from rowlock.storage.contract import Store
from rowlock.storage.mongo import MongoStore, connection
from rowlock.storage.mongo import transaction_retries as tries
from rowlock.storage.mongo.errors import TransactionConflict
from rowlock.storage.records import Receipt, UniqueKey
from rowlock.storage.reliability import Tick

MANY = 60  # conflicts, more than any transaction has on a healthy server
ONE = datetime(2026, 1, 1, 1, tzinfo=UTC)
KEY = UniqueKey("k", None, False)


@pytest.fixture(autouse=True)
def short_naps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "NAP_SECONDS", (0.0005, 0.001))


@pytest.fixture
async def mongo_rig(mongo: MongoServer, tmp_path: Path) -> AsyncIterator[MongoRig]:
    rig = MongoRig(tmp_path, mongo)
    yield rig
    await rig.dispose()


@pytest.fixture
async def store(mongo_rig: MongoRig, clock: FakeClock) -> Store:
    return await mongo_rig.make(clock)


@contextmanager
def locked(mongo_rig: MongoRig, collection: str, document: str) -> Iterator[None]:
    """Hold a document's lock in an open transaction, as a process killed within one does."""
    with mongo_rig.resource_given.client.start_session() as session:
        session.start_transaction()
        mongo_rig.database[collection].update_one({"_id": document}, {"$set": {"x": 1}}, upsert=True, session=session)
        yield
        session.abort_transaction()


def conflicts(mongo_rig: MongoRig) -> int:
    """Return how many transactions the server has rolled back."""
    return int(mongo_rig.database.command("serverStatus")["transactions"]["totalAborted"])


async def meet_many_conflicts(
    mongo_rig: MongoRig, collection: str, document: str, call: Callable[[], Coroutine[Any, Any, Any]]
) -> Any:
    """Run a call that conflicts with a document's lock many times before the lock ends. Returns its result."""
    with locked(mongo_rig, collection, document):
        before = conflicts(mongo_rig)
        task = asyncio.create_task(call())
        while conflicts(mongo_rig) < before + MANY and not task.done():
            await asyncio.sleep(0.01)
    return await task


async def test_a_tick_fires_after_many_conflicts(mongo_rig: MongoRig, store: Store) -> None:
    await schedules.declare(store, [("nightly", "every hour", ONE)])
    tick = Tick("nightly", ONE, ONE, ONE + timedelta(hours=1), new_job())
    receipt = await meet_many_conflicts(mongo_rig, "rowlock_schedules", "nightly", lambda: schedules.fire(store, tick))
    assert tick.job is not None
    assert receipt == Receipt(tick.job.id, True)


async def test_a_key_is_taken_after_many_conflicts(mongo_rig: MongoRig, store: Store) -> None:
    job = new_job(unique=KEY)
    receipts = await meet_many_conflicts(mongo_rig, "rowlock_keys", "k", lambda: store.enqueue([job]))
    assert receipts == [Receipt(job.id, True)]


async def test_an_enqueue_through_an_asynchronous_session_outlasts_many_conflicts(
    mongo_rig: MongoRig, store: Store
) -> None:
    job = new_job(unique=KEY)
    async with AsyncMongoClient[dict[str, Any]](mongo_rig.url) as client, client.start_session() as session:
        receipts = await meet_many_conflicts(mongo_rig, "rowlock_keys", "k", lambda: store.enqueue([job], session))
    assert receipts == [Receipt(job.id, True)]


async def test_an_enqueue_through_a_synchronous_session_outlasts_many_conflicts(
    mongo_rig: MongoRig, store: Store
) -> None:
    job = new_job(unique=KEY)
    with MongoClient[dict[str, Any]](mongo_rig.url) as client, client.start_session() as session:

        def enqueue() -> Any:
            return asyncio.to_thread(store.enqueue_blocking, [job], session)

        receipts = await meet_many_conflicts(mongo_rig, "rowlock_keys", "k", enqueue)
    assert receipts == [Receipt(job.id, True)]


async def test_when_its_time_is_up_it_says_so_and_keeps_its_connections(mongo_rig: MongoRig, store: Store) -> None:
    assert isinstance(store, MongoStore)
    await schedules.listed(store)
    pool = store._link._pool

    async def touch(scope: connection.Scope) -> None:
        await scope["rowlock_schedules"].update_one(
            {"_id": "x"}, {"$set": {"x": 2}}, upsert=True, session=scope.session
        )

    with locked(mongo_rig, "rowlock_schedules", "x"), pytest.raises(TransactionConflict, match="try it again"):
        await store._link.atomic(touch, seconds=2.0)
    assert store._link._pool is pool
