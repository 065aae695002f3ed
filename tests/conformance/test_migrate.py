"""Migrate: forward only, each migration once, a strange schema refused."""

from __future__ import annotations

import asyncio

import pytest

from conformance.builders import put, status
from conformance.stores import Rig
from rowlock.clock import FakeClock
from rowlock.errors import SchemaMissing, SchemaTampered, SchemaTooNew
from rowlock.storage.base import Store
from rowlock.storage.records import Status


async def test_a_bare_store_says_that_its_schema_is_missing(rig: Rig, clock: FakeClock) -> None:
    store = await rig.make_bare(clock)
    with pytest.raises(SchemaMissing, match="rowlock migrate"):
        await store.check_schema()


async def test_a_bare_store_is_at_version_zero(rig: Rig, clock: FakeClock) -> None:
    state = await (await rig.make_bare(clock)).schema()
    assert state.current == 0
    assert state.wanted >= 1


async def test_looking_at_a_bare_store_leaves_it_bare(rig: Rig, clock: FakeClock) -> None:
    store = await rig.make_bare(clock)
    await store.schema()
    assert len(await store.migrate()) == (await store.schema()).wanted


async def test_a_migration_brings_the_schema_up_to_date(rig: Rig, clock: FakeClock) -> None:
    store = await rig.make_bare(clock)
    assert await store.migrate() == rig.migrations()
    state = await store.schema()
    assert state.current == state.wanted
    await store.check_schema()


async def test_migrating_again_applies_nothing(store: Store) -> None:
    job_id = await put(store)
    assert await store.migrate() == []
    assert await status(store, job_id) is Status.QUEUED


async def test_two_migrations_at_once_apply_each_once(rig: Rig, clock: FakeClock) -> None:
    stores = [await rig.make_bare(clock), *[await rig.another(clock) for _ in range(3)]]
    applied = await asyncio.gather(*(store.migrate() for store in stores))
    assert sorted(label for labels in applied for label in labels) == rig.migrations()
    for store in stores:
        await store.check_schema()


async def test_another_process_sees_the_new_schema(rig: Rig, clock: FakeClock) -> None:
    first = await rig.make_bare(clock)
    second = await rig.another(clock)
    await first.migrate()
    await second.check_schema()
    job_id = await put(second)
    assert await status(first, job_id) is Status.QUEUED


@pytest.fixture
async def own_store(rig: Rig, clock: FakeClock) -> Store:
    """A migrated store on a database that no other test will use."""
    store = await rig.make_bare(clock)
    await store.migrate()
    return store


async def test_a_newer_schema_is_refused(rig: Rig, own_store: Store) -> None:
    newer = (await own_store.schema()).wanted + 1
    await rig.record_migration(newer, "0" * 64)
    with pytest.raises(SchemaTooNew, match="upgrade"):
        await own_store.check_schema()
    with pytest.raises(SchemaTooNew):
        await own_store.migrate()
    assert (await own_store.schema()).current == newer


async def test_an_altered_migration_is_refused(rig: Rig, own_store: Store) -> None:
    await rig.record_migration(1, "0" * 64)
    with pytest.raises(SchemaTampered, match="0001"):
        await own_store.check_schema()
    with pytest.raises(SchemaTampered):
        await own_store.migrate()
