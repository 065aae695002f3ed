"""Lists of imports, cleanup of their files, and pruning of their records."""

from __future__ import annotations

import pytest

from conformance.builders import near, status
from conformance.import_builders import (
    OPEN,
    add,
    end,
    end_chunk,
    error_rows,
    found,
    ids,
    in_status,
    jobs_for,
    loaded,
    planned,
    queued,
    standing,
    started,
    with_errors,
)
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.imports import ImportId, ImportRecord, ImportStatus
from rowlock.storage.records import Status

DEAD = [ImportStatus.FAILED, ImportStatus.CANCELLED]
ENDED = [ImportStatus.SUCCEEDED, *DEAD]


def names(records: list[ImportRecord]) -> list[ImportId]:
    return [record.id for record in records]


# -- lists -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [1, 2, 3, 6, 7, 8])
async def test_imports_are_listed_newest_first_page_by_page(store: Store, page: int) -> None:
    made = [await queued(store) for _ in range(7)]
    assert await ids(store, page) == made[::-1]


async def test_an_empty_list_has_no_next_page(store: Store) -> None:
    answer = await store.imports(type=None, company_id=None, status=None, limit=10)
    assert (answer.imports, answer.next_cursor) == ([], None)


async def test_a_page_goes_on_where_the_last_one_ended_whatever_was_added(store: Store) -> None:
    made = [await queued(store) for _ in range(4)]
    first = await store.imports(type=None, company_id=None, status=None, limit=2)
    await queued(store)
    rest = await store.imports(type=None, company_id=None, status=None, limit=5, cursor=first.next_cursor)
    assert [record.id for record in (*first.imports, *rest.imports)] == made[::-1]


@pytest.mark.parametrize("cursor", ["", "x", "2030-01-01", "018f0000-0000-7000-8000-00000000000g"])
async def test_a_cursor_that_no_page_came_with_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        await store.imports(type=None, company_id=None, status=None, limit=2, cursor=cursor)


async def test_imports_are_listed_by_type_company_and_status_together(store: Store) -> None:
    made: dict[tuple[str, str | None, ImportStatus], ImportId] = {}
    for kind in ("customers", "ap"):
        for company in ("acme", "globex", None):
            for state in (ImportStatus.QUEUED, ImportStatus.FAILED):
                made[kind, company, state] = await in_status(store, state, type=kind, company_id=company)
    for kind_asked in (None, "customers", "ap", "other"):
        for company_asked in (None, "acme", "globex", "other"):
            for state_asked in (None, ImportStatus.QUEUED, ImportStatus.FAILED, ImportStatus.RUNNING):
                expected = [
                    import_id
                    for (kind, company, state), import_id in made.items()
                    if kind_asked in (None, kind) and company_asked in (None, company) and state_asked in (None, state)
                ]
                asked = {"type": kind_asked, "company_id": company_asked, "status": state_asked}
                assert await ids(store, 2, **asked) == expected[::-1], asked


async def test_a_listed_import_is_as_whole_as_one_asked_for(store: Store) -> None:
    import_id = await planned(store, 3, company_id="acme")
    await end_chunk(store, import_id, 0, with_errors(2, 3))
    await queued(store)
    (listed,) = (await store.imports(type=None, company_id="acme", status=None, limit=5)).imports
    assert listed == await found(store, import_id)
    assert (listed.completed_chunks, listed.error_count, listed.progress) == (1, 2, 39)


# -- cleanup -----------------------------------------------------------------------------------------


async def test_the_files_of_what_succeeded_may_go_at_once(store: Store) -> None:
    import_id = await in_status(store, ImportStatus.SUCCEEDED)
    (one,) = await store.cleanable_imports(30, 10)
    assert one == await found(store, import_id)


async def test_the_files_of_a_dry_run_stay_for_some_days_to_be_imported_for_real(
    store: Store, clock: FakeClock
) -> None:
    import_id = await in_status(
        store, ImportStatus.SUCCEEDED, options='{"sheet": null, "dryRun": true, "force": false}'
    )
    real = await in_status(store, ImportStatus.SUCCEEDED, options='{"sheet": null, "dryRun": false, "force": false}')
    clock.advance(days=29.9)
    assert names(await store.cleanable_imports(30, 10)) == [real]
    clock.advance(days=0.2)
    assert names(await store.cleanable_imports(30, 10)) == [import_id, real]


@pytest.mark.parametrize("state", DEAD)
async def test_the_files_of_what_can_be_resumed_stay_for_some_days(
    store: Store, clock: FakeClock, state: ImportStatus
) -> None:
    import_id = await in_status(store, state)
    clock.advance(days=29.9)
    assert await store.cleanable_imports(30, 10) == []
    clock.advance(days=0.2)
    assert names(await store.cleanable_imports(30, 10)) == [import_id]


async def test_the_files_of_what_is_not_over_stay(store: Store, clock: FakeClock) -> None:
    made = [await queued(store), await started(store), await planned(store)]
    clock.advance(days=1000)
    assert await store.cleanable_imports(0, 10) == []
    for import_id in made:
        before = await standing(store, import_id)
        assert await store.clean_import(import_id) is False
        assert await standing(store, import_id) == before


async def test_a_resumed_import_keeps_its_files(store: Store, clock: FakeClock) -> None:
    import_id = await in_status(store, ImportStatus.FAILED)
    clock.advance(days=31)
    assert await store.resume_import(import_id, jobs_for(0, 1))
    assert await store.cleanable_imports(30, 10) == []


@pytest.mark.parametrize("state", ENDED)
async def test_what_was_cleaned_is_not_cleaned_again(store: Store, clock: FakeClock, state: ImportStatus) -> None:
    import_id = await in_status(store, state)
    clock.advance(days=31)
    assert await store.clean_import(import_id) is True
    cleaned_at = (await found(store, import_id)).cleaned_at
    assert near(cleaned_at, clock.now())
    clock.advance(days=1)
    assert await store.cleanable_imports(30, 10) == []
    assert await store.clean_import(import_id) is True
    assert (await found(store, import_id)).cleaned_at == cleaned_at
    assert (await found(store, import_id)).status is state


async def test_the_first_to_end_are_cleaned_first(store: Store, clock: FakeClock) -> None:
    made = [await loaded(store) for _ in range(4)]
    for import_id in (made[2], made[0], made[3], made[1]):
        clock.advance(1)
        await end(store, import_id)
    assert names(await store.cleanable_imports(30, 3)) == [made[2], made[0], made[3]]


# -- pruning -----------------------------------------------------------------------------------------


async def test_records_go_when_they_were_cleaned_and_ended_long_ago(store: Store, clock: FakeClock) -> None:
    import_id = await planned(store)
    await end_chunk(store, import_id, 0, with_errors(2, 3))
    await end(store, import_id)
    await store.clean_import(import_id)
    clock.advance(days=89)
    assert await store.prune_imports(90, 10) == 0
    clock.advance(days=2)
    assert await store.prune_imports(90, 10) == 1
    assert await store.get_import(import_id) is None
    assert await store.chunks(import_id) == []
    assert await error_rows(store, import_id) == []
    assert await status(store, import_id) is Status.QUEUED  # jobs have their own retention
    assert await store.prune_imports(90, 10) == 0


@pytest.mark.parametrize("state", [*OPEN, *ENDED])
async def test_records_whose_files_may_be_there_stay(store: Store, clock: FakeClock, state: ImportStatus) -> None:
    import_id = await in_status(store, state)
    clock.advance(days=1000)
    assert await store.prune_imports(1, 10) == 0
    assert await store.get_import(import_id) is not None


async def test_the_oldest_records_go_first_and_no_more_than_asked_for(store: Store, clock: FakeClock) -> None:
    made = [await planned(store) for _ in range(5)]
    for import_id in made:
        clock.advance(1)
        await end_chunk(store, import_id, 0, with_errors(2))
        await end(store, import_id)
        await store.clean_import(import_id)
    clock.advance(days=91)
    assert await store.prune_imports(90, 2) == 2
    assert await ids(store) == made[:1:-1]
    for import_id in made[2:]:
        assert await error_rows(store, import_id) == [2]
        assert len(await store.chunks(import_id)) == 3


async def test_a_file_whose_import_was_pruned_may_come_again(store: Store, clock: FakeClock) -> None:
    import_id = await in_status(store, ImportStatus.SUCCEEDED, sha256="b")
    await store.clean_import(import_id)
    assert not (await add(store, sha256="b")).created
    clock.advance(days=2)
    await store.prune_imports(1, 10)
    assert (await add(store, sha256="b")).created


# -- errors ------------------------------------------------------------------------------------------


async def test_errors_beyond_the_first_are_forgotten_but_stay_counted(store: Store) -> None:
    import_id = await planned(store, 2)
    for chunk in range(2):
        await end_chunk(store, import_id, chunk, with_errors(*range(chunk + 1, 21, 2)))
    await store.trim_errors(import_id, 7)
    assert await error_rows(store, import_id) == list(range(1, 8))
    assert (await found(store, import_id)).error_count == 20


async def test_trimming_fewer_errors_than_are_kept_changes_nothing(store: Store) -> None:
    import_id = await planned(store, 1)
    await end_chunk(store, import_id, 0, with_errors(1, 2, 3))
    await store.trim_errors(import_id, 3)
    await store.trim_errors("nobody", 1)
    assert await error_rows(store, import_id) == [1, 2, 3]


async def test_a_row_that_two_chunks_speak_of_is_one_of_those_that_are_kept(store: Store) -> None:
    import_id = await planned(store, 2)
    for chunk in range(2):
        await end_chunk(store, import_id, chunk, with_errors(1, 2, 3))
    await store.trim_errors(import_id, 2)
    assert await error_rows(store, import_id) == [1, 2]


@pytest.mark.parametrize(("kept", "rows"), [(None, [1, 2, 3, 4]), (0, []), (3, [1, 2, 3]), (4, [1, 2, 3, 4])])
@pytest.mark.parametrize("state", ENDED)
async def test_a_cleanup_forgets_errors_beyond_those_that_are_kept(
    store: Store, state: ImportStatus, kept: int | None, rows: list[int]
) -> None:
    import_id, other_one = await planned(store, 2), await planned(store, 1)
    await end_chunk(store, other_one, 0, with_errors(1, 2, 3, 4))
    for chunk in range(2):
        await end_chunk(store, import_id, chunk, with_errors(chunk + 1, chunk + 3))
    await end(store, import_id, state)
    assert await store.clean_import(import_id, errors_kept=kept) is True
    assert await error_rows(store, import_id) == rows
    assert (await found(store, import_id)).error_count == 4
    assert await error_rows(store, other_one) == [1, 2, 3, 4]


async def test_a_cleanup_of_what_is_not_over_forgets_no_errors(store: Store) -> None:
    import_id = await planned(store, 1)
    await end_chunk(store, import_id, 0, with_errors(1, 2))
    assert await store.clean_import(import_id, errors_kept=0) is False
    assert await store.clean_import("nobody", errors_kept=0) is False
    assert await error_rows(store, import_id) == [1, 2]


# -- changes -----------------------------------------------------------------------------------------


async def test_imports_that_changed_since_a_moment_are_found_the_oldest_change_first(
    store: Store, clock: FakeClock
) -> None:
    first, second = await planned(store, 2), await queued(store)
    clock.advance(10)
    since = await store.now()
    assert await store.changed_imports(since, 10) == []
    await end_chunk(store, first, 0)
    clock.advance(1)
    third = await queued(store)
    clock.advance(1)
    await store.cancel_import(second)
    changed = await store.changed_imports(since, 10)
    assert names(changed) == [first, third, second]
    assert changed[0] == await found(store, first)
    assert names(await store.changed_imports(since, 2)) == [first, third]
