"""The schema on SQLite: applied completely or not at all, readable by people, checked by doctor."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from rowlock.clock import FakeClock
from rowlock.errors import SchemaMissing, StoreError
from rowlock.ids import uuid7
from rowlock.storage.migrate import Migration
from rowlock.storage.records import NewJob, Severity
from rowlock.storage.sqlite import SqliteStore, schema
from rowlock.storage.sqlite import diagnostics as diagnose
from rowlock.storage.sqlite.errors import explained


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(f"sqlite:///{tmp_path}/jobs.db", FakeClock())
    await store.open()
    yield store
    await store.close()


def tables(store: SqliteStore) -> set[str]:
    connection = apsw.Connection(str(store.path))
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    connection.close()
    return found


async def test_a_migration_that_fails_leaves_nothing_behind(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = schema.known()
    broken = Migration(len(known) + 1, "broken", "CREATE TABLE half (x); CREATE TABLE half (x);", 1)
    monkeypatch.setattr(schema, "known", lambda: (*known, broken))
    with pytest.raises(StoreError, match="table half already exists"):
        await store.migrate()
    assert tables(store) == set()
    assert (await store.schema()).current == 0


async def test_processes_that_migrate_at_once_apply_each_migration_once(store: SqliteStore) -> None:
    program = (
        "import asyncio, sys\n"
        "from rowlock.clock import StoreClock\n"
        "from rowlock.storage.sqlite import SqliteStore\n"
        "async def main():\n"
        "    store = SqliteStore(sys.argv[1], StoreClock())\n"
        "    await store.open()\n"
        "    sys.stdin.readline()\n"
        "    print(len(await store.migrate()))\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, store.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    applied = [int(child.communicate(timeout=60)[0]) for child in children]
    assert sorted(applied) == [0, 0, len(schema.known())]
    state = await store.schema()
    assert (state.current, state.wanted) == (len(schema.known()), len(schema.known()))


async def test_people_have_one_table_with_times_that_they_can_read(store: SqliteStore) -> None:
    await store.migrate()
    await store.enqueue([NewJob(uuid7(), "send.email", "{}"), NewJob(uuid7(), "send.email", "{}", delay_seconds=90)])
    await store.claim("default", uuid7(), 1)
    connection = apsw.Connection(str(store.path))
    rows = connection.execute("SELECT status, created_at, available_at, locked_at FROM all_jobs ORDER BY id").fetchall()
    connection.close()
    start, later = "2030-01-01T00:00:00.000Z", "2030-01-01T00:01:30.000Z"
    assert rows == [("processing", start, start, start), ("queued", start, later, None)]


async def test_every_finding_of_a_sound_store_is_ok(store: SqliteStore) -> None:
    await store.migrate()
    found = {finding.check: finding for finding in await store.diagnose()}
    checks = {"version", "journal", "fsync", "file system", "disk", "wal", "clock", "schema", "integrity"}
    assert found.keys() == checks
    assert {check for check, finding in found.items() if finding.severity is not Severity.OK} <= {"disk"}


async def test_what_bites_is_found_with_advice(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(free=5_000_000))
    monkeypatch.setattr(diagnose, "WAL_BYTES_MAX", -1)
    monkeypatch.setattr(diagnose, "SAFE_VERSION", (99, 0, 0))
    monkeypatch.setattr(diagnose, "_file_system_of", lambda path: "nfs4")
    found = {finding.check: finding for finding in await store.diagnose()}
    bad = {check: finding.severity for check, finding in found.items() if finding.severity is not Severity.OK}
    assert bad == {
        "version": Severity.ERROR,
        "file system": Severity.ERROR,
        "disk": Severity.WARNING,
        "wal": Severity.WARNING,
        "schema": Severity.ERROR,
    }
    assert all(found[check].advice for check in bad)


def test_lost_durability_is_found(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    connection.pragma("synchronous", "off")
    found = {finding.check: finding.severity for finding in diagnose.diagnose(connection, tmp_path / "jobs.db")}
    connection.close()
    assert (found["journal"], found["fsync"]) == (Severity.ERROR, Severity.ERROR)


def test_damage_is_found(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE t (x); CREATE INDEX i ON t (x); INSERT INTO t VALUES (1), (2)")
    connection.execute("PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'i'").fetchall()
    connection.close()
    connection = apsw.Connection(str(path))
    found = {finding.check: finding for finding in diagnose.diagnose(connection, path)}
    connection.close()
    assert found["integrity"].severity is Severity.ERROR
    assert "restore" in found["integrity"].advice


async def test_each_of_our_tables_is_known_when_it_is_missing(store: SqliteStore) -> None:
    await store.migrate()
    own = {name for name in tables(store) if not name.startswith("sqlite_") and name != "migrations"}

    unknown = {
        name for name in own if not isinstance(explained(apsw.SQLError(f"no such table: {name}"), "f"), SchemaMissing)
    }
    assert unknown == set()
