"""app.blocking: the application's methods for code without an event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import sqlite3
import sys
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
from rowlock import BadPayload, DuplicateJob, FakeClock, Job, Rowlock, Status, StoreError, Unique, UnknownJobType
from rowlock.storage.contract import Store


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


@pytest.mark.every_store
def test_a_program_without_any_event_loop_can_enqueue(
    greeting_app: Rowlock,
) -> None:
    receipt = greeting_app.blocking.enqueue("greet")
    found = greeting_app.blocking.get(receipt.job_id)
    assert found is not None
    assert greeting_app.blocking.run(greeting_app.cancel(receipt.job_id)) == "cancelled"


@pytest.mark.every_store
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


def portals() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rowlock-blocking"]


class Calls:
    """Runs calls in separate threads and collects their results and errors."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self._threads: list[threading.Thread] = []

    def start(self, call: Callable[[], Any]) -> threading.Thread:
        def answered() -> None:
            try:
                self.answers.append(call())
            except BaseException as error:
                self.answers.append(error)

        thread = threading.Thread(target=answered, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def wait(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


def test_closing_waits_for_the_calls_of_other_threads(app: Rowlock, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, begun, end, wait = Calls(), threading.Event(), threading.Event(), concurrent.futures.wait

    async def work() -> str:
        begun.set()
        await asyncio.to_thread(end.wait, 30)
        return "done"

    def waiting(calls: Any, seconds: float) -> Any:
        end.set()
        return wait(calls, seconds)

    monkeypatch.setattr(concurrent.futures, "wait", waiting)
    calls.start(lambda: app.blocking.run(work()))
    assert begun.wait(30)
    app.blocking.close()
    end.set()
    calls.wait()
    assert calls.answers == ["done"]
    assert portals() == []


def test_a_call_that_closing_does_not_wait_for_any_longer_says_so(
    app: Rowlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, begun = Calls(), threading.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("rowlock.blocking.CLOSE_SECONDS", 0.01, raising=False)
    calls.start(lambda: app.blocking.run(work()))
    assert begun.wait(30)
    app.blocking.close()
    calls.wait()
    (error,) = calls.answers
    assert isinstance(error, StoreError)
    assert "may or may not have been done" in str(error)


def test_no_call_gets_lost_in_a_portal_that_closes(greeting_app: Rowlock, monkeypatch: pytest.MonkeyPatch) -> None:
    blocking, calls, submit = greeting_app.blocking, Calls(), asyncio.run_coroutine_threadsafe
    blocking.migrate()

    def slowly(work: Any, loop: Any) -> Any:
        if threading.current_thread() is caller:
            calls.start(blocking.close).join(0.3)  # time to close the portal that would run this call
        return submit(work, loop)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", slowly)
    began = threading.Event()
    caller = calls.start(lambda: began.wait(30) and blocking.enqueue("greet"))
    began.set()
    calls.wait()
    (receipt,) = (answer for answer in calls.answers if answer is not None)
    assert blocking.get(receipt.job_id) is not None


def test_a_portal_whose_application_fails_to_close_ends_all_the_same(
    app: Rowlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> None:
        raise OSError("no")

    app.blocking.migrate()
    with monkeypatch.context() as patch:
        patch.setattr(app, "close", fails)
        with pytest.raises(OSError, match="no"):
            app.blocking.close()
    assert portals() == []
    assert app.blocking.migrate() == []


# -- within the caller's transaction ---------------------------------------------------------------


class Mine(NamedTuple):
    """A caller's synchronous connection, as in a web application."""

    connection: Any
    write: Callable[[str], object]  # writes a line to the ledger
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


@pytest.mark.every_store
async def test_a_job_commits_and_rolls_back_with_the_callers_connection(
    greeting_app: Rowlock, rig: Rig, store: Store, clock: FakeClock
) -> None:
    await rig.make_ledger(store)
    await store.close()  # SQLite: no store of this process may have the file open

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


@pytest.mark.every_store
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


@pytest.mark.every_store
async def test_a_connection_of_another_kind_is_refused(greeting_app: Rowlock) -> None:
    with pytest.raises(TypeError, match=r"builtins\.object"):
        await greeting_app.enqueue("greet", connection=object())


# -- forked processes and event loops that end -----------------------------------------------------

FORKS = """
import multiprocessing, os, signal, sys
from rowlock import Rowlock

app = Rowlock(allow_unknown_types=True)
signal.alarm(60)

def child(results):
    results.put(app.blocking.enqueue("greet", {"from": os.getpid()}).job_id)
    app.blocking.close()

results = multiprocessing.get_context("fork").SimpleQueue()
ids = [app.blocking.enqueue("greet").job_id]  # in the parent first, as a preloading server may
for _ in range(3):
    process = multiprocessing.get_context("fork").Process(target=child, args=(results,))
    process.start()
    process.join(20)
    assert process.exitcode == 0, process.exitcode
    ids += [results.get(), app.blocking.enqueue("greet").job_id]
app.blocking.close()
print(*ids)
"""

LOOPS = """
import asyncio, os, sys, warnings
from rowlock import Rowlock

app = Rowlock(allow_unknown_types=True)

def sockets():
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith(("socket:", os.environ["FILE"]))
        except OSError:
            pass
    return found

async def never_ends():
    await asyncio.Event().wait()

before = sockets()
for _ in range(5):
    asyncio.run(app.enqueue("greet"))
    print(sockets() - before)
app.imports.let_go = never_ends
asyncio.run(app.enqueue("greet"))
print(sockets() - before)
"""


async def program(rig: Rig, code: str) -> list[str]:
    """Run a program on the rig's database, with warnings as errors. Returns its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", code),
        env={**os.environ, "DATABASE_URL": rig.url, "FILE": rig.url.removeprefix("sqlite:///")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert err == b"", err.decode()
    return out.decode().split()


@pytest.mark.every_store
async def test_a_forked_child_enqueues_and_its_parent_goes_on(greeting_app: Rowlock, rig: Rig) -> None:
    await greeting_app.store.counts()
    ids = await program(rig, FORKS)
    assert len(set(ids)) == 7
    assert [(await record(greeting_app, job_id)).status for job_id in ids] == [Status.QUEUED] * 7


@pytest.mark.every_store
async def test_connections_end_with_their_event_loop(greeting_app: Rowlock, rig: Rig) -> None:
    await greeting_app.store.counts()
    assert await program(rig, LOOPS) == ["0"] * 6


async def test_an_engine_that_was_closed_opens_again_in_the_same_loop(greeting_app: Rowlock) -> None:
    for _ in range(2):
        receipt = await greeting_app.enqueue("greet")
        await greeting_app.close()
        gc.collect()
        await asyncio.sleep(0)
    first = greeting_app.engine
    await asyncio.sleep(0)
    assert greeting_app.engine is first
    assert await greeting_app.get(receipt.job_id) is not None
