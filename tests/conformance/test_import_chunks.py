"""Chunks of an import: a new result replaces the old one, and of chunks that end at once exactly one is the last."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from conformance.builders import near, status
from conformance.import_builders import (
    CLEAN,
    add,
    bad_row,
    chunk_jobs,
    end,
    end_chunk,
    error_rows,
    found,
    ids,
    import_job,
    in_status,
    loaded,
    plan,
    plan_it,
    planned,
    queue_finish,
    standing,
    started,
    waiting,
    with_errors,
)
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.imports import (
    ChunkEnd,
    ChunkResult,
    ChunkStatus,
    Counts,
    ErrorGroup,
    ErrorRow,
    ImportStatus,
    RowError,
    part_index,
)
from rowlock.storage.records import Status

ROUNDS = 5
NOT_RUNNING = [status for status in ImportStatus if status is not ImportStatus.RUNNING]


class Interrupted(Exception):
    """Any exception of a handler."""


# -- recording ---------------------------------------------------------------------------------------


async def test_a_chunk_is_recorded_with_counts_groups_errors_and_notes(
    store: Store, other: Store, clock: FakeClock
) -> None:
    import_id = await planned(store)
    clock.advance(3)
    error = RowError(5, "E-mail", "email_invalid", "not an e-mail address", "a@b@c")
    whole = RowError(6, None, "ragged", "has 3 cells, not 4")
    result = ChunkResult(
        Counts(rows=10, inserted=1, updated=2, unchanged=3, duplicate=2, invalid=2),
        (ErrorGroup("E-mail", "email_invalid", 1), ErrorGroup(None, "ragged", 1)),
        (ErrorRow(5, (error,), ("Ann", "a@b@c")), ErrorRow(6, (whole,), ("x", "", "y"))),
        '{"changed": {"name": 2}}',
    )
    assert await end_chunk(store, import_id, 1, result) == ChunkEnd(ImportStatus.RUNNING, 1, 2, 2)
    chunk = (await other.chunks(import_id))[2]
    assert (chunk.index, chunk.status, chunk.counts) == (1, ChunkStatus.DONE, result.counts)
    assert (chunk.groups, chunk.notes, chunk.planned_rows) == (result.groups, result.notes, 10)
    assert near(chunk.finished_at, clock.now())
    assert (await other.import_errors(import_id, after_row=0, limit=10)).rows == list(result.errors)
    one = await found(other, import_id)
    assert (one.counts, one.error_count, one.progress) == (result.counts, 2, 54)
    assert near(one.updated_at, clock.now())


async def test_totals_are_sums_over_the_chunks_that_are_done(store: Store) -> None:
    import_id = await planned(store, 3)
    await end_chunk(store, import_id, 0, with_errors(2, 3))
    await end_chunk(store, import_id, 2, with_errors(25))
    one = await found(store, import_id)
    assert (one.counts, one.error_count) == (Counts(rows=20, inserted=17, invalid=3), 3)
    assert one.counts.balanced


async def test_errors_are_counted_by_their_groups_though_not_all_are_kept(store: Store) -> None:
    import_id = await planned(store)
    end_of_chunk = await end_chunk(store, import_id, 0, with_errors(2, 3, counted=5000))
    assert end_of_chunk is not None
    assert end_of_chunk.errors == 5000
    assert (await found(store, import_id)).error_count == 5000
    assert await error_rows(store, import_id) == [2, 3]


async def test_a_chunk_that_is_recorded_again_replaces_what_it_said(store: Store, clock: FakeClock) -> None:
    import_id = await planned(store)
    await end_chunk(store, import_id, 0, with_errors(2, 3, 4))
    await end_chunk(store, import_id, 1, with_errors(12))
    clock.advance(5)
    assert await end_chunk(store, import_id, 0, with_errors(4, 7)) == ChunkEnd(ImportStatus.RUNNING, 2, 2, 3)
    one = await found(store, import_id)
    assert (one.completed_chunks, one.counts, one.error_count) == (2, Counts(rows=20, inserted=17, invalid=3), 3)
    assert await error_rows(store, import_id) == [4, 7, 12]
    assert near((await store.chunks(import_id))[1].finished_at, clock.now())


async def test_a_chunk_that_is_recorded_again_without_errors_has_none(store: Store) -> None:
    import_id = await planned(store)
    await end_chunk(store, import_id, 0, with_errors(2, 3))
    await end_chunk(store, import_id, 0, CLEAN)
    assert await error_rows(store, import_id) == []
    assert (await found(store, import_id)).error_count == 0


async def test_what_the_finish_job_did_counts_but_is_none_of_the_total(store: Store) -> None:
    import_id = await loaded(store)
    finish = await queue_finish(store, import_id)
    for result in (with_errors(3), with_errors(5, 6)):
        assert await end_chunk(store, import_id, 2, result, finish) is not None
    one = await found(store, import_id)
    assert (one.total_chunks, one.completed_chunks, one.progress, one.error_count) == (2, 2, 99, 2)
    assert one.counts.rows == 30
    last = (await store.chunks(import_id))[-1]
    assert (last.index, last.status, last.job_id) == (2, ChunkStatus.DONE, finish)
    assert await error_rows(store, import_id) == [5, 6]


async def test_only_the_finish_job_speaks_for_itself(store: Store) -> None:
    import_id = await loaded(store)
    await queue_finish(store, import_id)
    before = await standing(store, import_id)
    assert await end_chunk(store, import_id, 2, CLEAN, (await chunk_jobs(store, import_id))[0]) is None
    assert await standing(store, import_id) == before


@pytest.mark.parametrize("index", [part_index(2, 0), -1, 3, 99])
async def test_a_chunk_that_was_not_planned_is_refused(store: Store, index: int) -> None:
    import_id = await planned(store, 2)
    before = await standing(store, import_id)
    with pytest.raises(ValueError, match="planned with 2"):
        await end_chunk(store, import_id, index)
    assert await standing(store, import_id) == before


@pytest.mark.parametrize("state", NOT_RUNNING)
async def test_no_chunk_is_recorded_unless_the_import_runs(store: Store, state: ImportStatus) -> None:
    import_id = await in_status(store, state)
    before = await standing(store, import_id)
    assert await end_chunk(store, import_id, 0, with_errors(2)) is None
    assert await standing(store, import_id) == before


async def test_no_chunk_is_recorded_before_the_plan(store: Store) -> None:
    import_id = await started(store)
    before = await standing(store, import_id)
    assert await end_chunk(store, import_id, 0) is None
    assert await standing(store, import_id) == before


async def test_a_chunk_in_a_transaction_that_raises_leaves_nothing(store: Store) -> None:
    import_id = await planned(store)
    await end_chunk(store, import_id, 0, with_errors(2, 3))
    before = await standing(store, import_id)
    with suppress(Interrupted):
        async with store.transaction() as transaction:
            await transaction.end_chunk(import_id, 0, with_errors(4))
            await transaction.end_chunk(import_id, 1, with_errors(14))
            raise Interrupted
    assert await standing(store, import_id) == before


async def test_the_chunks_of_an_import_are_its_own(store: Store) -> None:
    one, two = await planned(store), await planned(store)
    await end_chunk(store, one, 0, with_errors(2))
    assert await waiting(store, two) == [0, 1]
    assert await error_rows(store, two) == []
    assert (await found(store, two)).counts == Counts()


async def test_errors_may_hold_nul_and_any_character(store: Store) -> None:
    import_id = await planned(store)
    odd = "a\x00b\u2028 日本 '\"\\"
    row = ErrorRow(2, (RowError(2, odd, "bad", odd, odd),), (odd, ""))
    groups = (ErrorGroup(odd, "bad", 1),)
    await end_chunk(store, import_id, 0, ChunkResult(Counts(rows=1, invalid=1), groups, (row,)))
    assert (await store.import_errors(import_id, after_row=0, limit=1)).rows == [row]
    assert (await store.chunks(import_id))[1].groups == groups


async def test_what_utf_8_cannot_say_does_not_lose_the_chunk(store: Store) -> None:
    import_id = await planned(store)
    row = ErrorRow(2, (RowError(2, "name", "bad", "odd", "\ud800"),), ("\ud800", "x"))
    assert await end_chunk(store, import_id, 0, ChunkResult(Counts(rows=1, invalid=1), (), (row,))) is not None
    assert (await store.import_errors(import_id, after_row=0, limit=1)).rows[0].cells[1] == "x"


async def test_ten_thousand_errors_of_a_chunk_are_kept(store: Store) -> None:
    import_id = await planned(store)
    rows = range(2, 10_002)
    result = ChunkResult(
        Counts(rows=10_000, invalid=10_000), (ErrorGroup("email", "bad", 10_000),), [*map(bad_row, rows)]
    )
    await end_chunk(store, import_id, 0, result)
    assert await error_rows(store, import_id, limit=3_000) == list(rows)


# -- pages of errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7])
async def test_errors_are_paged_by_row_across_chunks(store: Store, limit: int) -> None:
    import_id = await planned(store, 3)
    await end_chunk(store, import_id, 2, with_errors(9, 4))
    await end_chunk(store, import_id, 0, with_errors(7, 1))
    await end_chunk(store, import_id, 1, with_errors(30, 2))
    assert await error_rows(store, import_id, limit) == [1, 2, 4, 7, 9, 30]


async def test_the_last_page_of_errors_says_so(store: Store) -> None:
    import_id = await planned(store)
    await end_chunk(store, import_id, 0, with_errors(1, 2, 3))
    assert (await store.import_errors(import_id, after_row=0, limit=2)).next_row == 2
    assert (await store.import_errors(import_id, after_row=0, limit=3)).next_row is None
    assert (await store.import_errors(import_id, after_row=3, limit=3)).rows == []


@pytest.mark.parametrize("limit", [1, 2, 9])
async def test_a_row_that_two_chunks_speak_of_is_told_once_with_all_that_they_say(store: Store, limit: int) -> None:
    import_id = await planned(store)
    for index, code in ((0, "first"), (1, "second")):
        result = ChunkResult(Counts(rows=2, invalid=2), (), (bad_row(5, code=code), bad_row(8 + index)))
        await end_chunk(store, import_id, index, result)
    assert await error_rows(store, import_id, limit) == [5, 8, 9]
    (row,) = (await store.import_errors(import_id, after_row=0, limit=1)).rows
    assert [error.code for error in row.errors] == ["first", "second"]


async def test_a_row_that_a_chunk_speaks_of_twice_is_kept_with_both(store: Store) -> None:
    import_id = await planned(store)
    result = ChunkResult(Counts(rows=1, invalid=1), (), (bad_row(5, code="first"), bad_row(5, code="second")))
    await end_chunk(store, import_id, 0, result)
    (row,) = (await store.import_errors(import_id, after_row=0, limit=10)).rows
    assert [error.code for error in row.errors] == ["first", "second"]


# -- at the same time --------------------------------------------------------------------------------


async def test_of_two_chunks_that_end_at_once_one_sees_that_all_are_done(store: Store, other: Store) -> None:
    for _ in range(ROUNDS):
        import_id = await planned(store, 2)
        began = [asyncio.Event(), asyncio.Event()]

        async def run(place: int, began: list[asyncio.Event] = began, import_id: str = import_id) -> ChunkEnd | None:
            began[place].set()
            await began[1 - place].wait()
            async with (store, other)[place].transaction() as transaction:
                return await transaction.end_chunk(import_id, place, CLEAN)

        ends = await asyncio.gather(run(0), run(1))
        assert sorted(one.completed for one in ends if one is not None) == [1, 2]


async def test_a_chunk_that_ends_waits_for_the_one_before_it_and_sees_it(store: Store, other: Store) -> None:
    import_id = await planned(store, 2)

    async def second() -> ChunkEnd | None:
        async with other.transaction() as transaction:
            return await transaction.end_chunk(import_id, 1, CLEAN)

    async with store.transaction() as transaction:
        first = await transaction.end_chunk(import_id, 0, CLEAN)
        task = asyncio.create_task(second())
        for _ in range(50):  # long enough for it to end if it did not wait
            assert (await found(store, import_id)).completed_chunks == 0
        assert not task.done()
    after = await task
    assert first is not None
    assert after is not None
    assert (first.completed, after.completed) == (1, 2)


async def test_of_many_chunks_that_end_at_once_one_enqueues_the_finish_job(store: Store, other: Store) -> None:
    chunks = 12
    import_id = await planned(store, chunks)
    seen: list[int] = []
    finish = import_job()

    async def run(index: int) -> None:
        async with (store, other)[index % 2].transaction() as transaction:
            ended = await transaction.end_chunk(import_id, index, with_errors(index + 2))
            assert ended is not None
            seen.append(ended.completed)
            if ended.completed == ended.total:
                await transaction.queue_finish(import_id, finish)

    await asyncio.gather(*map(run, range(chunks)))
    assert sorted(seen) == list(range(1, chunks + 1))
    assert await status(store, finish.id) is Status.QUEUED
    one = await found(store, import_id)
    assert (one.completed_chunks, one.error_count, one.counts.rows) == (chunks, chunks, 10 * chunks)


async def test_a_cancel_and_the_end_of_a_chunk_at_once_agree(store: Store, other: Store) -> None:
    for _ in range(ROUNDS):
        import_id = await planned(store, 2)
        ended, jobs = await asyncio.gather(end_chunk(store, import_id, 0), other.cancel_import(import_id))
        one = await found(store, import_id)
        assert jobs is not None
        assert one.status is ImportStatus.CANCELLED
        assert one.completed_chunks == (ended is not None)
        assert await waiting(store, import_id) == ([1] if ended else [0, 1])


async def test_a_plan_and_a_cancel_at_once_agree(store: Store, other: Store) -> None:
    for _ in range(ROUNDS):
        import_id = await started(store)
        was_planned, jobs = await asyncio.gather(plan_it(store, import_id, 3), other.cancel_import(import_id))
        assert jobs == [import_id, *await chunk_jobs(store, import_id)]
        assert len(jobs) == (4 if was_planned else 1)
        assert (await found(store, import_id)).total_chunks == (3 if was_planned else None)


async def test_two_plans_at_once_are_one(store: Store, other: Store) -> None:
    import_id = await started(store)

    async def run(each: Store, chunks: int) -> bool:
        async with each.transaction() as transaction:
            return await transaction.plan_import(import_id, plan(chunks), job_id=import_id)

    answers = await asyncio.gather(run(store, 2), run(other, 3))
    assert sorted(answers) == [False, True]
    assert (await found(store, import_id)).total_chunks == (2 if answers[0] else 3)
    assert len(await waiting(store, import_id)) == (2 if answers[0] else 3)


async def test_one_file_added_eight_times_at_once_is_one_import(store: Store, other: Store) -> None:
    for number in range(ROUNDS):
        answers = await asyncio.gather(*(add((store, other)[n % 2], sha256=f"file{number}") for n in range(8)))
        assert sum(answer.created for answer in answers) == 1
        (winner,) = {answer.record.id for answer in answers}
        assert await status(store, winner) is Status.QUEUED
    assert len(await ids(store)) == ROUNDS
    assert (await store.counts())[Status.QUEUED] == ROUNDS


async def test_of_two_ends_at_once_one_counts(store: Store, other: Store) -> None:
    for _ in range(ROUNDS):
        import_id = await loaded(store)
        ways = (ImportStatus.SUCCEEDED, ImportStatus.FAILED)
        answers = await asyncio.gather(
            *(end(each, import_id, way) for each, way in zip((store, other), ways, strict=True))
        )
        assert sorted(answers) == [False, True]
        assert (await found(store, import_id)).status is ways[answers.index(True)]


# -- chunks loaded in several transactions -------------------------------------------------------------


async def test_a_part_of_a_chunk_counts_once_and_only_while_the_chunk_waits(store: Store) -> None:
    import_id = await planned(store, 2)
    (first, second) = await chunk_jobs(store, import_id)
    part, rest = ChunkResult(Counts(rows=4, inserted=4)), ChunkResult(Counts(rows=6, updated=6))

    assert await end_chunk(store, import_id, part_index(1, 0), part, job_id=first) is None
    for _ in range(2):
        await end_chunk(store, import_id, part_index(1, 0), part, job_id=second)
    record = await found(store, import_id)
    assert (record.counts, record.completed_chunks) == (Counts(rows=4, inserted=4), 0)
    assert [chunk.counts.rows for chunk in await store.parts(import_id, 1)] == [4]
    assert await store.parts(import_id, 0) == []

    async with store.transaction() as transaction:
        assert await transaction.end_chunk(import_id, part_index(1, 1), rest, job_id=second) is not None
        assert await transaction.end_chunk(import_id, 1, ChunkResult(Counts()), job_id=second) is not None
    assert await end_chunk(store, import_id, part_index(1, 2), rest, job_id=second) is None
    record = await found(store, import_id)
    assert (record.counts, record.completed_chunks) == (Counts(rows=10, inserted=4, updated=6), 1)
    assert [chunk.index for chunk in await store.parts(import_id, 1)] == [part_index(1, 0), part_index(1, 1)]
    with pytest.raises(ValueError, match="no chunk"):
        await end_chunk(store, import_id, part_index(2, 0), part)
