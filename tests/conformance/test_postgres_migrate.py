"""PostgreSQL: a migration that waits for open transactions does not block others for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from conformance.builders import put
from conformance.stores import PostgresRig
from postgres_server import PostgresServer
from rowlock.clock import FakeClock
from rowlock.errors import StoreUnavailable
from rowlock.storage.contract import Store
from rowlock.storage.migrate import Migration, migrations
from rowlock.storage.postgres import schema

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
