"""I20: data never becomes code: not in a type, payload, queue, key, filter, notification or on a terminal."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
from pathlib import Path
from typing import Any

import psycopg
import pytest

from faults.databases import Database, PostgresDatabase
from faults.processes import Fleet, Tree
from faults.until import until
from hostile.commands import APP, command
from rowlock.clock import StoreClock
from rowlock.ids import uuid7
from rowlock.settings import load
from rowlock.storage.contract import Store
from rowlock.storage.open import open_store
from rowlock.storage.records import JobFilter, NewJob, OnConflict, Outcome, Settlement, UniqueKey, Worker


class Bomb:
    """Calls the trap when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("import hostile.traps",)


PICKLES = [pickle.dumps(Bomb(), protocol) for protocol in (0, 2, 5)]
CODE = [
    "hostile.traps.spring",
    "hostile.traps:spring",
    "__import__('hostile.traps').traps.spring()",
    "exec('import hostile.traps')",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{job.__class__.__init__.__globals__}",
    "${jndi:ldap://127.0.0.1/x}",
    "%(password)s %n %s",
    "`python -c 'import hostile.traps'`",
    "$(python -c 'import hostile.traps')",
    "!!python/object/apply:hostile.traps.spring []",
    *(base64.b64encode(data).decode() for data in PICKLES),
]
SQL = [
    "'; DROP TABLE rowlock.jobs; --",
    "'; DROP TABLE jobs; --",
    '"; DROP TABLE rowlock.ready; --',
    "') OR 1=1; DELETE FROM rowlock.jobs; --",
    "$$; DROP SCHEMA rowlock CASCADE; $$",
    "a'b\"c`d\\e",
    "$1 ? :name %s",
    '{},{NULL},{"x"}',
    "cancel:*",
    "x\nqueue:y",
]
NAMES = [*CODE, *SQL]


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


@pytest.fixture
def store(database: Database) -> Store:
    return open_store(load(database_url=database.url), StoreClock())


def run(store: Store, work: Any) -> Any:
    async def whole() -> Any:
        await store.open()
        try:
            return await work
        finally:
            await store.close()

    return asyncio.run(whole())


def worker(fleet: Fleet, database: Database, mark: Path, mutant: str = "") -> Tree:
    return fleet.worker(database, ready=False, app=APP, HOSTILE_MARK=str(mark), HOSTILE_MUTANT=mutant)


def new(type_name: str, payload: object, **changes: Any) -> NewJob:
    return NewJob(uuid7(), type_name, json.dumps(payload), max_attempts=1, **changes)


def test_a_type_is_a_name_and_a_payload_is_json(database: Database, store: Store, fleet: Fleet, mark: Path) -> None:
    """Written to the store directly, as any program with a connection can."""
    strange = [new(name, {"args": ["x"], "command": "python -c 'import hostile.traps'"}) for name in NAMES]
    payloads: list[dict[str, Any]] = [
        *({"text": text, text: text} for text in NAMES),
        *({"data": data.decode("latin-1")} for data in PICKLES),
        {"py/object": "hostile.traps.spring", "py/reduce": [{"py/function": "hostile.traps.spring"}]},
        {"__class__": "hostile.traps", "__reduce__": "spring", "__proto__": {"x": 1}, "constructor": {"prototype": 1}},
        {"$type": "System.Diagnostics.Process", "!!python": 1, "@type": "hostile.traps"},
        {"job": {"id": "x"}, "self": 1, "cls": 2, "kwargs": 3, "args": 4},
    ]
    echoed = [new("echo", payload) for payload in payloads]
    loosened = [new("loose", payload) for payload in payloads]
    run(store, store.enqueue([*strange, *echoed, *loosened]))
    tree = worker(fleet, database, mark)
    until(lambda: database.finished() == len(echoed) + len(loosened), 30, tree.tail)
    until(lambda: all(database.records()[job.id].error for job in strange), 30, tree.tail)
    tree.stop()
    records = database.records()
    for job in strange:
        found = records[job.id]
        assert (found.type, found.status, found.attempts) == (job.type, "queued", 0)
        assert "no handler for job type" in str(found.error)
    for job, payload in zip(echoed, payloads, strict=True):
        assert (records[job.id].status, _json(records[job.id].result)) == ("succeeded", payload)
    for job, payload in zip(loosened, payloads, strict=True):
        if "job" in payload:
            continue  # a field of the name of the handler's own first parameter: refused or passed on, never confused
        assert (records[job.id].status, _json(records[job.id].result)) == ("succeeded", payload), records[job.id].error
    assert not mark.exists(), mark.read_text()


def test_the_attack_notices_types_that_are_imported_by_name(
    sqlite_database: Database, fleet: Fleet, mark: Path
) -> None:
    store = open_store(load(database_url=sqlite_database.url), StoreClock())
    run(store, store.enqueue([new("hostile.traps.spring", {})]))
    tree = worker(fleet, sqlite_database, mark, mutant="import_by_name")
    until(lambda: sqlite_database.waiting() == 0, 30, tree.tail)
    assert "imported" in mark.read_text()


async def test_names_keys_and_filters_are_data_to_every_verb(database: Database) -> None:
    store = open_store(load(database_url=database.url), StoreClock())
    await store.open()
    try:
        owner = uuid7()
        await store.beat([Worker(owner, NAMES[0], tuple(NAMES))])
        for text in NAMES:
            unique = UniqueKey(text, on_conflict=OnConflict.RETURN_EXISTING)
            job = new(text, {text: text}, queue=text, company_id=text, trace=text, unique=unique, limit_key=text)
            assert (await store.enqueue([job]))[0].created
            assert not (await store.enqueue([job._replace(id=uuid7())]))[0].created
            assert await store.depth(text, 10) == 1
            assert [peek.ready for peek in await store.peek([text])] == [True]
            await store.pause(text)
            assert await store.claim(text, owner, 10) == []
            await store.resume(text)
            await store.wake(text)
            for where in (JobFilter(type=text), JobFilter(queue=text), JobFilter(company_id=text)):
                assert [found.id for found in (await store.page(where, 10)).jobs] == [job.id]
                assert await store.count(where, 10) == 1
            (claimed,) = await store.claim(text, owner, 10)
            assert (claimed.type, claimed.company_id, json.loads(claimed.payload)) == (text, text, {text: text})
            outcome = Settlement(job.id, claimed.lease, Outcome.FAILED, result=json.dumps(text), error=text)
            assert await store.settle(owner, [outcome]) == []
            record = await store.get(job.id)
            assert record is not None
            assert (record.error, record.trace, record.unique_key, record.limit_key) == (text, text, text, text)
            await store.pause_key(text, 1.0)
            # A malformed id belongs to no job.
            assert await store.get(text) is None
            assert (await store.cancel(text)).value == "not_found"
            assert (await store.retry(JobFilter(ids=[text]), 10)).retried == []
            assert await store.discard(JobFilter(ids=[text]), 10) == []
        names = [worker.queues for worker in await store.workers()]
        assert len(names) == 1
    finally:
        await store.close()
    assert len(database.records()) == len(NAMES)


async def test_a_cursor_is_refused_or_harmless(database: Database) -> None:
    store = open_store(load(database_url=database.url), StoreClock())
    await store.open()
    try:
        await store.enqueue([new("echo", {}) for _ in range(3)])
        for text in [*NAMES, "", "-1", "1" * 400, "\0"]:
            try:
                page = await store.page(JobFilter(), 10, text)
            except ValueError:
                continue
            assert len(page.jobs) <= 3
        assert len((await store.page(JobFilter(), 10)).jobs) == 3
    finally:
        await store.close()


def test_a_notification_is_a_hint_and_nothing_else(
    postgres_database: PostgresDatabase, fleet: Fleet, mark: Path
) -> None:
    tree = fleet.worker(postgres_database, app=APP, HOSTILE_MARK=str(mark))
    with psycopg.connect(postgres_database.url, autocommit=True) as connection:
        for text in [*NAMES, "", ":", "queue:", "cancel:", "exec:import hostile.traps", "queue:" + "x" * 7_000]:
            connection.execute("SELECT pg_notify('rowlock', %s)", (text,))
    store = open_store(load(database_url=postgres_database.url), StoreClock())
    run(store, store.enqueue([new("echo", {"a": 1})]))
    until(lambda: postgres_database.waiting() == 0, 20, tree.tail)
    assert tree.workers() == [tree.events("worker.started")[0]["pid"]], tree.tail()
    assert not mark.exists()


TERMINAL = ["\x1b[2J\x1b]0;owned\x07", "[red]x[/nonsense]", "[link=http://x]y[/link]", "a\rb\x08c", "\x9b31m", "\u202e"]


def assert_harmless(output: str) -> None:
    assert not {char for char in output if char != "\n" and not char.isprintable()}, repr(output)


def test_what_people_read_on_a_terminal_is_harmless_to_it(sqlite_database: Database, fleet: Fleet, mark: Path) -> None:
    jobs = [new("fail", {"text": text}) for text in [*TERMINAL, *NAMES]] + [new(text, {}) for text in TERMINAL]
    store = open_store(load(database_url=sqlite_database.url), StoreClock())
    run(store, store.enqueue(jobs))
    environment = {"HOSTILE_MARK": str(mark)}
    tree = fleet.worker(
        sqlite_database, ready=False, app=APP, ROWLOCK_LOG_FORMAT="text", ROWLOCK_LOG_LEVEL="debug", **environment
    )
    until(lambda: all(job.error for job in sqlite_database.records().values()), 30, tree.tail)
    listed = command("jobs", "list", "--limit", "100", url=sqlite_database.url, **environment)
    assert "[red]x[/nonsense]" in listed.out
    shown = [command("jobs", "show", job.id, url=sqlite_database.url, **environment) for job in jobs]
    for done in (listed, *shown, command("dead", "list", url=sqlite_database.url, **environment)):
        assert done.code == 0, done.err
        assert_harmless(done.said)
    assert_harmless(tree.log.read_text())
    assert not mark.exists()


def test_arguments_of_the_command_line_are_data(sqlite_database: Database, mark: Path) -> None:
    url, environment = sqlite_database.url, {"HOSTILE_MARK": str(mark)}
    for text in NAMES:
        listed = command("jobs", "list", f"--type={text}", f"--queue={text}", "--json", url=url, **environment)
        assert (listed.code, json.loads(listed.out)["jobs"]) == (0, [])
        shown = command("jobs", "show", "--", text, url=url, **environment)
        assert shown.code in (1, 2)
        assert "Traceback" not in shown.err
        added = command(
            "enqueue", f"--payload={json.dumps({'x': text})}", f"--unique-key={text}", text, url=url, **environment
        )
        assert added.code in (0, 2), added.err
    assert not mark.exists()


def _json(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) else text
