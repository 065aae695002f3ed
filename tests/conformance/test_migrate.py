"""Migrate: forward only, each migration once; refuses an unknown schema."""

from __future__ import annotations

import asyncio

import pytest

from conformance.builders import put, settle, status, take
from conformance.stores import Rig
from rowlock.clock import FakeClock
from rowlock.control import locks
from rowlock.errors import SchemaMissing, SchemaTampered, SchemaTooNew
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.storage.records import Failed, Outcome, SchemaState, Severity, Status
from rowlock.storage.reliability import LockKey


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
    assert await store.migrate() == rig.migrations()


async def test_a_migration_brings_the_schema_up_to_date(rig: Rig, clock: FakeClock) -> None:
    store = await rig.make_bare(clock)
    assert await store.migrate() == rig.migrations()
    state = await store.schema()
    assert state.current == state.wanted
    await store.check_schema()


async def test_the_tables_of_the_documents_are_found_under_their_names(rig: Rig, clock: FakeClock) -> None:
    store = await rig.make_bare(clock)
    for applied in (rig.migrations(), []):
        assert await store.migrate(views=True) == applied
        for name in ("job_failures", "job_idempotency_locks"):
            async with store.transaction() as transaction:
                assert list(await transaction.fetch(*rig.read_all(name))) == []
    await record_failure_and_lock(store)
    for name in ("job_failures", "job_idempotency_locks"):
        async with store.transaction() as transaction:
            assert len(list(await transaction.fetch(*rig.read_all(name)))) == 1


async def record_failure_and_lock(store: Store) -> None:
    await put(store)
    claimed = await take(store)
    await settle(store, claimed, Outcome.FAILED, error="no", failure=Failed(uuid7(), "{}", None))
    await locks.take(store, LockKey("", "nightly", "all"), "0" * 16, uuid7(), 60.0)


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
    """A migrated store on a database of this test only."""
    store = await rig.make_bare(clock)
    await store.migrate()
    return store


async def test_a_newer_schema_that_expands_ours_is_used(rig: Rig, own_store: Store) -> None:
    ours = (await own_store.schema()).wanted
    await rig.record_migration(ours + 1, "0" * 64, oldest=ours)
    await own_store.check_schema()
    assert await own_store.schema() == SchemaState(current=ours + 1, wanted=ours, oldest=ours)
    job_id = await put(own_store)
    assert await status(own_store, job_id) is Status.QUEUED


async def test_migrating_a_newer_schema_changes_nothing(rig: Rig, own_store: Store) -> None:
    ours = (await own_store.schema()).wanted
    await rig.record_migration(ours + 1, "0" * 64, oldest=ours)
    assert await own_store.migrate(views=True) == []
    assert (await own_store.schema()).current == ours + 1


async def test_a_newer_schema_that_contracts_ours_is_refused(rig: Rig, own_store: Store) -> None:
    ours = (await own_store.schema()).wanted
    for number, oldest in ((ours + 1, ours), (ours + 2, ours + 1), (ours + 3, 1)):  # the strictest limit counts
        await rig.record_migration(number, "0" * 64, oldest)
    with pytest.raises(SchemaTooNew, match=f"schema {ours + 3}, .* schema {ours + 1} or later.* {ours}: upgrade"):
        await own_store.check_schema()
    with pytest.raises(SchemaTooNew):
        await own_store.migrate()
    state = await own_store.schema()
    assert (state.current, state.usable) == (ours + 3, False)


async def test_an_altered_migration_is_refused(rig: Rig, own_store: Store) -> None:
    newer = (await own_store.schema()).wanted + 1
    await rig.record_migration(1, "0" * 64, oldest=1)
    for _ in ("at our schema", "at a newer one"):
        with pytest.raises(SchemaTampered, match="0001"):
            await own_store.check_schema()
        with pytest.raises(SchemaTampered):
            await own_store.migrate()
        await rig.record_migration(newer, "0" * 64, oldest=newer - 1)


async def test_doctor_tells_a_newer_schema_from_one_that_ends_this_release(rig: Rig, own_store: Store) -> None:
    async def found() -> tuple[Severity, str]:
        (finding,) = [finding for finding in await own_store.diagnose() if finding.check == "schema"]
        return finding.severity, finding.advice

    ours = (await own_store.schema()).wanted
    assert await found() == (Severity.OK, "")
    await rig.record_migration(ours + 1, "0" * 64, oldest=ours)
    assert await found() == (Severity.WARNING, "upgrade this installation before the next one")
    await rig.record_migration(ours + 2, "0" * 64, oldest=ours + 2)
    assert await found() == (Severity.ERROR, "upgrade this installation")
