"""MongoDB only: documents that people can query in its shell, minimal rights, a standalone server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.database import Database

from conformance.builders import (
    ANN,
    EVERYTHING,
    end,
    forever,
    new_job,
    new_jobs,
    put,
    put_and_end,
    put_and_fail,
    put_many,
    settle,
    status,
    take,
)
from conformance.stores import MongoRig, StandaloneRig
from mongo_server import MongoServer
from rowlock.clock import FakeClock, StoreClock
from rowlock.control import locks, schedules
from rowlock.errors import DuplicateJob, StoreError, StoreUnavailable
from rowlock.storage.contract import Store
from rowlock.storage.mongo import MongoStore
from rowlock.storage.records import KeepPolicy, OnConflict, Outcome, Status, UniqueKey
from rowlock.storage.reliability import LockKey, Tick


@pytest.fixture
async def mongo_rig(mongo: MongoServer, tmp_path: Path) -> AsyncIterator[MongoRig]:
    rig = MongoRig(tmp_path, mongo)
    yield rig
    await rig.dispose()


@pytest.fixture
async def store(mongo_rig: MongoRig, clock: FakeClock) -> Store:
    return await mongo_rig.make(clock)


@pytest.fixture
def database(mongo_rig: MongoRig, store: Store) -> Database[dict[str, Any]]:
    return mongo_rig.database


async def test_the_lines_of_the_manual_are_answered(
    store: Store, database: Database[dict[str, Any]], clock: FakeClock
) -> None:
    await put_and_fail(store)
    clock.advance(7_200)
    for seconds in (2.0, 4.0):
        await put(store)
        claimed = await take(store)
        clock.advance(seconds)
        assert await store.settle(ANN, [end(claimed, seconds=seconds)]) == []
    recent = await put_and_fail(store)
    await put_and_end(store, Outcome.CANCELLED)
    await put_many(store, 3)
    await take(store)

    statuses = database["jobs"].aggregate([{"$group": {"_id": "$status", "count": {"$sum": 1}}}])
    assert {group["_id"]: group["count"] for group in statuses} == {
        "queued": 2,
        "processing": 1,
        "succeeded": 2,
        "failed": 2,
        "cancelled": 1,
    }
    (average,) = database["jobs"].aggregate(
        [
            {"$match": {"status": "succeeded"}},
            {"$project": {"processingTime": {"$subtract": ["$finishedAt", "$startedAt"]}}},
            {"$group": {"_id": None, "avgTime": {"$avg": "$processingTime"}}},
        ]
    )
    assert average["avgTime"] == 3_000
    hour_ago = clock.now() - timedelta(hours=1)
    found = database["jobs"].find({"status": "failed", "updatedAt": {"$gt": hour_ago}})
    assert [job["_id"] for job in found] == [recent.job_id]


async def test_a_document_has_the_names_that_people_know(store: Store, database: Database[dict[str, Any]]) -> None:
    await put(store, payload='{"to":"a@b.c","deep":{"list":[1,2]}}', company_id="acme")
    await store.settle(ANN, [end(await take(store), result='{"sent":true}')])
    (found,) = database["jobs"].find({"payload.deep.list": 2, "result.sent": True})
    assert (found["type"], found["status"], found["companyId"]) == ("send.email", "succeeded", "acme")
    assert (found["attempts"], found["maxAttempts"]) == (1, 5)
    for name in ("createdAt", "startedAt", "finishedAt", "updatedAt"):
        assert isinstance(found[name], datetime)


@pytest.mark.parametrize(
    "payload",
    [
        '{"a.b":1,"$where":"1"}',
        '{"n":123456789012345678901234567890}',
        '{ "spaced" : 1e3 }',
        '{"a":1,"a":2}',
        '{"":{"":[]}}',
        '"text"',
        "[1,2]",
        "null",
        '{"_id":{"$oid":"x"}}',
        '{"nul":"\\u0000","k\\u0000":1}',
        '{"d":' * 150 + "1" + "}" * 150,
    ],
)
async def test_a_payload_comes_back_byte_for_byte(store: Store, payload: str) -> None:
    job_id = await put(store, payload=payload)
    assert (await take(store)).payload == payload
    found = await store.get(job_id)
    assert found is not None
    assert found.payload == payload


async def test_a_write_that_is_refused_in_a_transaction_says_so(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    database["ledger"].insert_one({"_id": 1})
    with pytest.raises(StoreError, match="already exists"):
        async with store.transaction() as transaction:
            await transaction.execute({"insert": "ledger", "documents": [{"_id": 2}, {"_id": 1}]})
    assert [line["_id"] for line in database["ledger"].find()] == [1]


async def test_collections_and_indexes_are_made_at_once_and_stay(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    index = {"name": "by_line", "key": {"line": 1}, "unique": True}
    with suppress(ZeroDivisionError):
        async with store.transaction() as transaction:
            await transaction.execute({"createIndexes": "made", "indexes": [index]})
            await transaction.execute({"insert": "made", "documents": [{"line": 1}]})
            raise ZeroDivisionError
    assert "by_line" in database["made"].index_information()
    assert database["made"].count_documents({}) == 0
    async with store.reading() as transaction:
        (found,) = await transaction.fetch({"listCollections": 1, "filter": {"name": "made"}})
    assert found["name"] == "made"
    database["made"].drop()


async def test_the_first_command_of_a_transaction_waits_for_those_in_its_way(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    database["ledger"].insert_one({"_id": "sum", "value": 0})
    add = {"update": "ledger", "updates": [{"q": {"_id": "sum"}, "u": {"$inc": {"value": 1}}}]}

    async def count() -> None:
        async with store.transaction() as transaction:
            await transaction.execute(add)
            await transaction.fetch({"find": "ledger"})

    await asyncio.gather(*(count() for _ in range(6)))
    assert database["ledger"].find_one() == {"_id": "sum", "value": 6}


async def test_folding_the_counts_is_not_in_the_way_of_a_handler(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    """A job enqueued alone counts as its own delta until compaction, which updates the job."""
    await put(store)
    claimed = await take(store)
    async with store.transaction() as transaction:
        await transaction.execute({"insert": "ledger", "documents": [{"_id": 1}]})
        assert await store.compact(10) == 0
        assert await transaction.settle(ANN, end(claimed))
    assert database["jobs"].count_documents({"isNew": True}) == 1
    assert (await store.counts())[Status.SUCCEEDED] == 1
    assert await store.compact(10) == 2  # including the delta of its end
    assert database["jobs"].count_documents({"isNew": True}) == 0
    assert (await store.counts())[Status.SUCCEEDED] == 1
    assert (await store.prune({Status.SUCCEEDED: KeepPolicy(count=0)}, 10))[Status.SUCCEEDED] == 1
    assert set((await store.counts()).values()) == {0}


async def test_more_new_jobs_than_are_folded_at_once_are_folded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.storage.mongo.jobs.counters.NEW_AT_MOST", 2)
    for _ in range(5):
        await put(store)
    assert await store.compact(3) == 3
    assert await store.compact(10) == 2
    assert (await store.counts())[Status.QUEUED] == 5


async def test_a_user_who_may_read_and_write_is_enough(mongo: MongoServer) -> None:
    mongo.client["few"].command("createUser", "clerk", pwd="hunter2", roles=["readWrite"])
    address = mongo.url_of("few", password=False, authSource="few").replace("mongodb://", "mongodb://clerk:hunter2@")
    store = MongoStore(address, StoreClock())
    try:
        await store.migrate()
        await store.check_schema()
        job_id = await put(store)
        await store.settle(ANN, [end(await take(store))])
        assert await status(store, job_id) is Status.SUCCEEDED
        assert await store.diagnose()
    finally:
        await store.close()


async def test_a_wrong_password_is_told_without_it(mongo: MongoServer) -> None:
    store = MongoStore(mongo.url_of("few").replace(":hunter2@", ":hunter3@"), StoreClock())
    try:
        with pytest.raises(StoreUnavailable) as refused:
            await store.open()
        assert "hunter3" not in str(refused.value)
    finally:
        await store.close()


# -- standalone server -------------------------------------------------------------------------------


@pytest.fixture
async def alone(standalone_mongo: MongoServer, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    rig = StandaloneRig(tmp_path, standalone_mongo)
    yield await rig.make(clock)
    await rig.dispose()


async def test_without_a_replica_set_jobs_live_as_ever(alone: Store, clock: FakeClock) -> None:
    jobs = new_jobs(20)
    await alone.enqueue(jobs)
    claimed = await alone.claim("default", ANN, 10)
    assert [one.id for one in claimed] == [job.id for job in jobs[:10]]
    assert await alone.settle(ANN, [end(one) for one in claimed[:9]]) == []
    clock.advance(31)
    assert len(await alone.rescue(10, {}, str)) == 1
    assert await alone.settle(ANN, [end(claimed[9])]) == [claimed[9].id]
    counts = await alone.counts()
    assert (counts[Status.QUEUED], counts[Status.SUCCEEDED]) == (11, 9)


async def test_without_a_replica_set_a_batch_is_all_or_none(alone: Store) -> None:
    key = UniqueKey("k", on_conflict=OnConflict.REJECT)
    await put(alone, unique=key)
    with pytest.raises(DuplicateJob):
        await alone.enqueue([*new_jobs(3), *new_jobs(1, unique=key)])
    assert await alone.count(EVERYTHING, 10) == 1


async def test_without_a_replica_set_a_job_that_comes_after_its_key_was_not_removed(
    alone: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, seen = forever(), list[DuplicateJob]()

    async def look() -> None:
        with pytest.raises(DuplicateJob) as refusal:
            await put(alone, unique=key)
        seen.append(refusal.value)

    insert = AsyncCollection.insert_one

    async def looked_at_before(collection: Any, document: Any, **options: Any) -> Any:
        if not seen:
            await look()
        return await insert(collection, document, **options)

    monkeypatch.setattr(AsyncCollection, "insert_one", looked_at_before)
    holder = await put(alone, unique=key)
    assert [(error.existing_job_id, error.removed) for error in seen] == [(holder, False)]
    await settle(alone, await take(alone))
    clock.advance(59)
    await alone.prune({Status.SUCCEEDED: KeepPolicy(count=0)}, 10)
    await look()
    clock.advance(2)
    await look()
    assert [error.removed for error in seen] == [False, False, True]


async def test_without_a_replica_set_one_of_many_takes_a_lock(alone: Store, clock: FakeClock) -> None:
    for number in range(10):
        clock.advance(61)
        asked = (locks.take(alone, LockKey("", "report", "all"), "data", f"{number}.{n}", 60) for n in range(6))
        assert sum(answer.decision.go for answer in await asyncio.gather(*asked)) == 1


async def test_without_a_replica_set_a_tick_fires_once(alone: Store, clock: FakeClock) -> None:
    now, hour = clock.now(), timedelta(hours=1)
    await schedules.declare(alone, [("nightly", "every hour", now)])
    for number in range(5):
        at = now + number * hour
        ticks = [Tick("nightly", at, at, at + hour, new_job()) for _ in range(4)]
        fired = await asyncio.gather(*(schedules.fire(alone, tick) for tick in ticks))
        assert sum(receipt is not None for receipt in fired) == 1
        assert await alone.count(EVERYTHING, 10) == number + 1


async def test_without_a_replica_set_a_tick_whose_job_is_refused_has_not_fired(alone: Store, clock: FakeClock) -> None:
    now, hour = clock.now(), timedelta(hours=1)
    await put(alone, unique=forever())
    await schedules.declare(alone, [("nightly", "every hour", now)])
    before = await schedules.listed(alone)
    with pytest.raises(DuplicateJob):
        await schedules.fire(alone, Tick("nightly", now, now, now + hour, new_job(unique=forever())))
    assert (await schedules.listed(alone), await schedules.list_runs(alone, None, 10)) == (before, [])
    assert await schedules.fire(alone, Tick("nightly", now, now, now + hour, new_job())) is not None


async def test_without_a_replica_set_a_transaction_is_refused_with_the_reason(alone: Store) -> None:
    with pytest.raises(StoreError, match="replica set"):
        async with alone.transaction():
            pass


async def test_without_a_replica_set_hints_are_unavailable(alone: Store) -> None:
    with pytest.raises(StoreUnavailable, match="replica set"):
        await alone.listen(lambda kind, name: None)


async def test_the_doctor_says_what_is_weaker(alone: Store) -> None:
    (found,) = [finding for finding in await alone.diagnose() if finding.check == "replica set"]
    assert "poll" in found.message
