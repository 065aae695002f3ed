"""Enqueue through the caller's own SQLite connection: apsw's, or the standard library's where that is safe."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from rowlock.clock import FakeClock, StoreClock
from rowlock.errors import DuplicateJob, SchemaMissing, StoreUnavailable
from rowlock.ids import uuid7, uuid7s
from rowlock.storage.records import JobFilter, NewJob, OnConflict, Receipt, UniqueKey
from rowlock.storage.sqlite import SqliteStore

EVERYTHING = JobFilter()
TABLES = ("jobs", "ready", "delayed", "unique_keys")


async def migrated(path: Path, clock: FakeClock | StoreClock | None = None) -> SqliteStore:
    """A store that was migrated and is closed: a producer's process does not have to open it."""
    store = SqliteStore(f"sqlite:///{path}", clock or FakeClock())
    await store.open()
    await store.migrate()
    await store.close()
    return store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await migrated(tmp_path / "jobs.db")
    yield store
    await store.close()


def a_job(**changes: Any) -> NewJob:
    return NewJob(**({"id": uuid7(), "type": "send.email", "payload": "{}"} | changes))


async def how_many(store: SqliteStore) -> int:
    await store.open()
    try:
        return await store.count(EVERYTHING, 1000)
    finally:
        await store.close()


def mixed_jobs() -> list[NewJob]:
    first, second, third, fourth, fifth = uuid7s(5)
    return [
        a_job(id=first, payload='{"ü": 1}', company_id="acme", trace="00-a-b-01"),
        a_job(id=second, delay_seconds=5, priority=-3, queue="slow"),
        a_job(id=third, available_at=datetime(2031, 1, 1, tzinfo=UTC), limit_key="hub:1"),
        a_job(id=fourth, unique=UniqueKey("k", seconds=60)),
        a_job(id=fifth, unique=UniqueKey("k", on_conflict=OnConflict.RETURN_EXISTING)),
        a_job(id=uuid7(), unique=UniqueKey("j", while_active=True)),
    ]


async def test_both_drivers_write_the_same_rows(tmp_path: Path) -> None:
    jobs = mixed_jobs()
    found = []
    for name in ("apsw", "sqlite3", "own"):
        store = await migrated(tmp_path / f"{name}.db")
        if name == "own":
            await store.open()
            receipts = await store.enqueue(jobs)
            await store.close()
        else:
            connection: Any = {"apsw": apsw.Connection, "sqlite3": sqlite3.connect}[name](str(store.path))
            receipts = store.enqueue_blocking(jobs, connection)
            if name == "sqlite3":
                connection.commit()
            connection.close()
        reader = apsw.Connection(str(store.path))
        found.append((receipts, [reader.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES]))
        reader.close()
    assert found[0] == found[1] == found[2]
    assert found[0][0][4] == Receipt(jobs[3].id, False)


@pytest.mark.parametrize("level", ["", "DEFERRED", "IMMEDIATE"])
async def test_the_sqlite3_module_decides_when_to_commit_unless_told_otherwise(store: SqliteStore, level: Any) -> None:
    connection = sqlite3.connect(store.path, isolation_level=level)
    store.enqueue_blocking([a_job()], connection)
    assert connection.in_transaction
    connection.rollback()
    assert await how_many(store) == 0
    with connection:
        store.enqueue_blocking([a_job()], connection)
    connection.close()
    assert await how_many(store) == 1


async def test_without_a_transaction_the_jobs_are_there_at_once(store: SqliteStore) -> None:
    module = sqlite3.connect(store.path, isolation_level=None)
    store.enqueue_blocking([a_job()], module)
    assert not module.in_transaction
    module.close()
    driver = apsw.Connection(str(store.path))
    await store.enqueue([a_job()], driver)
    assert not driver.in_transaction
    driver.close()
    assert await how_many(store) == 2


@pytest.mark.parametrize("driver", ["apsw", "sqlite3"])
async def test_a_duplicate_leaves_the_callers_transaction_as_it_was(store: SqliteStore, driver: str) -> None:
    connection: Any = (
        apsw.Connection(str(store.path)) if driver == "apsw" else sqlite3.connect(store.path, isolation_level=None)
    )
    connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO orders VALUES (1)")
    (held,) = store.enqueue_blocking([a_job(unique=UniqueKey("k"))], connection)
    with pytest.raises(DuplicateJob) as caught:
        store.enqueue_blocking([a_job(), a_job(unique=UniqueKey("k"))], connection)
    assert caught.value.existing_job_id == held.job_id
    connection.execute("COMMIT")
    assert list(connection.execute("SELECT count(*) FROM orders")) == [(1,)]
    connection.close()
    assert await how_many(store) == 1


async def test_rows_shaped_by_the_caller_do_not_confuse_us(store: SqliteStore) -> None:
    driver = apsw.Connection(str(store.path))
    driver.row_trace = lambda cursor, row: {"row": row}
    module = sqlite3.connect(store.path, isolation_level=None)
    module.row_factory = sqlite3.Row
    (first,) = await store.enqueue([a_job(unique=UniqueKey("k"))], driver)
    (second,) = store.enqueue_blocking([a_job(unique=UniqueKey("k", on_conflict=OnConflict.RETURN_EXISTING))], module)
    assert second == Receipt(first.job_id, False)
    assert driver.row_trace is not None
    assert module.row_factory is sqlite3.Row
    driver.close()
    module.close()


async def test_the_time_is_sqlites_own_in_both_drivers(tmp_path: Path) -> None:
    store = await migrated(tmp_path / "jobs.db", StoreClock())
    driver, module = apsw.Connection(str(store.path)), sqlite3.connect(store.path, isolation_level=None)
    before = datetime.now(UTC)
    await store.enqueue([a_job()], driver)
    store.enqueue_blocking([a_job()], module)
    rows = driver.execute("SELECT created_at FROM jobs ORDER BY seq").fetchall()
    driver.close()
    module.close()
    for (created_at,) in rows:
        assert abs(created_at / 1e6 - before.timestamp()) < 5


# -- two libraries in one process ------------------------------------------------------------------------


async def test_two_copies_of_sqlite_in_one_process_do_not_see_each_others_locks(store: SqliteStore) -> None:
    """Why the sqlite3 module is refused while a store is open: if this ever fails, the refusal can go."""
    ours = apsw.Connection(str(store.path))
    theirs = sqlite3.connect(store.path, isolation_level=None, timeout=0)
    ours.execute("BEGIN IMMEDIATE")
    theirs.execute("BEGIN IMMEDIATE")
    theirs.close()
    ours.close()


async def test_the_sqlite3_module_is_refused_while_this_process_has_the_store_open(store: SqliteStore) -> None:
    await store.open()
    connection = sqlite3.connect(store.path)
    with pytest.raises(TypeError, match=r"overwrite what the other commits\. Pass an apsw\.Connection"):
        store.enqueue_blocking([a_job()], connection)
    with pytest.raises(TypeError, match=r"overwrite what the other commits\. Pass an apsw\.Connection"):
        await store.enqueue([a_job()], connection)
    assert not connection.in_transaction
    connection.close()
    assert await store.count(EVERYTHING, 10) == 0


async def test_the_sqlite3_module_is_refused_whichever_store_object_has_the_file_open(store: SqliteStore) -> None:
    await store.open()
    another = SqliteStore(store.url, store.clock)  # as for each `app.blocking.enqueue(connection=...)`
    connection = sqlite3.connect(store.path)
    with pytest.raises(TypeError, match=r"overwrite what the other commits"):
        another.enqueue_blocking([a_job()], connection)
    connection.close()
    assert await store.count(EVERYTHING, 10) == 0


async def test_the_sqlite3_module_may_use_another_file_while_the_store_is_open(
    store: SqliteStore, tmp_path: Path
) -> None:
    elsewhere = await migrated(tmp_path / "elsewhere.db")
    await store.open()
    with sqlite3.connect(elsewhere.path) as connection:
        store.enqueue_blocking([a_job()], connection)
    connection.close()
    assert await how_many(elsewhere) == 1


# -- what is not a connection, and what goes wrong in one ---------------------------------------------------


@pytest.mark.parametrize("thing", ["sqlite:///jobs.db", object(), 7])
async def test_anything_else_is_refused_with_what_is_taken(store: SqliteStore, thing: Any) -> None:
    with pytest.raises(TypeError, match=r"takes an apsw\.Connection or a sqlite3\.Connection"):
        store.enqueue_blocking([a_job()], thing)
    with pytest.raises(TypeError, match=r"takes an apsw\.Connection or a sqlite3\.Connection"):
        await store.enqueue([a_job()], thing)


async def test_errors_in_the_callers_connection_are_explained(store: SqliteStore) -> None:
    blocker = sqlite3.connect(store.path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    module = sqlite3.connect(store.path, isolation_level=None, timeout=0)
    with pytest.raises(StoreUnavailable, match="is locked"):
        store.enqueue_blocking([a_job()], module)
    blocker.close()
    module.close()
    for empty in (apsw.Connection(""), sqlite3.connect(":memory:")):
        with pytest.raises(SchemaMissing, match="rowlock migrate"):
            store.enqueue_blocking([a_job()], empty)
        empty.close()
