"""app.blocking: the same application for code without an event loop."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import apsw
import psycopg
import pytest
from pymongo import AsyncMongoClient, MongoClient

from conformance.stores import Rig
from engine.running import drain, record
from rowlock import BadPayload, DuplicateJob, FakeClock, Job, Rowlock, Status, Unique, UnknownJobType
from rowlock.storage.base import Store


@pytest.fixture
def greeting_app(app: Rowlock) -> Rowlock:
    @app.job("greet")
    async def greet(job: Job, name: str = "you") -> str:
        return f"hello {name}"

    return app


async def test_synchronous_code_enqueues_and_looks(greeting_app: Rowlock) -> None:
    def synchronous() -> str:
        app = greeting_app
        one = app.blocking.enqueue("greet", {"name": "Ann"}, priority=3)
        many = app.blocking.enqueue_many([("greet", {}), ("greet", {"name": "Ben"})], company_id="acme")
        assert one.created
        assert len(many) == 2
        found = app.blocking.get(one.job_id)
        assert found is not None
        assert (found.status, found.priority) == (Status.QUEUED, 3)
        assert app.blocking.migrate() == []
        return one.job_id

    job_id = await asyncio.to_thread(synchronous)
    await drain(greeting_app)
    assert (await record(greeting_app, job_id)).result == '"hello Ann"'
    assert (await greeting_app.store.counts())[Status.SUCCEEDED] == 3


def test_a_program_without_any_event_loop_can_enqueue(
    greeting_app: Rowlock,
) -> None:
    receipt = greeting_app.blocking.enqueue("greet")
    found = greeting_app.blocking.get(receipt.job_id)
    assert found is not None
    assert greeting_app.blocking.run(greeting_app.cancel(receipt.job_id)) == "cancelled"


async def test_many_threads_share_the_portal(greeting_app: Rowlock) -> None:
    receipts: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: receipts.extend(greeting_app.blocking.enqueue("greet").job_id for _ in range(10))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert len(set(receipts)) == 80
    assert await greeting_app.store.depth("default", 100) == 80


async def test_a_plain_handler_can_enqueue(greeting_app: Rowlock) -> None:
    @greeting_app.job("plain")
    def plain(job: Job) -> str:
        return greeting_app.blocking.enqueue("greet", {"name": "from a thread"}).job_id

    await plain.enqueue()
    await drain(greeting_app)
    (greeted,) = (await greeting_app.jobs(type="greet")).jobs
    assert greeted.result == '"hello from a thread"'


async def test_errors_are_those_of_the_asynchronous_call(greeting_app: Rowlock) -> None:
    def synchronous() -> None:
        with pytest.raises(UnknownJobType):
            greeting_app.blocking.enqueue("nobody")
        with pytest.raises(BadPayload, match="name"):
            greeting_app.blocking.enqueue("greet", {"name": 1})
        first = greeting_app.blocking.enqueue("greet", unique=Unique.forever())
        with pytest.raises(DuplicateJob) as refused:
            greeting_app.blocking.enqueue("greet", unique=Unique.forever())
        assert refused.value.existing_job_id == first.job_id

    await asyncio.to_thread(synchronous)


async def test_a_closed_portal_ends_its_thread_and_opens_again(greeting_app: Rowlock) -> None:
    def portals() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "rowlock-blocking"]

    def synchronous() -> None:
        greeting_app.blocking.close()
        greeting_app.blocking.enqueue("greet")
        assert len(portals()) == 1
        greeting_app.blocking.close()
        greeting_app.blocking.close()
        assert portals() == []
        greeting_app.blocking.enqueue("greet")

    await asyncio.to_thread(synchronous)
    assert await greeting_app.store.depth("default", 10) == 2


# -- within the caller's transaction ---------------------------------------------------------------


class Mine(NamedTuple):
    """A synchronous connection of the caller's, as a web application has one."""

    connection: Any
    write: Callable[[str], object]  # a line into the ledger
    begin: Callable[[], object]
    commit: Callable[[], object]
    rollback: Callable[[], object]


@contextmanager
def connection_of(rig: Rig) -> Iterator[Mine]:
    def write(line: str) -> None:
        connection.execute(f"INSERT INTO ledger VALUES ('{line}')")

    if rig.name == "mongo":
        with MongoClient(rig.url) as client, client.start_session() as session:
            ledger = client.get_default_database()["ledger"]
            insert = partial(ledger.insert_one, session=session)
            commit, rollback = session.commit_transaction, session.abort_transaction
            yield Mine(session, lambda line: insert({"line": line}), session.start_transaction, commit, rollback)
    elif rig.name == "postgres":
        with psycopg.connect(rig.url) as connection:
            yield Mine(connection, write, lambda: None, connection.commit, connection.rollback)
    else:
        connection = sqlite3.connect(rig.url.removeprefix("sqlite:///"))
        try:
            yield Mine(connection, write, lambda: None, connection.commit, connection.rollback)
        finally:
            connection.close()


async def test_a_job_commits_and_rolls_back_with_the_callers_connection(
    greeting_app: Rowlock, rig: Rig, store: Store, clock: FakeClock
) -> None:
    await rig.make_ledger(store)
    await store.close()  # SQLite: this process may not have the file open in a store

    def synchronous() -> tuple[str, str]:
        blocking = greeting_app.blocking
        with connection_of(rig) as mine:
            mine.begin()
            mine.write("undone")
            undone = blocking.enqueue("greet", {"name": "undone"}, connection=mine.connection)
            mine.rollback()
            mine.begin()
            mine.write("kept")
            (kept,) = blocking.enqueue_many([("greet", {"name": "kept"})], connection=mine.connection)
            mine.commit()
        return undone.job_id, kept.job_id

    undone, kept = await asyncio.to_thread(synchronous)
    assert await greeting_app.get(undone) is None
    await drain(greeting_app)
    assert (await record(greeting_app, kept)).result == '"hello kept"'
    async with (await rig.another(clock)).transaction() as transaction:
        assert await rig.read_ledger(transaction) == ["kept"]


async def test_an_async_caller_passes_its_own_connection_too(greeting_app: Rowlock, rig: Rig) -> None:
    if rig.name == "mongo":
        async with AsyncMongoClient(rig.url) as client, client.start_session() as session:
            await session.start_transaction()
            undone = await greeting_app.enqueue("greet", connection=session)
            await session.abort_transaction()
            await session.start_transaction()
            (kept,) = await greeting_app.enqueue_many([("greet", {})], connection=session)
            await session.commit_transaction()
    elif rig.name == "postgres":
        async with await psycopg.AsyncConnection.connect(rig.url) as connection:
            undone = await greeting_app.enqueue("greet", connection=connection)
            await connection.rollback()
            (kept,) = await greeting_app.enqueue_many([("greet", {})], connection=connection)
            await connection.commit()
    else:
        connection = apsw.Connection(rig.url.removeprefix("sqlite:///"))
        connection.execute("BEGIN")
        undone = await greeting_app.enqueue("greet", connection=connection)
        connection.execute("ROLLBACK; BEGIN")
        (kept,) = await greeting_app.enqueue_many([("greet", {})], connection=connection)
        connection.execute("COMMIT")
        connection.close()
    assert await greeting_app.get(undone.job_id) is None
    assert (await record(greeting_app, kept.job_id)).status is Status.QUEUED


async def test_a_connection_of_another_kind_is_refused(greeting_app: Rowlock) -> None:
    with pytest.raises(TypeError, match=r"builtins\.object"):
        await greeting_app.enqueue("greet", connection=object())
