"""On MongoDB, read preference and concern options in the URL have no effect: the store uses the primary."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pymongo import AsyncMongoClient

from conformance.builders import ANN, forever, kept, new_job, put, settle, status, take
from conformance.stores import MongoRig
from mongo_server import MongoServer
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.mongo import MongoStore
from rowlock.storage.records import Outcome, Severity, Status

OPTIONS = (
    "readPreference=secondaryPreferred&readPreferenceTags=use:reports&maxStalenessSeconds=120",
    "readPreference=nearest",
    "readConcernLevel=local&w=0&retryWrites=false",
    "w=1&journal=false&wTimeoutMS=1",
)


@pytest.fixture
async def here(mongo: MongoServer, tmp_path: Path) -> AsyncIterator[MongoRig]:
    rig = MongoRig(tmp_path, mongo)
    yield rig
    await rig.dispose()


@pytest.fixture(params=OPTIONS)
async def store(request: pytest.FixtureRequest, here: MongoRig, clock: FakeClock) -> AsyncIterator[Store]:
    await here.make(clock)
    store = MongoStore(f"{here.url}{'&' if '?' in here.url else '?'}{request.param}", clock)
    await store.open()
    yield store
    await store.close()


async def test_jobs_are_enqueued_and_settled(store: Store) -> None:
    job_id = await put(store, unique=forever())
    await put(store, unique=forever("k2"), max_attempts=1)
    claimed = await take(store)
    await settle(store, claimed, Outcome.FAILED, error="no", failure=kept(claimed))
    assert await status(store, job_id) is Status.FAILED
    async with store.transaction() as transaction:
        await transaction.fetch({"find": "jobs"})
        await transaction.enqueue([new_job(unique=forever("k3"))])
    assert len(await store.claim("default", ANN, 10)) == 2


async def test_a_session_without_a_transaction_enqueues(here: MongoRig, store: MongoStore) -> None:
    async with AsyncMongoClient(store._link.dsn) as client, client.start_session() as session:
        receipts = await store.enqueue([new_job(unique=forever()), new_job()], session)
    assert all(receipt.created for receipt in receipts)


async def test_doctor_finds_nothing_wrong(store: Store) -> None:
    assert {finding.name for finding in await store.diagnose() if finding.severity is Severity.ERROR} == set()
