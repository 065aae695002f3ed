"""Conflicting transactions cost an import time, and no attempt."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import polars as pl
import psycopg
import pytest
from pymongo import AsyncMongoClient

from conformance.stores import Rig
from imports.conftest import Customer, MakeOffice, Office, customers_csv, told
from rowlock import Importer, Loaded, Run
from rowlock.imports.load import conflicts
from rowlock.storage.imports import ImportStatus

FILE = customers_csv([("a@x.org", "Ann", "1"), ("b@x.org", "no", "1"), ("c@x.org", "Cid", "x")])
HOOKS = ("prepare", "load", "finish")


pytestmark = pytest.mark.every_store


async def deadlock(url: str, run: Run) -> None:
    """Wait for a row that another has locked, who waits for one that this transaction has locked."""
    await run.execute("SET LOCAL deadlock_timeout = '10ms'")
    async with await psycopg.AsyncConnection.connect(url) as rival:
        await rival.execute("SET deadlock_timeout = '600s'")
        await rival.execute("UPDATE pairs SET n = 1 WHERE id = 2")
        await run.execute("UPDATE pairs SET n = 2 WHERE id = 1")
        (own,) = (await run.fetch("SELECT pg_backend_pid()"))[0]
        theirs = rival.info.backend_pid
        waiting = asyncio.create_task(rival.execute("UPDATE pairs SET n = 1 WHERE id = 1"))
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as watch:
            asked = "SELECT %s = ANY (pg_blocking_pids(%s))"
            while (await (await watch.execute(asked, (own, theirs))).fetchone()) != (True,):
                await asyncio.sleep(0)
        try:
            await run.execute("UPDATE pairs SET n = 2 WHERE id = 2")
        finally:
            await run_out(waiting)


async def run_out(task: asyncio.Task[Any]) -> None:
    """The other gets its lock once this transaction is rolled back, which it is not yet: nobody waits for that here."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, psycopg.Error):
        await task


async def write_conflict(url: str, run: Run) -> None:
    """Write a document that another has changed since this transaction began."""
    await run.fetch({"find": "pairs", "filter": {}})
    async with AsyncMongoClient[dict[str, Any]](url) as client:
        await client.get_default_database()["pairs"].update_one({"_id": 1}, {"$inc": {"n": 1}})
    await run.execute({"update": "pairs", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]})


async def lock(run: Run) -> None:
    """Begin another transaction, which waits for this one."""
    assert run._store is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rowlock.storage.sqlite.connection.BUSY_SECONDS", 0.05)
        async with run._store.transaction():
            pass


async def meet_conflict(rig: Rig, run: Run) -> None:
    match rig.name:
        case "postgres":
            await deadlock(rig.url, run)
        case "mongo":
            await write_conflict(rig.url, run)
        case _:
            await lock(run)


async def office_of(make_office: MakeOffice, rig: Rig, hook: str, times: int) -> tuple[Office, list[str]]:
    """An importer one of whose hooks meets a conflict the first times it runs."""
    met: list[str] = []

    async def meet(run: Run) -> None:
        if len(met) < times:
            met.append(hook)
            await meet_conflict(rig, run)

    class Contested(Importer):
        async def prepare(self, run: Run) -> None:
            if hook == "prepare":
                await meet(run)

        async def load(self, frame: pl.DataFrame, run: Run) -> Loaded:
            loaded = await run.load(frame)
            if hook == "load":
                await meet(run)
            return loaded

        async def finish(self, run: Run) -> None:
            if hook == "finish":
                await meet(run)

    office = await make_office(
        lambda app: app.importer("customers", row=Customer, key=["email"], into="customers")(Contested)
    )
    await office.execute("DROP TABLE IF EXISTS pairs", {"delete": "pairs", "deletes": [{"q": {}, "limit": 0}]})
    pairs = {"insert": "pairs", "documents": [{"_id": 1, "n": 0}, {"_id": 2, "n": 0}]}
    await office.execute("CREATE TABLE pairs (id int PRIMARY KEY, n int)", pairs)
    if rig.name == "postgres":
        await office.execute("INSERT INTO pairs VALUES (1, 0), (2, 0)")
    return office, met


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_transaction_is_tried_again_where_it_is(make_office: MakeOffice, rig: Rig, hook: str) -> None:
    office, met = await office_of(make_office, rig, hook, times=2)
    record = await office.run(FILE)

    assert met == [hook, hook]
    assert record.status is ImportStatus.SUCCEEDED, record.error
    assert told(record) == (3, 2, 0, 0, 0, 1)
    assert len(await office.errors(record.id)) == 1
    jobs = (await office.app.jobs(status="succeeded")).jobs
    assert [(job.attempts, job.error) for job in jobs] == [(1, None)] * 3


@pytest.mark.parametrize("hook", HOOKS[1:])
async def test_a_job_that_gives_up_is_released_and_loses_no_attempt(
    make_office: MakeOffice, rig: Rig, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflicts, "TRY_SECONDS", 0.0)
    monkeypatch.setattr(conflicts, "RELEASE_SECONDS", 0.0)
    office, met = await office_of(make_office, rig, hook, times=6)
    record = await office.run(FILE)

    assert len(met) == 6  # more often than a job has attempts
    assert record.status is ImportStatus.SUCCEEDED, record.error
    assert told(record) == (3, 2, 0, 0, 0, 1)
    assert {job.attempts for job in (await office.app.jobs(status="succeeded")).jobs} == {1}


async def test_what_is_always_in_its_own_way_fails_in_the_end(
    make_office: MakeOffice, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TRY_SECONDS": 0.0, "RELEASE_SECONDS": 0.0, "RELEASES_MAX": 2}.items():
        monkeypatch.setattr(conflicts, name, value)
    monkeypatch.setattr("rowlock.jobs.policy.chance", lambda: 0.0)
    office, met = await office_of(make_office, rig, "load", times=1_000)
    import_id = await office.add(FILE)
    await office.work()

    assert len(met) == 3
    (job,) = (await office.app.jobs(status="queued")).jobs
    assert job.attempts == 1
    await office.app.imports.cancel(import_id)
