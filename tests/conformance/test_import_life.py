"""The life of an import: add, start, plan, load, finish; each step happens once and only in the right state."""

from __future__ import annotations

from contextlib import suppress

import pytest

from conformance.builders import EVERYTHING, forever, near, new_job, record, status
from conformance.import_builders import (
    CLEAN,
    OPEN,
    QUEUE,
    add,
    chunk_jobs,
    end,
    end_chunk,
    error_rows,
    found,
    ids,
    import_job,
    in_status,
    loaded,
    new_import,
    plan,
    plan_it,
    planned,
    queue_finish,
    queued,
    standing,
    started,
    waiting,
    with_errors,
)
from conformance.test_wake import ANY, listening
from rowlock.clock import FakeClock
from rowlock.errors import DuplicateJob
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.storage.imports import ChunkEnd, ChunkResult, ChunkStatus, Counts, ErrorGroup, ImportStatus, Started
from rowlock.storage.records import Status

NOBODY = "018f0000-0000-7000-8000-000000000000"
ENDED = [status for status in ImportStatus if status.final]


class Interrupted(Exception):
    """Any exception of a handler."""


# -- adding ------------------------------------------------------------------------------------------


async def test_an_import_is_recorded_as_it_was_given(store: Store, other: Store, clock: FakeClock) -> None:
    given = new_import(company_id="acme", project_id="p1", user_id="u1", options='{"sheet": "AP Data"}')
    added = await store.add_import(given, import_job(given.id))
    assert added.created
    one = await found(other, given.id)
    assert added.record == one
    assert (one.id, one.type, one.status, one.file_name) == (given.id, "customers", "QUEUED", "Customers.csv")
    assert (one.path, one.sha256, one.size_bytes) == (given.path, given.sha256, 1234)
    assert (one.company_id, one.project_id, one.user_id, one.options) == ("acme", "p1", "u1", '{"sheet": "AP Data"}')
    assert (one.progress, one.message, one.total_chunks, one.completed_chunks) == (0, None, None, 0)
    assert (one.counts, one.error_count, one.meta, one.error, one.result) == (Counts(), 0, "{}", None, None)
    assert (one.started_at, one.finished_at, one.cleaned_at, one.scope) == (None, None, None, None)
    assert near(one.created_at, clock.now())
    assert near(one.updated_at, clock.now())


async def test_the_parent_job_waits_when_the_import_is_there(store: Store, other: Store) -> None:
    import_id = await queued(store)
    assert (await record(other, import_id)).queue == QUEUE
    assert await status(other, import_id) is Status.QUEUED


async def test_idle_workers_hear_of_a_new_import(store: Store, other: Store) -> None:
    async with listening(other) as ear:
        await queued(store)
        await ear.wait_for(("queue", QUEUE), ("queue", ANY))


async def test_workers_hear_of_the_chunks_of_a_plan(store: Store, other: Store) -> None:
    import_id = await started(store)
    async with listening(other) as ear:
        await plan_it(store, import_id)
        await ear.wait_for(("queue", QUEUE), ("queue", ANY))


async def test_an_import_whose_job_is_refused_is_not_there(store: Store) -> None:
    await store.enqueue([new_job(unique=forever())])
    given = new_import()
    with pytest.raises(DuplicateJob):
        await store.add_import(given, new_job(id=given.id, unique=forever()))
    assert await store.get_import(given.id) is None
    assert await ids(store) == []


async def test_an_import_that_is_added_again_under_its_id_is_the_same(store: Store) -> None:
    given = new_import(once=False)
    first = await store.add_import(given, import_job(given.id))
    again = await store.add_import(given, import_job(given.id))
    assert (again.created, again.record) == (False, first.record)
    assert await store.count(EVERYTHING, 10) == 1


@pytest.mark.parametrize("strange", ["", "nobody", NOBODY])
async def test_an_id_that_is_nobodys_finds_and_changes_nothing(store: Store, strange: str) -> None:
    assert await store.get_import(strange) is None
    assert await store.chunks(strange) == []
    assert await error_rows(store, strange) == []
    assert await store.start_import(strange, "Reading") is Started.OVER
    assert await store.note_import(strange, 5, "Reading") is False
    assert await store.cancel_import(strange) is None
    assert await store.resume_import(strange, {-1: import_job()}) is False
    assert await store.clean_import(strange) is False
    assert await plan_it(store, strange) is False
    assert await end_chunk(store, strange, 0) is None
    assert await end(store, strange) is False
    await queue_finish(store, strange)
    assert await store.count(EVERYTHING, 10) == 0


async def test_an_id_in_capitals_is_the_same_id(store: Store) -> None:
    import_id = await planned(store)
    assert (await found(store, import_id.upper())).id == import_id
    assert len(await store.chunks(import_id.upper())) == 3


# -- the same file -----------------------------------------------------------------------------------


async def test_the_same_file_again_is_answered_with_the_first(store: Store, other: Store) -> None:
    first = await add(store)
    again = await add(other)
    assert (again.created, again.record) == (False, first.record)
    assert await store.count(EVERYTHING, 10) == 1


@pytest.mark.parametrize("state", [*OPEN, ImportStatus.SUCCEEDED])
async def test_the_same_file_is_a_duplicate_while_the_first_may_be_taken_for_it(
    store: Store, state: ImportStatus
) -> None:
    first = await in_status(store, state, sha256="b")
    again = await add(store, sha256="b")
    assert (again.created, again.record.id) == (False, first)


@pytest.mark.parametrize("state", [ImportStatus.FAILED, ImportStatus.CANCELLED])
async def test_a_file_whose_import_failed_or_was_cancelled_may_come_again(store: Store, state: ImportStatus) -> None:
    await in_status(store, state, sha256="b")
    assert (await add(store, sha256="b")).created


@pytest.mark.parametrize("change", [{"type": "ap"}, {"company_id": "globex"}, {"company_id": None}, {"sha256": "c"}])
async def test_another_type_company_or_content_is_another_import(store: Store, change: dict[str, str]) -> None:
    await add(store, company_id="acme")
    assert (await add(store, **{"company_id": "acme"} | change)).created


async def test_the_same_file_is_a_duplicate_within_a_company_only(store: Store) -> None:
    acme = await add(store, company_id="acme")
    await add(store, company_id="globex")
    assert (await add(store, company_id="acme")).record.id == acme.record.id


async def test_a_forced_import_is_no_duplicate_and_has_none(store: Store) -> None:
    first = await add(store)
    forced = await add(store, once=False)
    assert forced.created
    assert (await add(store, once=False)).created
    assert (await add(store)).record.id == first.record.id


async def test_a_forced_import_alone_does_not_keep_its_file_out(store: Store) -> None:
    await add(store, once=False)
    assert (await add(store)).created


# -- starting and planning ---------------------------------------------------------------------------


async def test_starting_makes_it_running(store: Store, clock: FakeClock) -> None:
    import_id = await queued(store)
    clock.advance(5)
    assert await store.start_import(import_id, "Reading the file") is Started.STARTED
    one = await found(store, import_id)
    assert (one.status, one.message, one.progress) == ("RUNNING", "Reading the file", 0)
    assert near(one.started_at, clock.now())
    assert near(one.updated_at, clock.now())


async def test_a_second_attempt_of_the_parent_starts_what_is_not_planned(store: Store, clock: FakeClock) -> None:
    import_id = await started(store)
    first = await found(store, import_id)
    clock.advance(60)
    assert await store.start_import(import_id, "Again") is Started.STARTED
    assert (await found(store, import_id)).started_at == first.started_at


async def test_a_second_attempt_of_the_parent_finds_it_planned(store: Store) -> None:
    import_id = await planned(store)
    before = await standing(store, import_id)
    assert await store.start_import(import_id, "Again") is Started.PLANNED
    assert await standing(store, import_id) == before


@pytest.mark.parametrize("state", ENDED)
async def test_what_has_ended_does_not_start(store: Store, state: ImportStatus) -> None:
    import_id = await in_status(store, state)
    before = await standing(store, import_id)
    assert await store.start_import(import_id, "Again") is Started.OVER
    assert await standing(store, import_id) == before


async def test_notes_tell_how_far_planning_is_and_never_go_backwards(store: Store, clock: FakeClock) -> None:
    import_id = await started(store)
    seen = []
    for progress in (3, 1, -5, 7, 200, 4):
        clock.advance(1)
        assert await store.note_import(import_id, progress, f"At {progress}") is True
        seen.append((await found(store, import_id)).progress)
    assert seen == [3, 3, 3, 7, 10, 10]
    assert (await found(store, import_id)).message == "At 4"
    assert near((await found(store, import_id)).updated_at, clock.now())


@pytest.mark.parametrize("state", [ImportStatus.QUEUED, *ENDED])
async def test_a_note_on_what_does_not_run_changes_nothing(store: Store, state: ImportStatus) -> None:
    import_id = await in_status(store, state)
    before = await standing(store, import_id)
    assert await store.note_import(import_id, 9, "Reading") is False
    assert await standing(store, import_id) == before


async def test_a_plan_records_the_chunks_and_enqueues_their_jobs(store: Store, other: Store, clock: FakeClock) -> None:
    import_id = await started(store)
    clock.advance(1)
    given = plan(3, rows=7, meta='{"strategy": "hash"}')
    async with store.transaction() as transaction:
        assert await transaction.plan_import(import_id, given, job_id=import_id) is True
    one = await found(other, import_id)
    assert (one.total_chunks, one.completed_chunks, one.progress, one.meta) == (3, 0, 10, '{"strategy": "hash"}')
    assert near(one.updated_at, clock.now())
    refused, *chunks = await other.chunks(import_id)
    assert [(chunk.index, chunk.job_id) for chunk in chunks] == [(n, p.job.id) for n, p in enumerate(given.chunks)]
    assert {(chunk.status, chunk.planned_rows, chunk.counts, chunk.finished_at) for chunk in chunks} == {
        (ChunkStatus.WAITING, 7, Counts(), None)
    }
    assert (refused.index, refused.status, refused.counts) == (-1, ChunkStatus.DONE, Counts())
    for chunk in chunks:
        assert await status(other, chunk.job_id) is Status.QUEUED


async def test_what_the_reader_refused_counts_but_is_none_of_the_total(store: Store) -> None:
    import_id = await started(store)
    refused = ChunkResult(Counts(rows=2, invalid=2), with_errors(3, 9).groups, with_errors(3, 9).errors)
    assert await plan_it(store, import_id, 2, refused=refused)
    one = await found(store, import_id)
    assert (one.total_chunks, one.completed_chunks, one.progress) == (2, 0, 10)
    assert (one.counts, one.error_count) == (Counts(rows=2, invalid=2), 2)
    assert await error_rows(store, import_id) == [3, 9]
    assert (await store.chunks(import_id))[0].groups == (ErrorGroup("email", "email_invalid", 2),)


async def test_an_import_is_planned_once(store: Store) -> None:
    import_id = await planned(store)
    before = await standing(store, import_id)
    assert await plan_it(store, import_id, 5) is False
    assert await standing(store, import_id) == before


@pytest.mark.parametrize("state", [ImportStatus.QUEUED, *ENDED])
async def test_what_does_not_run_is_not_planned(store: Store, state: ImportStatus) -> None:
    import_id = await (queued(store) if state is ImportStatus.QUEUED else started(store))
    if state.final:
        await end(store, import_id, state)
    before = await standing(store, import_id)
    assert await plan_it(store, import_id) is False
    assert await standing(store, import_id) == before


async def test_a_plan_without_chunks_has_nothing_left_to_do(store: Store) -> None:
    import_id = await started(store)
    job = import_job()
    async with store.transaction() as transaction:
        assert await transaction.plan_import(import_id, plan(0), job_id=import_id)
        await transaction.queue_finish(import_id, job)
    one = await found(store, import_id)
    assert (one.total_chunks, one.completed_chunks, one.progress) == (0, 0, 99)
    assert await status(store, job.id) is Status.QUEUED


async def test_a_plan_in_a_transaction_that_raises_leaves_nothing(store: Store) -> None:
    import_id = await started(store)
    before = await standing(store, import_id)
    with suppress(Interrupted):
        async with store.transaction() as transaction:
            assert await transaction.plan_import(import_id, plan(3, refused=with_errors(3)), job_id=import_id)
            raise Interrupted
    assert await standing(store, import_id) == before


async def test_nothing_of_a_plan_is_seen_before_the_commit(store: Store, other: Store) -> None:
    import_id = await started(store)
    async with store.transaction() as transaction:
        await transaction.plan_import(import_id, plan(2), job_id=import_id)
        assert (await found(other, import_id)).total_chunks is None
        assert await other.chunks(import_id) == []
    assert await waiting(other, import_id) == [0, 1]


# -- finishing ---------------------------------------------------------------------------------------


async def test_the_whole_life_of_an_import(store: Store, clock: FakeClock) -> None:
    import_id = await planned(store, 3)
    progress = [(await found(store, import_id)).progress]
    ends = []
    for index in (2, 0, 1):
        ends.append(await end_chunk(store, import_id, index))
        progress.append((await found(store, import_id)).progress)
    assert ends == [ChunkEnd(ImportStatus.RUNNING, number, 3, 0) for number in (1, 2, 3)]
    assert progress == [10, 39, 69, 99]
    finish = await queue_finish(store, import_id)
    assert await status(store, finish) is Status.QUEUED
    clock.advance(9)
    assert await end(store, import_id, message="30 rows", result='{"ok": true}') is True
    one = await found(store, import_id)
    assert (one.status, one.progress, one.message, one.result) == ("SUCCEEDED", 100, "30 rows", '{"ok": true}')
    assert (one.total_chunks, one.completed_chunks) == (3, 3)
    assert one.counts == Counts(rows=30, inserted=18, updated=9, unchanged=3)
    assert one.counts.balanced
    assert near(one.finished_at, clock.now())
    assert near(one.updated_at, clock.now())


async def test_the_finish_job_is_enqueued_once(store: Store) -> None:
    import_id = await loaded(store)
    first = await queue_finish(store, import_id)
    second = await queue_finish(store, import_id)
    assert await store.get(first) is not None
    assert await store.get(second) is None


async def test_the_finish_job_waits_for_every_chunk(store: Store) -> None:
    import_id = await planned(store)
    await end_chunk(store, import_id, 1)
    assert await store.get(await queue_finish(store, import_id)) is None
    await end_chunk(store, import_id, 0)
    assert await store.get(await queue_finish(store, import_id)) is not None


@pytest.mark.parametrize("state", ENDED)
async def test_what_has_ended_gets_no_finish_job(store: Store, state: ImportStatus) -> None:
    import_id = await loaded(store)
    await end(store, import_id, state)
    before = await standing(store, import_id)
    assert await store.get(await queue_finish(store, import_id)) is None
    assert await standing(store, import_id) == before


async def test_what_is_not_planned_gets_no_finish_job(store: Store) -> None:
    assert await store.get(await queue_finish(store, await started(store))) is None


@pytest.mark.parametrize("first", ENDED)
@pytest.mark.parametrize("second", ENDED)
async def test_an_import_ends_once(store: Store, first: ImportStatus, second: ImportStatus) -> None:
    import_id = await in_status(store, first)
    before = await standing(store, import_id)
    assert await end(store, import_id, second, message="Again", error="{}") is False
    assert await standing(store, import_id) == before


@pytest.mark.parametrize("state", OPEN)
async def test_an_import_does_not_end_as_one_that_goes_on(store: Store, state: ImportStatus) -> None:
    import_id = await planned(store)
    with pytest.raises(ValueError, match="cannot end as"):
        await end(store, import_id, state)
    assert (await found(store, import_id)).status is ImportStatus.RUNNING


@pytest.mark.parametrize("state", [ImportStatus.FAILED, ImportStatus.CANCELLED])
async def test_the_progress_of_what_failed_stays_where_it_was(store: Store, state: ImportStatus) -> None:
    import_id = await planned(store, 4)
    await end_chunk(store, import_id, 0)
    before = (await found(store, import_id)).progress
    await end(store, import_id, state, error='{"code": "too_many_errors"}')
    one = await found(store, import_id)
    assert (before, one.progress, one.error) == (32, 32, '{"code": "too_many_errors"}')


async def test_a_file_that_is_refused_ends_before_it_is_planned(store: Store) -> None:
    import_id = await started(store)
    await store.note_import(import_id, 4, "Reading")
    assert await end(store, import_id, ImportStatus.FAILED, message="No header", error='{"code": "no_header"}')
    one = await found(store, import_id)
    assert (one.status, one.progress, one.message) == ("FAILED", 4, "No header")


async def test_an_end_in_a_transaction_that_raises_leaves_nothing(store: Store) -> None:
    import_id = await loaded(store)
    before = await standing(store, import_id)
    job = import_job()
    with suppress(Interrupted):
        async with store.transaction() as transaction:
            await transaction.queue_finish(import_id, job)
            await transaction.end_import(
                import_id, ImportStatus.SUCCEEDED, message="Done", error=None, result='{"ok": 1}'
            )
            raise Interrupted
    assert await standing(store, import_id) == before
    assert await store.get(job.id) is None


async def test_texts_may_hold_nul_and_any_character(store: Store) -> None:
    odd = "a\x00b \ud800 日本 '\""
    import_id = await started(store, file_name=odd)
    assert await store.note_import(import_id, 1, odd)
    one = await found(store, import_id)
    assert one.file_name.startswith("a")
    assert "日本" in one.file_name
    assert one.message is not None
    assert one.message.endswith("日本 '\"")
    assert await end(store, import_id, ImportStatus.FAILED, message=odd)


async def test_a_chunk_job_is_the_one_that_the_plan_named(store: Store) -> None:
    import_id = await planned(store, 2)
    jobs = await chunk_jobs(store, import_id)
    assert len(set(jobs)) == 2
    assert await end_chunk(store, import_id, 0, CLEAN, jobs[0]) is not None
    assert await end_chunk(store, import_id, 1, CLEAN, jobs[0]) is None
    assert await end_chunk(store, import_id, 1, CLEAN, uuid7()) is None
    assert await waiting(store, import_id) == [1]
