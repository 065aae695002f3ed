"""The connections of the SQLite store: durable, patient, off the event loop, with clear errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import apsw
import pytest

from rowlock.clock import StoreClock
from rowlock.errors import (
    DuplicateJob,
    SchemaMissing,
    SettingsError,
    StoreError,
    StoreUnavailable,
)
from rowlock.ids import uuid7
from rowlock.storage.records import JobFilter, NewJob, Receipt, UniqueKey
from rowlock.storage.sqlite import SqliteStore, connection
from rowlock.storage.sqlite.connection import Patience, Reader, SerialConnection, Writer, connect, path_of

EVERYTHING = JobFilter()


def a_job(unique: UniqueKey | None = None, payload: str = "{}") -> NewJob:
    return NewJob(uuid7(), "send.email", payload, unique=unique)


def store_at(path: Path) -> SqliteStore:
    return SqliteStore(f"sqlite:///{path}", StoreClock())


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = store_at(tmp_path / "jobs.db")
    await store.open()
    await store.migrate()
    yield store
    await store.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.02)


# -- where ---------------------------------------------------------------------------------------------


def test_a_url_names_a_relative_or_an_absolute_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert path_of("sqlite:///jobs.db") == tmp_path / "jobs.db"
    assert path_of("sqlite:////var/lib/jobs.db") == Path("/var/lib/jobs.db")


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///", "sqlite:///:memory:", "jobs.db", "postgresql:///x", "sqlite:///a?b", "sqlite:///\0"],
)
def test_a_url_that_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"sqlite:///relative\.db"):
        SqliteStore(url, StoreClock())


# -- durable -------------------------------------------------------------------------------------------


async def test_every_connection_is_durable(store: SqliteStore) -> None:
    async with store.transaction() as transaction:
        assert await transaction.fetch("PRAGMA journal_mode") == [("wal",)]
        assert await transaction.fetch("PRAGMA synchronous") == [(2,)]
    for line in (store._writer, store._reader):
        assert line is not None
        assert await line.run(lambda c: (c.pragma("journal_mode"), c.pragma("synchronous"))) == ("wal", 2)


async def test_work_that_waits_is_made_durable_by_one_commit(store: SqliteStore) -> None:
    writer = store._writer
    assert writer is not None
    commits = 0

    def count() -> bool:
        nonlocal commits
        commits += 1
        return False

    writer.connection.set_commit_hook(count)
    async with store.transaction():  # keeps the writer waiting while more comes in
        waiting = [asyncio.create_task(store.enqueue([a_job()])) for _ in range(40)]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert commits <= 2
    assert await store.count(EVERYTHING, 100) == 40


async def test_work_that_fails_does_not_take_its_companions_along(store: SqliteStore) -> None:
    key = UniqueKey("k")
    (first,) = await store.enqueue([a_job(key)])
    answers = await asyncio.gather(
        *(store.enqueue([a_job(), a_job(key if place == 5 else None)]) for place in range(10)), return_exceptions=True
    )
    (refused,) = [answer for answer in answers if isinstance(answer, BaseException)]
    assert isinstance(refused, DuplicateJob)
    assert refused.existing_job_id == first.job_id
    assert await store.count(EVERYTHING, 100) == 1 + 9 * 2


async def test_work_that_was_cancelled_while_it_waited_is_not_done(store: SqliteStore) -> None:
    async with store.transaction():
        blocked = asyncio.create_task(store.enqueue([a_job()]))  # holds the writer, which waits for the lock
        await asyncio.sleep(0)
        waiting = asyncio.create_task(store.enqueue([a_job()]))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert [type(receipt) for receipt in await blocked] == [Receipt]
    assert await store.count(EVERYTHING, 10) == 1


# -- what went wrong --------------------------------------------------------------------------------------


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"no/such/jobs.db cannot be opened: check that its folder exists"):
        await store_at(tmp_path / "no/such/jobs.db").open()


async def test_a_folder_is_not_a_database(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await store_at(tmp_path).open()


async def test_another_kind_of_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"These are notes, and not a database at all. " * 100)
    with pytest.raises(StoreUnavailable, match="is not a SQLite database"):
        await store_at(path).open()
    assert path.read_bytes().startswith(b"These are notes")


async def test_a_read_only_file_is_refused_at_once(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not by its permissions: the tests may run as root, who may write everything.
    monkeypatch.setattr(apsw, "Connection", partial(apsw.Connection, flags=apsw.SQLITE_OPEN_READONLY))
    with pytest.raises(StoreUnavailable, match="is read-only: give this user write permission"):
        connect(store.path)


async def test_a_write_lock_that_is_never_let_go_makes_the_store_unavailable(
    store: SqliteStore, impatient: None
) -> None:
    other = apsw.Connection(str(store.path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="is locked: another connection has held its write lock"):
        await store.enqueue([a_job()])
    assert await store.count(EVERYTHING, 10) == 0  # reading goes on
    other.execute("COMMIT")
    assert len(await store.enqueue([a_job()])) == 1
    other.close()


async def test_a_full_disk_loses_nothing_and_is_got_over(store: SqliteStore) -> None:
    writer = store._writer
    assert writer is not None
    pages = await writer.run(lambda c: c.pragma("page_count"))
    await writer.run(lambda c: c.pragma("max_page_count", pages + 20))
    accepted = 0
    refusal: StoreUnavailable | None = None
    while refusal is None:
        try:
            accepted += len(await store.enqueue([a_job(payload=f'{{"x": "{"x" * 3000}"}}')]))
        except StoreUnavailable as error:
            refusal = error
    assert "is full: free some space" in str(refusal)
    answers = await asyncio.gather(
        *(store.enqueue([a_job(payload=f'{{"x": "{"x" * 9000}"}}')]) for _ in range(5)), return_exceptions=True
    )
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    assert await store.count(EVERYTHING, 100) == accepted
    await writer.run(lambda c: c.pragma("max_page_count", 1_000_000))
    await store.enqueue([a_job()])
    assert await store.count(EVERYTHING, 100) == accepted + 1


async def test_a_damaged_file_is_said_to_be_damaged(store: SqliteStore) -> None:
    await store.close()
    with store.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    await store.open()
    with pytest.raises(StoreUnavailable, match=r"is damaged .*: stop all workers and restore it from a backup"):
        await store.enqueue([a_job()])


async def test_a_store_opens_itself_when_it_is_used(store: SqliteStore) -> None:
    by_transaction, by_verbs = store_at(store.path), store_at(store.path)
    async with by_transaction.transaction() as transaction:
        await transaction.enqueue([a_job()])
    await asyncio.gather(*(by_verbs.enqueue([a_job()]) for _ in range(3)), by_verbs.count(EVERYTHING, 10))
    assert await store.count(EVERYTHING, 10) == 4
    await by_transaction.close()
    await by_verbs.close()


async def test_a_store_opened_before_a_fork_is_refused_after_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection.os, "getpid", lambda: 1)
    with pytest.raises(StoreUnavailable, match="forked"):
        await store.count(EVERYTHING, 1)


async def test_an_unmigrated_store_asks_for_its_migrations(tmp_path: Path) -> None:
    store = store_at(tmp_path / "jobs.db")
    await store.open()
    for verb in (store.enqueue([a_job()]), store.claim("default", uuid7(), 1), store.count(EVERYTHING, 1)):
        with pytest.raises(SchemaMissing, match="rowlock migrate"):
            await verb
    await store.close()


async def test_the_users_own_missing_table_is_not_our_missing_schema(store: SqliteStore) -> None:
    with pytest.raises(StoreError, match="no such table: contacts") as caught:
        async with store.transaction() as transaction:
            await transaction.execute("INSERT INTO contacts VALUES (1)")
    assert not isinstance(caught.value, SchemaMissing)
    assert isinstance(caught.value.__cause__, apsw.SQLError)


def test_patience_ends(impatient: None) -> None:
    patience = Patience()
    waits = 0
    while patience(waits):
        waits += 1
    assert 1 <= waits <= 50
    assert patience(0)  # the next wait has its own time


# -- transactions ---------------------------------------------------------------------------------------


async def test_a_transaction_that_has_ended_runs_nothing_more(store: SqliteStore) -> None:
    async with store.transaction() as transaction:
        await transaction.execute("CREATE TABLE contacts (email TEXT)")
    with pytest.raises(StoreError, match="this transaction has ended"):
        await transaction.execute("INSERT INTO contacts VALUES ('a@b.c')")


async def test_connections_of_transactions_are_used_again(store: SqliteStore) -> None:
    async with store.transaction() as transaction:
        first = transaction.connection
    async with store.transaction() as transaction:
        assert transaction.connection is first


async def test_a_cancelled_transaction_lets_go_of_the_write_lock(store: SqliteStore) -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    async def handler() -> None:
        async with store.transaction() as transaction:
            await transaction.enqueue([a_job()])
            begun.set()
            await never.wait()

    task = asyncio.create_task(handler())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.enqueue([a_job()])
    assert await store.count(EVERYTHING, 10) == 1


async def test_a_store_may_close_while_a_transaction_is_open(store: SqliteStore) -> None:
    async with store.transaction() as transaction:
        await transaction.enqueue([a_job()])
        await store.close()
    await store.open()
    assert await store.count(EVERYTHING, 10) == 1


async def test_lines_end_with_what_was_handed_in(tmp_path: Path) -> None:
    for kind in (SerialConnection, Writer):
        line = kind(tmp_path / "jobs.db", "test")
        last = asyncio.create_task(line.run(lambda c: c.in_transaction))
        await asyncio.sleep(0)
        await line.close()
        assert await last is (kind is Writer)
        with pytest.raises(StoreUnavailable, match="closed"):
            await line.run(lambda c: None)


# -- cancelled while it opens or closes ----------------------------------------------------------------


async def ended(line: SerialConnection) -> None:
    await asyncio.to_thread(line._thread.join, 30)
    assert not line._thread.is_alive()


async def test_a_file_is_closed_even_if_nobody_waits_for_it_to_be(tmp_path: Path) -> None:
    line, busy, go_on = Writer(tmp_path / "jobs.db", "writer"), threading.Event(), threading.Event()

    def work(_: apsw.Connection) -> None:
        busy.set()
        go_on.wait(30)

    working = asyncio.create_task(line.run(work))
    await asyncio.to_thread(busy.wait, 30)
    closing = asyncio.create_task(line.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert line.open, "its thread still has it"
    go_on.set()
    await working
    await ended(line)
    assert not line.open


@pytest.mark.parametrize("when", ["before it is open", "after"])
@pytest.mark.parametrize("kind", ["_writer", "_reader"])
async def test_a_connection_that_nobody_waits_for_any_more_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, when: str
) -> None:
    opening, go_on, opened, made = threading.Event(), threading.Event(), threading.Event(), list[SerialConnection]()

    class Slow(Writer if kind == "_writer" else Reader):  # type: ignore[misc]
        def __init__(self, path: Path, name: str) -> None:
            if when == "after":
                super().__init__(path, name)
            opening.set()
            go_on.wait(30)
            if when != "after":
                super().__init__(path, name)
            made.append(self)
            opened.set()

    monkeypatch.setattr("rowlock.storage.sqlite.store." + ("Writer" if kind == "_writer" else "Reader"), Slow)
    store = store_at(tmp_path / "jobs.db")
    using = asyncio.create_task(store.open())
    await asyncio.to_thread(opening.wait, 30)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    go_on.set()
    await asyncio.to_thread(opened.wait, 30)
    await ended(made[0])
    assert not made[0].open
    assert getattr(store, kind) is None
    await store.close()
