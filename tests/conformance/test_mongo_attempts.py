"""On MongoDB, a lost attempt's transaction is ended: the server would keep it and its locks for a minute."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure

from conformance.builders import ANN, BEN, end, put, put_and_take, record, settle, take
from conformance.import_builders import CLEAN, end_chunk, planned
from conformance.stores import MongoRig
from mongo_server import MongoServer
from rowlock.clock import FakeClock
from rowlock.errors import StoreUnavailable
from rowlock.storage.contract import Store
from rowlock.storage.mongo import MongoStore
from rowlock.storage.mongo.imports import import_locks
from rowlock.storage.mongo.jobs import attempts
from rowlock.storage.mongo.jobs.attempts import TRANSACTIONS
from rowlock.storage.records import Attempt, Claimed, Outcome, Status

SOON_SECONDS = 15.0  # generous, and far from the server's minute
VAIN_SECONDS = 0.5
HELD_BACK_SECONDS = 12.0  # longer than an attempt waits for the start of its transaction
INCREMENT = {"update": "accounts", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"sum": 1}}}]}


class Killed(Exception):
    """Ends the transaction block of a process that counts as killed."""


@pytest.fixture
async def mongo_rig(mongo: MongoServer, tmp_path: Path) -> AsyncIterator[MongoRig]:
    rig = MongoRig(tmp_path, mongo)
    yield rig
    await rig.dispose()


@pytest.fixture
async def store(mongo_rig: MongoRig, clock: FakeClock) -> Store:
    store = await mongo_rig.make(clock)
    mongo_rig.database["accounts"].insert_one({"_id": 1, "sum": 0})
    return store


@pytest.fixture
async def dead(mongo_rig: MongoRig, store: Store, clock: FakeClock) -> Store:
    """The store object of a process that is killed later."""
    return await mongo_rig.another(clock)


@asynccontextmanager
async def left_open(store: Store, claimed: Claimed) -> AsyncIterator[Any]:
    """Leave a transaction of this attempt open, as a killed process does."""
    with suppress(Killed):
        async with store.transaction(Attempt(claimed.id, claimed.lease)) as transaction:
            await transaction.execute(INCREMENT)
            yield transaction
            raise Killed


def summed(mongo_rig: MongoRig) -> int:
    found = mongo_rig.database["accounts"].find_one({"_id": 1})
    assert found is not None
    return int(found["sum"])


async def _none(*_: Any) -> list[Any]:
    return []


async def _refused(*_: Any) -> None:
    raise OperationFailure("killSessions is not allowed", 13)


async def write(store: Store, claimed: Claimed, owner: str = BEN, seconds: float = SOON_SECONDS) -> None:
    """Do the work of the job's handler."""
    async with asyncio.timeout(seconds), store.transaction(Attempt(claimed.id, claimed.lease)) as transaction:
        await transaction.execute(INCREMENT)
        assert await transaction.settle(owner, end(claimed)) is True


async def test_the_next_attempt_writes_what_a_rescued_one_has_written(
    mongo_rig: MongoRig, store: Store, dead: Store, clock: FakeClock
) -> None:
    claimed = await put_and_take(store)
    async with left_open(dead, claimed):
        clock.advance(31)
        assert len(await store.rescue(10, {}, str)) == 1
        await write(store, await take(store, BEN))
    assert summed(mongo_rig) == 1


async def test_a_job_is_rescued_that_its_lost_attempt_has_settled(
    mongo_rig: MongoRig, store: Store, dead: Store, clock: FakeClock
) -> None:
    claimed = await put_and_take(store)
    async with left_open(dead, claimed) as transaction:
        assert await transaction.settle(ANN, end(claimed)) is True
        clock.advance(31)
        async with asyncio.timeout(SOON_SECONDS):
            assert len(await store.rescue(10, {}, str)) == 1
        await write(store, await take(store, BEN))
    assert summed(mongo_rig) == 1


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.SUSPECT, Outcome.FATAL, Outcome.RELEASE])
@pytest.mark.parametrize("settled", [False, True])
async def test_a_supervisor_settles_for_a_worker_that_died(
    mongo_rig: MongoRig, store: Store, dead: Store, outcome: Outcome, settled: bool
) -> None:
    claimed = await put_and_take(store)
    async with left_open(dead, claimed) as transaction:
        if settled:
            assert await transaction.settle(ANN, end(claimed)) is True
        async with asyncio.timeout(SOON_SECONDS):
            await settle(store, claimed, outcome, error="it died")
        if outcome is Outcome.FATAL:
            claimed = await put_and_take(store, BEN)  # another job that writes to the same document
        else:
            claimed = await take(store, BEN)
        await write(store, claimed)
    assert summed(mongo_rig) == 1


async def test_the_next_attempt_ends_what_a_rescue_has_left_behind(
    mongo_rig: MongoRig, store: Store, dead: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rescuing process may die before it ends the transaction."""
    claimed = await put_and_take(store)
    async with left_open(dead, claimed):
        clock.advance(31)
        with monkeypatch.context() as patched:
            patched.setattr(attempts, "end", _nothing)
            assert len(await store.rescue(10, {}, str)) == 1
        await write(store, await take(store, BEN))
    assert summed(mongo_rig) == 1


async def _nothing(*_: Any) -> None:
    return


async def test_these_tests_notice_that_nothing_is_ended(
    store: Store, dead: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_end", _nothing)
    claimed = await put_and_take(store)
    async with left_open(dead, claimed):
        clock.advance(31)
        assert len(await store.rescue(10, {}, str)) == 1
        with pytest.raises(TimeoutError):
            await write(store, await take(store, BEN), seconds=VAIN_SECONDS)


async def test_an_attempt_that_holds_its_lease_keeps_its_transaction(
    mongo_rig: MongoRig, store: Store, dead: Store, clock: FakeClock
) -> None:
    """Even if another job of the same worker is rescued and others fail."""
    short = await put_and_take(store, visibility_ms=1_000)
    long = await put_and_take(store, visibility_ms=60_000)
    crashed = await put_and_take(store, BEN)
    async with asyncio.timeout(SOON_SECONDS), dead.transaction(Attempt(long.id, long.lease)) as transaction:
        await transaction.execute(INCREMENT)
        clock.advance(31)
        assert {rescued.job_id for rescued in await store.rescue(10, {}, str)} == {short.id, crashed.id}
        assert await transaction.settle(ANN, end(long)) is True
    assert summed(mongo_rig) == 1
    assert (await record(store, long.id)).status is Status.SUCCEEDED


@pytest.mark.parametrize("seen", [True, False])
async def test_ending_a_lost_attempt_ends_nothing_else(
    mongo_rig: MongoRig, store: Store, dead: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    """Its record may be missing: MongoDB interprets an empty list of sessions as all sessions."""
    lost, live = await put_and_take(store), await put_and_take(store, BEN)
    other = await mongo_rig.another(clock)
    async with left_open(dead, lost), other.transaction(Attempt(live.id, live.lease)) as transaction:
        await transaction.execute({"insert": "notes", "documents": [{"x": 1}]})
        if not seen:
            monkeypatch.setattr(attempts, "_marked", _none)
        await settle(store, lost, Outcome.CRASH)
        await transaction.execute({"insert": "notes", "documents": [{"x": 2}]})
        assert await transaction.settle(BEN, end(live)) is True
    assert mongo_rig.database["notes"].count_documents({}) == 2
    assert mongo_rig.database[TRANSACTIONS].count_documents({}) == (0 if seen else 1)


async def test_where_sessions_may_not_be_ended_work_goes_on(
    mongo_rig: MongoRig, store: Store, dead: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some hosted services forbid it; the server ends the transaction after its own timeout."""
    lost = await put_and_take(store)
    async with left_open(dead, lost):
        monkeypatch.setattr(attempts, "_kill", _refused)
        await settle(store, lost, Outcome.CRASH)
        assert (await record(store, lost.id)).status is not Status.PROCESSING


async def test_a_worker_that_was_away_goes_on_with_its_next_jobs(
    mongo_rig: MongoRig, store: Store, dead: Store, clock: FakeClock
) -> None:
    """Its ended sessions are not used again, however late they are ended."""
    claimed = await put_and_take(store)
    async with left_open(dead, claimed):
        clock.advance(31)
        await store.rescue(10, {}, str)
    assert isinstance(store, MongoStore)
    gone = await store._link.plain(lambda scope: scope[TRANSACTIONS].find().to_list())
    assert gone == []
    for _ in range(3):
        await put(dead)
        await write(dead, await take(dead, BEN))
    assert summed(mongo_rig) == 3
    used = await store._link.plain(lambda scope: scope[TRANSACTIONS].find().to_list())
    assert used == [], "a transaction that is over has no record"


async def test_a_session_that_is_being_ended_is_not_used_again(
    mongo_rig: MongoRig, store: Store, dead: Store, clock: FakeClock
) -> None:
    ids = []
    claimed = await put_and_take(store)
    for claim in (claimed, claimed):
        async with left_open(dead, claim) as transaction:
            ids.append(transaction.connection.session_id["id"])
            mongo_rig.database[TRANSACTIONS].update_one({"_id": ids[-1]}, {"$set": {"lost": True}})
    assert ids[0] != ids[1]


async def test_an_import_is_decided_on_at_once_after_a_lost_attempt_had_its_lock(
    mongo_rig: MongoRig, store: Store, dead: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_locks, "LEASE_MS", 60_000)  # otherwise the wait for it would be hard to distinguish
    import_id = await planned(store, 2)
    claimed = await put_and_take(store)
    async with left_open(dead, claimed) as transaction:
        assert await transaction.end_chunk(import_id, 0, CLEAN) is not None
        clock.advance(31)
        await store.rescue(10, {}, str)
        async with asyncio.timeout(SOON_SECONDS):
            chunk_end = await end_chunk(store, import_id, 0)
            assert await store.cancel_import(import_id) is not None
    assert chunk_end is not None
    assert chunk_end.completed == 1


async def test_a_lost_transaction_is_ended_even_if_the_server_holds_writes_back(
    mongo: MongoServer,
    mongo_rig: MongoRig,
    store: Store,
    dead: Store,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be what fills the cache, so no write can come before its end."""
    claimed = await put_and_take(store)
    async with left_open(dead, claimed):
        clock.advance(31)
        with monkeypatch.context() as patched:
            patched.setattr(attempts, "end", _nothing)
            assert len(await store.rescue(10, {}, str)) == 1
        again = await take(store, BEN)
        data = {"failCommands": ["update", "insert"], "namespace": f"{mongo_rig.database.name}.{TRANSACTIONS}"}
        data |= {"blockConnection": True, "blockTimeMS": int(HELD_BACK_SECONDS * 1_000)}
        mongo.node.command({"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data})
        try:
            with pytest.raises(StoreUnavailable):
                await write(store, again)
            # Not in a transaction, so it waits for the one that was left open.
            accounts = mongo_rig.database["accounts"]
            with pymongo.timeout(HELD_BACK_SECONDS / 2):
                accounts.update_one({"_id": 1}, {"$inc": {"sum": 1}})
        finally:
            mongo.node.command({"configureFailPoint": "failCommand", "mode": "off"})
    assert summed(mongo_rig) == 1
