"""On MongoDB, a chunk's lock that the server holds back does not wait for a transaction that waits for the lock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.builders import ANN
from conformance.import_builders import CLEAN, chunk_jobs, end_chunk, planned
from conformance.stores import MongoRig
from mongo_server import MongoServer
from rowlock.clock import FakeClock
from rowlock.errors import StoreConflict
from rowlock.storage.contract import Store
from rowlock.storage.imports import ImportId, ImportStep
from rowlock.storage.mongo.imports import import_transaction
from rowlock.storage.mongo.imports.import_locks import LOCKS

ANSWER_SECONDS = 0.2
BLOCKED_MS = 1_500
INCREMENT = {"update": "accounts", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"sum": 1}}}]}


@pytest.fixture
async def mongo_rig(mongo: MongoServer, tmp_path: Path) -> AsyncIterator[MongoRig]:
    rig = MongoRig(tmp_path, mongo)
    yield rig
    await rig.dispose()


@pytest.fixture
async def store(mongo_rig: MongoRig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Store:
    store = await mongo_rig.make(clock)
    mongo_rig.database["accounts"].insert_one({"_id": 1, "sum": 0})
    monkeypatch.setattr(import_transaction, "ANSWER_SECONDS", ANSWER_SECONDS)
    return store


@contextmanager
def held_back(mongo: MongoServer, mongo_rig: MongoRig, command: str = "update") -> Iterator[None]:
    """Delay one write of a lock, as a server does whose cache is full of what open transactions have written."""
    data = {"failCommands": [command], "namespace": f"{mongo_rig.database.name}.{LOCKS}"}
    data |= {"blockConnection": True, "blockTimeMS": BLOCKED_MS}
    mongo.node.command({"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": data})
    try:
        yield
    finally:
        mongo.node.command({"configureFailPoint": "failCommand", "mode": "off"})


async def of_first_chunk(store: Store, import_id: ImportId) -> ImportStep:
    return ImportStep(import_id, 0, (await chunk_jobs(store, import_id))[0], owner=ANN, lease=None)


def locks(mongo_rig: MongoRig) -> list[Any]:
    return list(mongo_rig.database[LOCKS].find())


def summed(mongo_rig: MongoRig) -> Any:
    return (mongo_rig.database["accounts"].find_one({"_id": 1}) or {})["sum"]


async def load(store: Store, step: ImportStep) -> None:
    async with store.import_step(step) as transaction:
        await transaction.execute(INCREMENT)
        assert await transaction.end_chunk(step.import_id, step.chunk, CLEAN, job_id=step.job_id) is not None


@pytest.mark.parametrize("command", ["update", "findAndModify"])
async def test_a_lock_that_is_held_back_is_a_conflict_and_is_not_left_behind(
    mongo: MongoServer, mongo_rig: MongoRig, store: Store, command: str
) -> None:
    step = await of_first_chunk(store, await planned(store))
    if command == "findAndModify":  # which takes over an expired lock
        mongo_rig.database[LOCKS].insert_one({"_id": step.import_id, "token": "of a killed process"})
    with held_back(mongo, mongo_rig, command), pytest.raises(StoreConflict, match="holds writes back"):
        await load(store, step)
    assert summed(mongo_rig) == 0
    assert locks(mongo_rig) == []
    await load(store, step)
    assert summed(mongo_rig) == 1


async def test_then_a_chunk_takes_the_lock_before_it_writes(
    mongo: MongoServer, mongo_rig: MongoRig, store: Store
) -> None:
    step = await of_first_chunk(store, await planned(store))
    async with store.import_step(step):
        assert locks(mongo_rig) == []
    with held_back(mongo, mongo_rig), pytest.raises(StoreConflict):
        await load(store, step)
    async with store.import_step(step) as transaction:
        assert [each["_id"] for each in locks(mongo_rig)] == [step.import_id]
        await transaction.execute(INCREMENT)
        assert await transaction.end_chunk(step.import_id, 0, CLEAN, job_id=step.job_id) is not None
    assert locks(mongo_rig) == []
    assert summed(mongo_rig) == 1


@pytest.mark.parametrize("began", [False, True])
async def test_a_lock_that_expired_before_the_rows_were_written_commits_nothing(
    mongo: MongoServer, mongo_rig: MongoRig, store: Store, began: bool
) -> None:
    step = await of_first_chunk(store, await planned(store))
    with held_back(mongo, mongo_rig), pytest.raises(StoreConflict):
        await load(store, step)

    async def too_late() -> None:
        async with store.import_step(step) as transaction:
            if began:
                await transaction.execute(INCREMENT)
            mongo_rig.database[LOCKS].update_one({"_id": step.import_id}, [{"$set": {"until": "$$NOW"}}])
            assert await end_chunk(store, step.import_id, 1) is not None
            await transaction.execute(INCREMENT)
            await transaction.end_chunk(step.import_id, 0, CLEAN, job_id=step.job_id)

    with pytest.raises(StoreConflict):
        await too_late()
    assert summed(mongo_rig) == 0
    await load(store, step)
    assert summed(mongo_rig) == 1
