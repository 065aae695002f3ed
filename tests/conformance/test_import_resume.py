"""Cancel, resume and close imports that do not end by themselves."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import orjson
import pytest

from conformance.builders import ANN, flat, near, status
from conformance.import_builders import (
    CLEAN,
    OPEN,
    QUEUE,
    add,
    chunk_jobs,
    end,
    end_chunk,
    end_jobs,
    error_rows,
    found,
    in_status,
    jobs_for,
    loaded,
    partly,
    plan,
    plan_it,
    planned,
    queue_finish,
    queued,
    standing,
    started,
)
from conformance.test_wake import ANY, listening
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.imports import ChunkEnd, ImportId, ImportStatus, Started
from rowlock.storage.records import JobFilter, Outcome, Status

ENDED = [status for status in ImportStatus if status.final]
DEAD = [ImportStatus.FAILED, ImportStatus.CANCELLED]


class Interrupted(Exception):
    """Any exception of a handler."""


# -- cancel ------------------------------------------------------------------------------------------


async def test_a_queued_import_is_cancelled_and_names_its_parent_job(store: Store, clock: FakeClock) -> None:
    import_id = await queued(store)
    clock.advance(4)
    assert await store.cancel_import(import_id) == [import_id]
    one = await found(store, import_id)
    assert (one.status, one.error) == ("CANCELLED", None)
    assert near(one.finished_at, clock.now())
    assert await status(store, import_id) is Status.QUEUED  # the caller cancels the job


async def test_a_cancel_names_every_job_that_is_not_over(store: Store) -> None:
    import_id = await planned(store, 4)
    jobs = await chunk_jobs(store, import_id)
    await end_chunk(store, import_id, 0)
    assert sorted(await end_jobs(store, Outcome.SUCCEEDED, [import_id, jobs[0]])) == sorted([import_id, jobs[0]])
    (running,) = await store.claim(QUEUE, ANN, 1)
    assert running.id in jobs[1:]
    assert await store.cancel_import(import_id) == jobs[1:]


async def test_a_cancel_names_the_finish_job(store: Store) -> None:
    import_id = await loaded(store)
    finish = await queue_finish(store, import_id)
    await end_jobs(store, Outcome.SUCCEEDED, [import_id, *await chunk_jobs(store, import_id)])
    assert await store.cancel_import(import_id) == [finish]


@pytest.mark.parametrize("state", ENDED)
async def test_what_is_over_is_not_cancelled(store: Store, state: ImportStatus) -> None:
    import_id = await in_status(store, state)
    before = await standing(store, import_id)
    assert await store.cancel_import(import_id) is None
    assert await standing(store, import_id) == before


async def test_after_a_cancel_nothing_of_the_import_is_recorded(store: Store) -> None:
    import_id = await planned(store)
    await store.cancel_import(import_id)
    before = await standing(store, import_id)
    assert await end_chunk(store, import_id, 0) is None
    assert await end(store, import_id) is False
    assert await store.note_import(import_id, 9, "Reading") is False
    assert await standing(store, import_id) == before


# -- resume ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", DEAD)
async def test_a_resumed_import_goes_on_with_the_chunks_that_are_not_done(
    store: Store, other: Store, clock: FakeClock, state: ImportStatus
) -> None:
    import_id = await partly(store, state)
    before = await found(store, import_id)
    clock.advance(60)
    jobs = jobs_for(0, 2)
    assert await store.resume_import(import_id, jobs) is True
    one = await found(other, import_id)
    assert (one.status, one.message, one.error, one.result, one.finished_at) == ("RUNNING", None, None, None, None)
    assert (one.progress, one.counts, one.started_at) == (before.progress, before.counts, before.started_at)
    assert near(one.updated_at, clock.now())
    assert [(await chunk_jobs(store, import_id))[index] for index in (0, 2)] == [jobs[0].id, jobs[2].id]
    for job in jobs.values():
        assert await status(other, job.id) is Status.QUEUED
    assert await end_chunk(store, import_id, 0) == ChunkEnd(ImportStatus.RUNNING, 2, 3, 1)
    assert await end_chunk(store, import_id, 2) == ChunkEnd(ImportStatus.RUNNING, 3, 3, 1)
    assert await error_rows(store, import_id) == [14]


@pytest.mark.parametrize("indexes", [(), (0,), (0, 1, 2), (0, 1), (0, 2, 3), (-1,), (3,), (-1, 0, 2)])
async def test_a_resume_with_other_indexes_changes_nothing(store: Store, indexes: tuple[int, ...]) -> None:
    import_id = await partly(store)
    before = await standing(store, import_id)
    assert await store.resume_import(import_id, jobs_for(*indexes)) is False
    assert await standing(store, import_id) == before


@pytest.mark.parametrize("state", [*OPEN, ImportStatus.SUCCEEDED])
async def test_only_what_failed_or_was_cancelled_is_resumed(store: Store, state: ImportStatus) -> None:
    import_id = await in_status(store, state)
    before = await standing(store, import_id)
    for indexes in ((-1,), (0, 1), (2,)):
        assert await store.resume_import(import_id, jobs_for(*indexes)) is False
    assert await standing(store, import_id) == before


async def test_an_import_that_was_never_planned_is_queued_again_with_a_new_parent(store: Store) -> None:
    import_id = await started(store)
    await store.note_import(import_id, 6, "Reading")
    await end(store, import_id, ImportStatus.FAILED)
    assert await store.resume_import(import_id, jobs_for(0)) is False
    jobs = jobs_for(-1)
    assert await store.resume_import(import_id, jobs) is True
    one = await found(store, import_id)
    assert (one.status, one.progress, one.total_chunks) == ("QUEUED", 6, None)
    assert await store.start_import(import_id, "Again") is Started.STARTED
    await store.note_import(import_id, 2, "Again")
    assert (await found(store, import_id)).progress == 6
    assert await plan_it(store, import_id, job_id=jobs[-1].id)
    await end_jobs(store, Outcome.SUCCEEDED, [import_id])
    named = await store.cancel_import(import_id)
    assert named is not None
    assert set(named) == {jobs[-1].id, *await chunk_jobs(store, import_id)}


async def test_an_import_whose_chunks_are_all_done_goes_on_with_its_finish_job(store: Store) -> None:
    import_id = await loaded(store)
    first = await queue_finish(store, import_id)
    await end_jobs(store, Outcome.FAILED, [first])
    await store.close_imports(10)
    assert await store.resume_import(import_id, jobs_for(0)) is False
    jobs = jobs_for(2)
    assert await store.resume_import(import_id, jobs) is True
    assert (await found(store, import_id)).progress == 99
    assert await status(store, jobs[2].id) is Status.QUEUED
    assert await store.close_imports(10) == []
    assert await store.get(await queue_finish(store, import_id)) is None  # it has a finish job already
    assert await end_chunk(store, import_id, 2, CLEAN, first) is None
    assert await end_chunk(store, import_id, 2, CLEAN, jobs[2].id) is not None
    assert await end(store, import_id)


async def test_a_chunk_that_is_another_jobs_since_the_resume_is_not_the_old_ones_to_record(store: Store) -> None:
    import_id = await planned(store)
    old = await chunk_jobs(store, import_id)
    await store.cancel_import(import_id)
    jobs = jobs_for(0, 1)
    assert await store.resume_import(import_id, jobs)
    before = await standing(store, import_id)
    assert await end_chunk(store, import_id, 0, CLEAN, old[0]) is None
    assert await standing(store, import_id) == before
    assert await end_chunk(store, import_id, 0, CLEAN, jobs[0].id) is not None


async def test_a_cleaned_import_is_not_resumed(store: Store) -> None:
    import_id = await partly(store)
    assert await store.clean_import(import_id)
    before = await standing(store, import_id)
    assert await store.resume_import(import_id, jobs_for(0, 2)) is False
    assert await standing(store, import_id) == before


async def test_an_import_is_not_resumed_while_another_has_its_file(store: Store) -> None:
    import_id = await partly(store, sha256="b")
    second = await add(store, sha256="b")
    assert second.created
    before = await standing(store, import_id)
    assert await store.resume_import(import_id, jobs_for(0, 2)) is False
    assert await standing(store, import_id) == before
    await end(store, second.record.id, ImportStatus.FAILED)
    assert await store.resume_import(import_id, jobs_for(0, 2)) is True


async def test_of_two_who_resume_at_once_one_does(store: Store, other: Store) -> None:
    for _ in range(5):
        import_id = await partly(store)
        tries = [jobs_for(0, 2), jobs_for(0, 2)]
        answers = await asyncio.gather(
            *(each.resume_import(import_id, jobs) for each, jobs in zip((store, other), tries, strict=True))
        )
        assert sorted(answers) == [False, True]
        winner, loser = tries[answers.index(True)], tries[answers.index(False)]
        assert [(await chunk_jobs(store, import_id))[index] for index in (0, 2)] == [winner[0].id, winner[2].id]
        assert await store.get(loser[0].id) is None


async def test_a_cleanup_and_a_resume_at_once_agree(store: Store, other: Store) -> None:
    for _ in range(5):
        import_id = await partly(store)
        resumed, cleaned = await asyncio.gather(
            store.resume_import(import_id, jobs_for(0, 2)), other.clean_import(import_id)
        )
        assert resumed is not cleaned
        one = await found(store, import_id)
        assert (one.status is ImportStatus.RUNNING, one.cleaned_at is None) == (resumed, resumed)


async def test_workers_hear_of_a_resume(store: Store, other: Store) -> None:
    import_id = await partly(store)
    async with listening(other) as ear:
        assert await store.resume_import(import_id, jobs_for(0, 2))
        await ear.wait_for(("queue", QUEUE), ("queue", ANY))


# -- close -------------------------------------------------------------------------------------------


async def closed_error(store: Store, import_id: ImportId) -> dict[str, object]:
    """Close imports; fails unless exactly this one is closed. Returns its error."""
    (one,) = await store.close_imports(10)
    assert (one.id, one.status) == (import_id, ImportStatus.FAILED)
    assert one == await found(store, import_id)
    assert one.error is not None
    told: dict[str, object] = orjson.loads(one.error)
    return told


async def test_imports_whose_jobs_wait_or_run_are_left_alone(store: Store) -> None:
    one, two, three, four = await queued(store), await started(store), await planned(store), await loaded(store)
    await queue_finish(store, four)
    before = [await found(store, each) for each in (one, two, three, four)]
    assert await store.close_imports(10) == []
    assert await store.claim(QUEUE, ANN, 5) != []
    assert await store.close_imports(10) == []
    assert [await found(store, each) for each in (one, two, three, four)] == before


@pytest.mark.parametrize(("outcome", "code"), [(Outcome.FAILED, "job_failed"), (Outcome.CANCELLED, "job_cancelled")])
@pytest.mark.parametrize("running", [True, False])
async def test_an_import_whose_parent_is_over_fails(
    store: Store, clock: FakeClock, outcome: Outcome, code: str, running: bool
) -> None:
    import_id = await (started(store) if running else queued(store))
    await end_jobs(store, outcome, error="MemoryError: too big")
    clock.advance(7)
    told = await closed_error(store, import_id)
    assert told == {"code": code, "message": "MemoryError: too big", "jobId": import_id, "chunk": None}
    assert near((await found(store, import_id)).finished_at, clock.now())


@pytest.mark.parametrize(("outcome", "code"), [(Outcome.FAILED, "job_failed"), (Outcome.CANCELLED, "job_cancelled")])
async def test_an_import_fails_with_a_chunk_job_that_is_over(store: Store, outcome: Outcome, code: str) -> None:
    import_id = await planned(store, 3)
    await end_chunk(store, import_id, 0)
    job = (await chunk_jobs(store, import_id))[2]
    await end_jobs(store, outcome, [job], "OSError: disk")
    progress = (await found(store, import_id)).progress
    assert await closed_error(store, import_id) == {"code": code, "message": "OSError: disk", "jobId": job, "chunk": 2}
    one = await found(store, import_id)
    assert (one.progress, one.completed_chunks) == (progress, 1)


async def test_a_job_that_was_cancelled_before_it_started_closes_its_import(store: Store) -> None:
    import_id = await planned(store)
    await store.cancel((await chunk_jobs(store, import_id))[1])
    told = await closed_error(store, import_id)
    assert (told["code"], told["chunk"], told["message"]) == ("job_cancelled", 1, "cancelled before it started")


async def test_an_import_fails_with_its_finish_job(store: Store) -> None:
    import_id = await loaded(store)
    finish = await queue_finish(store, import_id)
    await end_jobs(store, Outcome.FAILED, [finish], "KeyError: x")
    told = await closed_error(store, import_id)
    assert told == {"code": "job_failed", "message": "KeyError: x", "jobId": finish, "chunk": None}


async def test_a_failed_job_is_named_before_a_cancelled_one(store: Store) -> None:
    import_id = await planned(store, 3)
    jobs = await chunk_jobs(store, import_id)
    await store.cancel(jobs[0])
    await end_jobs(store, Outcome.FAILED, [jobs[2]], "no")
    told = await closed_error(store, import_id)
    assert (told["code"], told["chunk"]) == ("job_failed", 2)


async def test_of_several_failed_chunks_the_first_is_named(store: Store) -> None:
    import_id = await planned(store, 12)
    jobs = await chunk_jobs(store, import_id)
    await end_jobs(store, Outcome.FAILED, [jobs[11], jobs[2], jobs[10]], "no")
    assert (await closed_error(store, import_id))["chunk"] == 2


async def test_an_import_whose_job_was_removed_fails(store: Store) -> None:
    import_id = await planned(store)
    job = (await chunk_jobs(store, import_id))[0]
    await end_jobs(store, Outcome.FAILED, [job])
    assert await store.discard(JobFilter(ids=[job]), 1) == [job]
    told = await closed_error(store, import_id)
    assert (told["code"], told["jobId"], told["chunk"]) == ("job_failed", job, 0)
    assert "deleted" in str(told["message"])


async def test_an_import_whose_job_succeeded_without_doing_its_part_fails(store: Store) -> None:
    import_id = await planned(store)
    await end_jobs(store, Outcome.SUCCEEDED, [(await chunk_jobs(store, import_id))[1]])
    told = await closed_error(store, import_id)
    assert (told["code"], told["chunk"]) == ("job_failed", 1)
    assert "without recording" in str(told["message"])


async def test_a_job_that_did_its_part_is_no_reason_however_it_ended(store: Store) -> None:
    import_id = await planned(store, 2)
    jobs = await chunk_jobs(store, import_id)
    await end_chunk(store, import_id, 0)
    await end_jobs(store, Outcome.FAILED, [import_id, jobs[0]])
    assert await store.close_imports(10) == []


async def test_a_chunk_job_that_is_queued_again_is_no_reason(store: Store) -> None:
    import_id = await planned(store)
    job = (await chunk_jobs(store, import_id))[0]
    await end_jobs(store, Outcome.FAILED, [job])
    await store.retry(JobFilter(ids=[job]), 1)
    assert await store.close_imports(10) == []
    await end_jobs(store, Outcome.RETRY, [job])
    assert await store.close_imports(10) == []
    assert (await found(store, import_id)).status is ImportStatus.RUNNING


@pytest.mark.parametrize("state", ENDED)
async def test_what_has_ended_is_not_closed(store: Store, state: ImportStatus) -> None:
    import_id = await in_status(store, state)
    await end_jobs(store, Outcome.FAILED)
    before = await standing(store, import_id)
    assert await store.close_imports(10) == []
    assert await standing(store, import_id) == before


async def test_a_closed_import_is_told_once_and_can_be_resumed(store: Store) -> None:
    import_id = await planned(store)
    await end_jobs(store, Outcome.FAILED, [(await chunk_jobs(store, import_id))[1]], "no")
    assert len(await store.close_imports(10)) == 1
    assert await store.close_imports(10) == []
    assert await store.resume_import(import_id, jobs_for(0, 1))
    assert await store.close_imports(10) == []
    assert (await found(store, import_id)).error is None


async def test_no_more_are_closed_at_a_time_than_asked_for(store: Store) -> None:
    imports = [await planned(store, 3) for _ in range(5)]
    await end_jobs(store, Outcome.FAILED)
    closed = [[one.id for one in await store.close_imports(2)] for _ in range(4)]
    assert [len(batch) for batch in closed] == [2, 2, 1, 0]
    assert sorted(flat(closed)) == sorted(imports)


async def test_who_closes_at_once_tells_each_import_once(store: Store, other: Store) -> None:
    imports = [await planned(store) for _ in range(6)]
    await end_jobs(store, Outcome.FAILED)
    closed = await asyncio.gather(*((store, other)[n % 2].close_imports(10) for n in range(4)))
    assert sorted(one.id for batch in closed for one in batch) == sorted(imports)


async def test_two_who_wait_to_close_an_import_tell_it_once(store: Store, other: Store) -> None:
    import_id = await planned(store, 2)
    await end_jobs(store, Outcome.FAILED, [(await chunk_jobs(store, import_id))[1]])
    async with store.transaction() as transaction:
        await transaction.end_chunk(import_id, 0, CLEAN)
        closers = [asyncio.create_task(each.close_imports(10)) for each in (store, other)]
        for _ in range(50):  # long enough for both to find it
            assert (await found(store, import_id)).status is ImportStatus.RUNNING
    assert [one.id for one in flat(await asyncio.gather(*closers))] == [import_id]


async def test_errors_of_jobs_may_hold_anything(store: Store) -> None:
    import_id = await planned(store)
    await end_jobs(store, Outcome.FAILED, [(await chunk_jobs(store, import_id))[0]], 'a\x00b "quoted" 日本')
    assert "quoted" in str((await closed_error(store, import_id))["message"])


async def test_a_cancel_in_the_wake_of_a_plan_that_was_undone_names_no_job_of_it(store: Store) -> None:
    import_id = await started(store)
    with suppress(Interrupted):
        async with store.transaction() as transaction:
            assert await transaction.plan_import(import_id, plan(3), job_id=import_id)
            raise Interrupted
    assert await store.cancel_import(import_id) == [import_id]
