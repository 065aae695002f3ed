"""Imports that replace: no two wipe the same scope at once, and none continues after another has wiped its scope."""

from __future__ import annotations

import asyncio

import pytest

from conformance.import_builders import (
    end,
    found,
    ids,
    jobs_for,
    loaded,
    partly,
    plan_it,
    planned,
    queued,
    standing,
    started,
)
from rowlock.clock import FakeClock
from rowlock.ids import uuid7s
from rowlock.storage.contract import Store
from rowlock.storage.imports import ImportId, ImportStatus, Started

SCOPE = "customers|acme"
DEAD = [ImportStatus.FAILED, ImportStatus.CANCELLED]


async def test_an_import_is_recorded_with_its_scope(store: Store, other: Store) -> None:
    import_id = await queued(store, scope=SCOPE)
    assert (await found(other, import_id)).scope == SCOPE


# -- starting ----------------------------------------------------------------------------------------


async def test_of_two_imports_of_a_scope_one_is_busy_while_the_other_runs(store: Store) -> None:
    first = await started(store, scope=SCOPE)
    second = await queued(store, scope=SCOPE)
    assert await store.start_import(second, "Reading") is Started.BUSY
    assert (await found(store, second)).status is ImportStatus.QUEUED
    assert await end(store, first)
    assert await store.start_import(second, "Reading") is Started.STARTED


@pytest.mark.parametrize("change", [{"type": "ap"}, {"company_id": "globex"}])
async def test_imports_of_a_scope_keep_each_other_out_whatever_their_type_and_company(
    store: Store, change: dict[str, str]
) -> None:
    await started(store, scope=SCOPE, company_id="acme")
    second = await queued(store, **{"scope": SCOPE, "company_id": "acme"} | change)
    assert await store.start_import(second, "Reading") is Started.BUSY


@pytest.mark.parametrize("scope", ["customers|globex", "customers", None])
async def test_imports_of_another_scope_or_none_run_beside_it(store: Store, scope: str | None) -> None:
    await started(store, scope=SCOPE)
    for _ in range(2 if scope is None else 1):
        assert await store.start_import(await queued(store, scope=scope), "Reading") is Started.STARTED


async def test_of_imports_of_a_scope_that_start_at_once_one_runs(store: Store, other: Store) -> None:
    for company in uuid7s(5):
        waiting = [await queued(store, scope=f"customers|{company}", company_id=company) for _ in range(4)]
        answers = await asyncio.gather(
            *((store, other)[n % 2].start_import(import_id, "Reading") for n, import_id in enumerate(waiting))
        )
        assert sorted(answers) == [Started.BUSY] * 3 + [Started.STARTED]
        assert len(await ids(store, company_id=company, status=ImportStatus.RUNNING)) == 1


# -- resuming ----------------------------------------------------------------------------------------


async def refused(store: Store, import_id: ImportId, *indexes: int) -> None:
    """Assert that resuming it is refused and changes nothing."""
    before = await standing(store, import_id)
    assert await store.resume_import(import_id, jobs_for(*indexes)) is False
    assert await standing(store, import_id) == before


@pytest.mark.parametrize("state", DEAD)
async def test_an_import_with_a_scope_is_resumed_where_no_other_came_between(store: Store, state: ImportStatus) -> None:
    earlier = await loaded(store, scope=SCOPE)
    await end(store, earlier)
    import_id = await partly(store, state, scope=SCOPE)
    await queued(store, scope=SCOPE)  # it has not started
    assert await store.resume_import(import_id, jobs_for(0, 2)) is True
    await end(store, import_id, ImportStatus.FAILED)
    assert await store.resume_import(import_id, jobs_for(0, 2)) is True


async def test_a_planned_import_is_not_resumed_while_another_of_its_scope_runs(store: Store) -> None:
    import_id = await partly(store, scope=SCOPE)
    await started(store, scope=SCOPE)
    await refused(store, import_id, 0, 2)


@pytest.mark.parametrize("state", [status for status in ImportStatus if status.final])
async def test_an_older_replace_is_not_resumed_after_a_newer_has_started(
    store: Store, clock: FakeClock, state: ImportStatus
) -> None:
    import_id = await partly(store, scope=SCOPE)
    clock.advance(60)
    newer = await loaded(store, scope=SCOPE)
    await end(store, newer, state)
    await refused(store, import_id, 0, 2)


@pytest.mark.parametrize("seconds", [0, -60])
async def test_what_came_after_is_told_without_the_clock(store: Store, clock: FakeClock, seconds: float) -> None:
    older = await partly(store, scope=SCOPE)
    clock.advance(seconds)
    newer = await partly(store, scope=SCOPE)
    await refused(store, older, 0, 2)
    assert await store.resume_import(newer, jobs_for(0, 2)) is True


async def test_the_finish_of_an_older_replace_is_not_resumed_either(store: Store) -> None:
    import_id = await loaded(store, scope=SCOPE)
    await end(store, import_id, ImportStatus.FAILED)
    await end(store, await planned(store, scope=SCOPE), ImportStatus.FAILED)
    await refused(store, import_id, 2)


async def test_imports_of_other_scopes_and_of_none_are_resumed_whatever_came_after(store: Store) -> None:
    made = [await partly(store, scope=scope) for scope in (SCOPE, None)]
    for scope in ("customers|globex", "customers|globex", None):
        await end(store, await loaded(store, scope=scope))
    for import_id in made:
        assert await store.resume_import(import_id, jobs_for(0, 2)) is True


async def test_what_was_never_planned_has_loaded_nothing_and_is_resumed_in_its_turn(store: Store) -> None:
    older = await started(store, scope=SCOPE)
    await end(store, older, ImportStatus.FAILED)
    newer = await partly(store, scope=SCOPE)
    jobs = jobs_for(-1)
    assert await store.resume_import(older, jobs) is True
    assert await store.start_import(older, "Again") is Started.STARTED
    assert await plan_it(store, older, 2, jobs[-1].id)
    await end(store, older, ImportStatus.FAILED)
    # Now the other import is overtaken, although it is younger and first started later.
    await refused(store, newer, 0, 2)
    assert await store.resume_import(older, jobs_for(0, 1)) is True


async def test_of_two_of_a_scope_that_are_resumed_and_started_at_once_one_runs(store: Store, other: Store) -> None:
    for company in uuid7s(5):
        scope = f"customers|{company}"
        older, newer = await partly(store, scope=scope), await queued(store, scope=scope)
        resumed, start = await asyncio.gather(
            store.resume_import(older, jobs_for(0, 2)), other.start_import(newer, "Reading")
        )
        assert resumed is (start is Started.BUSY)


async def test_a_newer_replace_is_not_pruned_while_an_older_one_could_be_resumed(
    store: Store, clock: FakeClock
) -> None:
    older = await partly(store, scope=SCOPE)
    newer = await loaded(store, scope=SCOPE)
    await end(store, newer)
    await store.clean_import(newer)
    clock.advance(days=10)
    assert await store.prune_imports(5, 10) == 0
    await refused(store, older, 0, 2)
    assert await store.clean_import(older)
    assert await store.prune_imports(5, 10) == 2
