"""PostgreSQL: a waiting migration does not block others for long; the newest functions stay installed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from conformance.builders import put, status, take
from conformance.stores import PostgresRig
from postgres_server import PostgresServer
from rowlock.clock import FakeClock
from rowlock.errors import SchemaMissing, StoreError, StoreUnavailable
from rowlock.storage.contract import Store
from rowlock.storage.migrate import FunctionSet, Migration, functions, migrations
from rowlock.storage.postgres import schema
from rowlock.storage.records import Severity, Status

PATIENCE_SECONDS = 30.0
LATER = f"{len(migrations('postgres')) + 1:04d}_later"
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%ADD COLUMN%'"


@pytest.fixture
async def place(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[PostgresRig]:
    rig = PostgresRig(tmp_path, postgres)
    yield rig
    await rig.dispose()


@pytest.fixture
async def store(place: PostgresRig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A migrated store with another migration to run."""
    store = await place.make_bare(clock)
    await store.migrate()
    known = migrations("postgres")
    later = Migration(len(known) + 1, "later", "ALTER TABLE rowlock.jobs ADD COLUMN later text", len(known))
    monkeypatch.setattr(schema, "migrations", lambda store: (*known, later))
    monkeypatch.setattr(schema, "LOCK_PAUSE_SECONDS", 0.01)
    return store


async def test_others_do_not_wait_until_an_open_transaction_has_ended(place: PostgresRig, store: Store) -> None:
    with psycopg.connect(place.url) as open_transaction, psycopg.connect(place.url, autocommit=True) as looking:
        open_transaction.execute("SELECT count(*) FROM rowlock.jobs")
        migrating = asyncio.create_task(store.migrate())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while looking.execute(WAITS).fetchone() == (0,):
                await asyncio.sleep(0.01)
            await put(store)
        assert not migrating.done()
        open_transaction.rollback()
        assert await migrating == [LATER]


async def test_a_migration_gives_up_and_says_what_to_do(
    place: PostgresRig, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LOCK_MS", 20)
    monkeypatch.setattr(schema, "LOCK_TRIES", 2)
    with psycopg.connect(place.url) as open_transaction:
        open_transaction.execute("SELECT count(*) FROM rowlock.jobs")
        with pytest.raises(StoreUnavailable, match=r"end them .* run `rowlock migrate` again"):
            await store.migrate()
    assert await store.migrate() == [LATER]


OURS = functions("postgres")
NEWER = FunctionSet(OURS.version + 1, OURS.sql.replace("BEGIN\n", "BEGIN -- newer\n"))
BODIES = "SELECT prosrc LIKE '%BEGIN -- newer%' FROM pg_proc WHERE pronamespace = 'rowlock'::regnamespace"


def are_newer(place: PostgresRig) -> bool:
    """Return whether the functions are the newer ones; fails if some are and some are not."""
    with psycopg.connect(place.url) as connection:
        (newer,) = {newer for (newer,) in connection.execute(BODIES).fetchall()}
    return bool(newer)


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Callable[[FunctionSet], None]:
    """Turns this release into one with other functions."""
    return lambda changed: monkeypatch.setattr(schema, "functions", lambda store: changed)


@pytest.fixture
async def migrated(place: PostgresRig, clock: FakeClock) -> Store:
    store = await place.make_bare(clock)
    await store.migrate()
    return store


async def test_newer_functions_replace_ours(
    place: PostgresRig, migrated: Store, release: Callable[[FunctionSet], None]
) -> None:
    assert not are_newer(place)
    release(NEWER)
    assert await migrated.migrate() == [NEWER.label]
    assert are_newer(place)
    await migrated.check_schema()
    assert await migrated.migrate() == []


@pytest.mark.parametrize("upgraded", [True, False], ids=["upgraded", "set up by the newer release"])
async def test_an_older_release_leaves_newer_functions_and_works_with_them(
    place: PostgresRig, clock: FakeClock, release: Callable[[FunctionSet], None], upgraded: bool
) -> None:
    store = await place.make_bare(clock)
    if upgraded:
        await store.migrate()
    release(NEWER)
    await store.migrate()
    release(OURS)
    await store.check_schema()
    assert await store.migrate(views=True) == []
    assert are_newer(place)
    job_id = await put(store)
    assert (await take(store)).id == job_id


async def test_a_release_refuses_older_functions_until_they_are_migrated(
    migrated: Store, release: Callable[[FunctionSet], None]
) -> None:
    release(NEWER)
    with pytest.raises(SchemaMissing, match=f"version {OURS.version} .* needs version {NEWER.version}: run"):
        await migrated.check_schema()
    (found,) = [finding for finding in await migrated.diagnose() if finding.check == "schema"]
    assert (found.severity, found.advice) == (Severity.ERROR, "run `rowlock migrate`")
    await migrated.migrate()
    await migrated.check_schema()


async def test_functions_that_are_edited_before_their_release_are_installed_again(
    place: PostgresRig, migrated: Store, release: Callable[[FunctionSet], None]
) -> None:
    edited = replace(NEWER, version=OURS.version)
    release(edited)
    with pytest.raises(SchemaMissing):
        await migrated.check_schema()
    assert await migrated.migrate() == [OURS.label]
    assert are_newer(place)
    await migrated.check_schema()


async def test_a_migration_may_drop_a_function_that_stays(
    place: PostgresRig, migrated: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = migrations("postgres")
    later = Migration(len(known) + 1, "later", "DROP FUNCTION rowlock.records(uuid[])", len(known))
    monkeypatch.setattr(schema, "migrations", lambda store: (*known, later))
    assert await migrated.migrate() == [LATER]
    job_id = await put(migrated)
    assert await status(migrated, job_id) is Status.QUEUED


async def test_functions_that_fail_leave_no_migration_behind(
    place: PostgresRig, clock: FakeClock, release: Callable[[FunctionSet], None]
) -> None:
    store = await place.make_bare(clock)
    release(replace(NEWER, sql=f"{NEWER.sql}\nSELECT no_such_column;"))
    with pytest.raises(StoreError, match="no_such_column"):
        await store.migrate()
    assert (await store.schema()).current == 0
