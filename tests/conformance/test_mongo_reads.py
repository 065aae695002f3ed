"""MongoDB queries never read all jobs, according to the server's profiler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from conformance.builders import ANN, EVERYTHING, end, put_many, settle, take
from conformance.stores import MongoRig
from mongo_server import MongoServer
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.records import JobFilter, KeepPolicy, Outcome, Status

MANY = 1_500
FEW = 10
READ_MAX = 300  # documents or keys, for few or no matching jobs
COUNTED_MAX = MANY + 100  # keys, if the store counts by an index only
Look = Callable[[Store, FakeClock], Awaitable[Any]]


@pytest.fixture
async def here(mongo: MongoServer, tmp_path: Path) -> AsyncIterator[MongoRig]:
    rig = MongoRig(tmp_path, mongo)
    yield rig
    rig.database.command("profile", 0)
    rig.database["system.profile"].drop()
    await rig.dispose()


@pytest.fixture
async def store(here: MongoRig, clock: FakeClock) -> Store:
    """A store with many other jobs, finished, waiting and delayed, and a few of one company and type."""
    store = await here.make(clock)
    await put_many(store, MANY, company_id="other")
    while claims := await store.claim("default", ANN, 1_000):
        await store.settle(ANN, [end(claimed) for claimed in claims])
    await put_many(store, FEW, company_id="acme", type="rare.one", priority=1)
    for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED, Outcome.RETRY):
        await settle(store, await take(store), outcome)
    await take(store)
    await put_many(store, MANY, company_id="other", limit_key="api")
    await put_many(store, MANY, company_id="other")
    await put_many(store, MANY, company_id="other", delay_seconds=30 * 86_400)
    while await store.compact(1_000):
        pass
    clock.advance(days=1)
    return store


async def read(rig: MongoRig, looking: Awaitable[Any]) -> tuple[int, int, set[str]]:
    """Await `looking`. Returns the most keys and documents of jobs read by one operation, and the query plans."""
    rig.database.command("profile", 0)
    rig.database["system.profile"].drop()
    rig.database.command("profile", 2)
    await looking
    rig.database.command("profile", 0)
    found = list(rig.database["system.profile"].find({"ns": f"{rig.database.name}.jobs"}))
    assert found
    keys, documents = (max(one.get(name, 0) for one in found) for name in ("keysExamined", "docsExamined"))
    return keys, documents, {one.get("planSummary", "") for one in found}


LOOKS: dict[str, Look] = {
    "page": lambda store, clock: store.page(EVERYTHING, 10),
    **{
        f"page_of_{status}": lambda store, clock, status=status: store.page(JobFilter(status), 2)  # type: ignore[misc]
        for status in Status
    },
    "page_of_company": lambda store, clock: store.page(JobFilter(company_id="acme"), 50),
    "page_of_companys_dead": lambda store, clock: store.page(JobFilter(Status.FAILED, company_id="acme"), 50),
    "page_of_companys_waiting": lambda store, clock: store.page(JobFilter(Status.QUEUED, company_id="acme"), 50),
    "page_of_type": lambda store, clock: store.page(JobFilter(type="rare.one"), 50),
    "page_of_types": lambda store, clock: store.page(JobFilter(type_prefix="rare."), 50),
    "page_of_no_type": lambda store, clock: store.page(JobFilter(type="no.such"), 50),
    **{
        f"page_of_type_{status}": lambda store, clock, status=status: store.page(  # type: ignore[misc]
            JobFilter(status, type="rare.one"), 50
        )
        for status in Status
    },
    "count_of_type": lambda store, clock: store.count(JobFilter(type="rare.one"), 1_000),
    "count_of_type_waiting": lambda store, clock: store.count(JobFilter(Status.QUEUED, type="rare.one"), 1_000),
    "count_of_type_succeeded": lambda store, clock: store.count(JobFilter(Status.SUCCEEDED, type="rare.one"), 1_000),
    "dead_of_type": lambda store, clock: store.dead_groups(JobFilter(Status.FAILED, type="rare.one"), 1_000, 100),
    "count_of_dead": lambda store, clock: store.count(JobFilter(Status.FAILED), 1_000),
    "count_of_waiting": lambda store, clock: store.count(JobFilter(Status.QUEUED), 100),
    "counts": lambda store, clock: store.counts(),
    "changes": lambda store, clock: store.changes(clock.now() - timedelta(seconds=2), 100),
    "prune_by_age": lambda store, clock: store.prune({Status.SUCCEEDED: KeepPolicy(days=2)}, 100),
    "prune_by_count": lambda store, clock: store.prune({Status.FAILED: KeepPolicy(count=100)}, 100),
    "retry": lambda store, clock: store.retry(JobFilter(Status.FAILED), 100),
    "discard": lambda store, clock: store.discard(EVERYTHING, 100),
    "counts_of_company": lambda store, clock: store.sync_counts(["default"], "acme"),
    "retrying": lambda store, clock: store._retrying(["default"]),  # type: ignore[attr-defined]
}


async def test_a_look_reads_no_more_than_it_shows(here: MongoRig, store: Store, clock: FakeClock) -> None:
    too_much = {}
    for name, look in LOOKS.items():
        keys, documents, plans = await read(here, look(store, clock))
        if max(keys, documents) > READ_MAX or "COLLSCAN" in plans:
            too_much[name] = (keys, documents, plans)
    assert too_much == {}


async def test_queues_are_counted_by_an_index_alone(here: MongoRig, store: Store) -> None:
    keys, documents, plans = await read(here, store.queues())
    assert keys <= COUNTED_MAX
    assert documents <= READ_MAX
    assert "COLLSCAN" not in plans
