"""Fences: jobs that no longer, or do not yet, belong to an import cannot change it."""

from __future__ import annotations

import asyncio

import pytest

from conformance.import_builders import (
    CLEAN,
    begin_finish,
    chunk_jobs,
    end,
    end_chunk,
    found,
    import_job,
    jobs_for,
    loaded,
    plan,
    plan_it,
    planned,
    queue_finish,
    queued,
    standing,
    started,
    with_errors,
)
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.storage.imports import Counts, ImportId, ImportRecord, ImportStatus, Started
from rowlock.storage.records import JobId

FAILED = ImportStatus.FAILED
ENDED = [status for status in ImportStatus if status.final]
STRANGERS = ["", "nobody", "018f0000-0000-7000-8000-000000000000"]


async def requeued(store: Store) -> tuple[ImportId, JobId]:
    """Resume an import before it is planned. Returns it and its new parent job; the old one has the import's id."""
    import_id = await started(store)
    await end(store, import_id, FAILED)
    jobs = jobs_for(-1)
    assert await store.resume_import(import_id, jobs)
    return import_id, jobs[-1].id


async def unheard(store: Store, import_id: ImportId, job_id: JobId) -> None:
    """Assert that this job cannot end the import and changes nothing."""
    before = await standing(store, import_id)
    assert await end(store, import_id, FAILED, job_id=job_id) is False
    assert await standing(store, import_id) == before


# -- the parent job ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_only_the_parent_job_starts_an_import(store: Store, stranger: str) -> None:
    import_id = await queued(store)
    before = await standing(store, import_id)
    assert await store.start_import(import_id, "Reading", job_id=stranger) is Started.OVER
    assert await standing(store, import_id) == before
    assert await store.start_import(import_id, "Reading", job_id=import_id) is Started.STARTED


async def test_since_a_resume_the_new_parent_job_starts_the_import(store: Store) -> None:
    import_id, parent = await requeued(store)
    assert await store.start_import(import_id, "Reading", job_id=import_id) is Started.OVER
    assert (await found(store, import_id)).status is ImportStatus.QUEUED
    assert await store.start_import(import_id, "Reading", job_id=parent) is Started.STARTED
    assert await store.start_import(import_id, "Reading", job_id=import_id) is Started.OVER
    assert await store.start_import(import_id, "Reading", job_id=parent) is Started.STARTED
    assert await plan_it(store, import_id, 2, parent)
    assert await store.start_import(import_id, "Reading", job_id=import_id) is Started.OVER
    assert await store.start_import(import_id, "Reading", job_id=parent) is Started.PLANNED


async def test_an_old_parent_job_is_over_though_another_of_its_scope_runs(store: Store) -> None:
    import_id = await started(store, scope="customers")
    await end(store, import_id, FAILED)
    assert await store.resume_import(import_id, jobs_for(-1))
    await started(store, scope="customers")
    assert await store.start_import(import_id, "Reading", job_id=import_id) is Started.OVER


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_only_the_parent_job_notes_how_far_planning_is(store: Store, stranger: str) -> None:
    import_id = await started(store)
    before = await standing(store, import_id)
    assert await store.note_import(import_id, 5, "Reading", job_id=stranger) is False
    assert await standing(store, import_id) == before
    assert await store.note_import(import_id, 5, "Reading", job_id=import_id) is True


async def test_since_a_resume_the_old_parent_job_notes_nothing(store: Store) -> None:
    import_id, parent = await requeued(store)
    await store.start_import(import_id, "Reading", job_id=parent)
    assert await store.note_import(import_id, 5, "Old", job_id=import_id) is False
    assert await store.note_import(import_id, 5, "New", job_id=parent) is True
    assert (await found(store, import_id)).message == "New"


async def test_a_job_in_capitals_is_the_same_job(store: Store) -> None:
    import_id = await queued(store)
    job_id = import_id.upper()
    assert await store.start_import(import_id, "Reading", job_id=job_id) is Started.STARTED
    assert await store.note_import(import_id, 5, "Reading", job_id=job_id) is True
    assert await plan_it(store, import_id, 0, job_id)
    finish = await queue_finish(store, import_id)
    assert await begin_finish(store, import_id.upper(), finish.upper()) is not None
    assert await end(store, import_id, job_id=finish.upper()) is True


@pytest.mark.parametrize("stranger", [*STRANGERS[1:], None])
async def test_only_the_parent_job_plans_an_import(store: Store, stranger: str | None) -> None:
    import_id = await started(store)
    before = await standing(store, import_id)
    async with store.transaction() as transaction:
        assert await transaction.plan_import(import_id, plan(3), job_id=stranger or "") is False
    assert await standing(store, import_id) == before
    assert await plan_it(store, import_id, 3, import_id) is True


async def test_since_a_resume_the_old_parent_job_plans_nothing(store: Store) -> None:
    import_id, parent = await requeued(store)
    await store.start_import(import_id, "Reading", job_id=parent)
    before = await standing(store, import_id)
    assert await plan_it(store, import_id, 5, import_id) is False
    assert await standing(store, import_id) == before
    assert await plan_it(store, import_id, 2, parent) is True
    assert (await found(store, import_id)).total_chunks == 2


# -- the end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("running", [True, False])
async def test_the_parent_job_ends_what_is_not_planned(store: Store, running: bool) -> None:
    import_id = await (started(store) if running else queued(store))
    for stranger in STRANGERS:
        await unheard(store, import_id, stranger)
    assert await end(store, import_id, FAILED, job_id=import_id) is True
    assert (await found(store, import_id)).status is FAILED


async def test_an_old_parent_job_does_not_end_what_a_new_one_reads(store: Store) -> None:
    import_id, parent = await requeued(store)
    await unheard(store, import_id, import_id)
    await store.start_import(import_id, "Reading", job_id=parent)
    await unheard(store, import_id, import_id)
    assert await end(store, import_id, FAILED, job_id=parent) is True


async def test_the_parent_job_does_not_end_what_is_planned(store: Store) -> None:
    import_id = await planned(store)
    await unheard(store, import_id, import_id)
    for index in range(2):
        await end_chunk(store, import_id, index)
    await end_chunk(store, import_id, 2)  # stored with the chunks, under the parent job's id
    await unheard(store, import_id, import_id)


async def test_a_chunk_job_ends_its_import(store: Store) -> None:
    for done in (True, False):
        import_id = await planned(store)
        job = (await chunk_jobs(store, import_id))[1]
        if done:
            await end_chunk(store, import_id, 1, CLEAN, job)
        for stranger in STRANGERS:
            await unheard(store, import_id, stranger)
        assert await end(store, import_id, FAILED, job_id=job) is True


async def test_a_chunk_job_ends_no_other_import(store: Store) -> None:
    import_id, other_one = await planned(store), await planned(store)
    await unheard(store, import_id, (await chunk_jobs(store, other_one))[0])


async def test_a_chunk_job_that_was_replaced_does_not_end_its_import(store: Store) -> None:
    import_id = await planned(store)
    old = await chunk_jobs(store, import_id)
    await store.cancel_import(import_id)
    jobs = jobs_for(0, 1)
    assert await store.resume_import(import_id, jobs)
    await unheard(store, import_id, old[0])
    assert await end(store, import_id, FAILED, job_id=jobs[0].id) is True


async def test_the_finish_job_ends_its_import(store: Store) -> None:
    import_id = await loaded(store)
    finish = await queue_finish(store, import_id)
    await unheard(store, import_id, uuid7())
    assert await end(store, import_id, job_id=finish) is True
    assert (await found(store, import_id)).status is ImportStatus.SUCCEEDED


async def test_a_finish_job_that_was_replaced_does_not_end_its_import(store: Store) -> None:
    import_id = await loaded(store)
    old = await queue_finish(store, import_id)
    await store.cancel_import(import_id)
    jobs = jobs_for(2)
    assert await store.resume_import(import_id, jobs)
    await unheard(store, import_id, old)
    assert await end(store, import_id, job_id=jobs[2].id) is True


@pytest.mark.parametrize("state", ENDED)
async def test_what_has_ended_does_not_end_again_by_a_job_of_its_own(store: Store, state: ImportStatus) -> None:
    import_id = await loaded(store)
    finish = await queue_finish(store, import_id)
    assert await end(store, import_id, state)
    await unheard(store, import_id, finish)


# -- the finish job ----------------------------------------------------------------------------------


async def test_the_finish_begins_with_the_totals_as_they_are(store: Store) -> None:
    import_id = await planned(store)
    await end_chunk(store, import_id, 0)
    await end_chunk(store, import_id, 1, with_errors(3))
    finish = await queue_finish(store, import_id)
    async with store.transaction() as transaction:
        await transaction.end_chunk(import_id, 2, with_errors(7, 8), job_id=finish)
        begun = await transaction.begin_finish(import_id, finish)
    assert begun is not None
    assert begun == await found(store, import_id)
    assert (begun.id, begun.completed_chunks, begun.error_count) == (import_id, 2, 3)
    assert begun.counts == Counts(rows=30, inserted=23, updated=3, unchanged=1, invalid=3)


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_only_the_finish_job_begins_to_finish(store: Store, stranger: str) -> None:
    import_id = await loaded(store)
    assert await begin_finish(store, import_id, import_id) is None  # it has no finish job yet
    finish = await queue_finish(store, import_id)
    for job_id in (stranger, import_id, *await chunk_jobs(store, import_id)):
        assert await begin_finish(store, import_id, job_id) is None
    assert await begin_finish(store, stranger, finish) is None
    assert await begin_finish(store, import_id, finish) is not None


async def test_a_finish_job_that_was_replaced_does_not_begin(store: Store) -> None:
    import_id = await loaded(store)
    old = await queue_finish(store, import_id)
    await store.cancel_import(import_id)
    jobs = jobs_for(2)
    assert await store.resume_import(import_id, jobs)
    assert await begin_finish(store, import_id, old) is None
    assert await begin_finish(store, import_id, jobs[2].id) is not None


@pytest.mark.parametrize("state", ENDED)
async def test_what_has_ended_is_not_finished(store: Store, state: ImportStatus) -> None:
    import_id = await loaded(store)
    finish = await queue_finish(store, import_id)
    await end(store, import_id, state)
    assert await begin_finish(store, import_id, finish) is None


async def test_what_is_not_planned_or_has_chunks_that_wait_is_not_finished(store: Store) -> None:
    for import_id in (await started(store), await planned(store)):
        assert await begin_finish(store, import_id, await queue_finish(store, import_id)) is None


async def test_a_plan_without_chunks_is_finished(store: Store) -> None:
    import_id = await started(store)
    job = import_job()
    async with store.transaction() as transaction:
        assert await transaction.plan_import(import_id, plan(0), job_id=import_id)
        await transaction.queue_finish(import_id, job)
    begun = await begin_finish(store, import_id, job.id)
    assert begun is not None
    assert begun.total_chunks == 0


async def test_a_cancel_waits_for_a_finish_that_has_begun(store: Store, other: Store) -> None:
    import_id = await loaded(store)
    finish = await queue_finish(store, import_id)
    async with store.transaction() as transaction:
        assert await transaction.begin_finish(import_id, finish) is not None
        cancel = asyncio.create_task(other.cancel_import(import_id))
        for _ in range(50):  # long enough for it to end if it did not wait
            assert (await found(store, import_id)).status is ImportStatus.RUNNING
        assert not cancel.done()
        assert await transaction.end_import(
            import_id, ImportStatus.SUCCEEDED, message="Done", error=None, result=None, job_id=finish
        )
    assert await cancel is None
    assert (await found(store, import_id)).status is ImportStatus.SUCCEEDED


async def test_a_cancel_and_a_finish_at_once_agree(store: Store, other: Store) -> None:
    for _ in range(5):
        import_id = await loaded(store)
        finish = await queue_finish(store, import_id)

        async def run(import_id: ImportId = import_id, finish: JobId = finish) -> ImportRecord | None:
            async with store.transaction() as transaction:
                begun = await transaction.begin_finish(import_id, finish)
                ended = await transaction.end_import(
                    import_id, ImportStatus.SUCCEEDED, message="Done", error=None, result=None, job_id=finish
                )
                assert ended is (begun is not None)
                return begun

        begun, cancelled = await asyncio.gather(run(), other.cancel_import(import_id))
        assert (begun is None) is (cancelled is not None)
        expected = ImportStatus.CANCELLED if begun is None else ImportStatus.SUCCEEDED
        assert (await found(store, import_id)).status is expected
