"""List, get, count: finding jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from conformance.builders import (
    EVERYTHING,
    counted,
    listed,
    new_jobs,
    put,
    put_and_end,
    put_and_take,
    put_many,
    record,
    status,
)
from rowlock.clock import FakeClock
from rowlock.ids import first_id, uuid7
from rowlock.storage.contract import Store
from rowlock.storage.records import JobFilter, Outcome, Status


async def test_an_empty_store_lists_nothing(store: Store) -> None:
    page = await store.page(EVERYTHING, 10)
    assert (page.jobs, page.next_cursor) == ([], None)


async def test_the_newest_comes_first(store: Store, clock: FakeClock) -> None:
    jobs = []
    for _ in range(4):
        jobs.append(await put(store))
        clock.advance(1)
    assert await listed(store) == jobs[::-1]


async def test_jobs_of_every_status_are_listed_together_in_order(store: Store, clock: FakeClock) -> None:
    jobs = [await put_and_end(store, outcome) for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED)]
    jobs.append((await put_and_take(store)).id)
    jobs.append(await put(store))
    jobs.append(await put(store, delay_seconds=60))
    assert await listed(store) == jobs[::-1]
    assert await listed(store, page=2) == jobs[::-1]


async def test_a_listed_job_is_the_whole_record(store: Store) -> None:
    await put_and_take(store, company_id="acme", queue="q", unique=None)
    await put_and_end(store, Outcome.FAILED, company_id="acme")
    await put(store, trace="00-a-b-01", delay_seconds=5)
    for job in (await store.page(EVERYTHING, 10)).jobs:
        assert job == await record(store, job.id)


@pytest.mark.parametrize("wanted", list(Status))
async def test_jobs_are_found_by_status(store: Store, wanted: Status) -> None:
    jobs = {
        Status.SUCCEEDED: [await put_and_end(store, Outcome.SUCCEEDED)],
        Status.FAILED: [await put_and_end(store, Outcome.FAILED)],
        Status.CANCELLED: [await put_and_end(store, Outcome.CANCELLED)],
        Status.PROCESSING: [(await put_and_take(store)).id],
        Status.QUEUED: [await put(store, delay_seconds=60), await put(store)],
    }
    assert await listed(store, JobFilter(status=wanted)) == jobs[wanted][::-1]
    assert await store.count(JobFilter(status=wanted), 10) == len(jobs[wanted])


@pytest.mark.parametrize("wanted", [*Status, None])
@pytest.mark.parametrize("company", ["acme", None])
async def test_jobs_of_every_status_are_found_by_how_their_type_begins(
    store: Store, wanted: Status | None, company: str | None
) -> None:
    found = []
    for name in ("crm.a", "crm", "CRM.a", "crm%a", "crm_a", "crmx", "mail.crm.a", "crm.%_*b"):
        jobs = {
            Status.SUCCEEDED: await put_and_end(store, Outcome.SUCCEEDED, type=name, company_id="acme"),
            Status.FAILED: await put_and_end(store, Outcome.FAILED, type=name, company_id="acme"),
            Status.CANCELLED: await put_and_end(store, Outcome.CANCELLED, type=name, company_id="acme"),
            Status.PROCESSING: (await put_and_take(store, type=name, company_id="acme")).id,
            Status.QUEUED: await put(store, type=name, company_id="acme", delay_seconds=60),
        }
        if name.startswith("crm."):
            found += [job for status, job in jobs.items() if wanted in (None, status)]
    where = JobFilter(wanted, company_id=company, type_prefix="crm.")
    assert await listed(store, where, page=3) == found[::-1]
    assert await store.count(where, 100) == len(found)
    assert await listed(store, replace(where, ids=found[1:])) == found[:0:-1]


@pytest.mark.parametrize(
    "where",
    [
        *(JobFilter(type="b"), JobFilter(queue="b"), JobFilter(company_id="b"), JobFilter(type="b", queue="b")),
        JobFilter(type_prefix="b"),
    ],
    ids=["type", "queue", "company", "both", "prefix"],
)
async def test_jobs_are_found_by_their_fields(store: Store, where: JobFilter) -> None:
    await put(store, type="a", queue="a", company_id="a")
    await put(store, type="a", queue="a")
    found = [await put(store, type="b", queue="b", company_id="b") for _ in range(3)]
    assert await listed(store, where, page=2) == found[::-1]
    assert await store.count(where, 10) == 3


async def test_filters_narrow_each_other(store: Store) -> None:
    await put_and_end(store, Outcome.FAILED, type="a")
    await put(store, type="a")
    one = await put_and_end(store, Outcome.FAILED, type="a", queue="q", company_id="c")
    where = JobFilter(status=Status.FAILED, type="a", queue="q", company_id="c", ids=[one])
    assert await listed(store, where) == [one]
    assert await listed(store, JobFilter(status=Status.QUEUED, ids=[one])) == []


async def test_jobs_are_found_by_ids(store: Store) -> None:
    jobs = await put_many(store, 5)
    assert await listed(store, JobFilter(ids=[jobs[3], jobs[1], uuid7(), "not-a-uuid"])) == [jobs[3], jobs[1]]


async def test_no_ids_match_no_jobs(store: Store) -> None:
    await put(store)
    assert await listed(store, JobFilter(ids=[])) == []
    assert await store.count(JobFilter(ids=[]), 10) == 0


@pytest.mark.parametrize(
    "where",
    [
        JobFilter(type="nobody's"),
        JobFilter(queue="nobody's"),
        JobFilter(company_id="nobody's"),
        JobFilter(ids=["nobody's"]),
        JobFilter(status=Status.FAILED),
        JobFilter(type="%"),
        JobFilter(queue="' OR 1=1 --"),
    ],
)
async def test_a_filter_may_match_nothing(store: Store, where: JobFilter) -> None:
    await put(store)
    page = await store.page(where, 10)
    assert (page.jobs, page.next_cursor) == ([], None)
    assert await store.count(where, 10) == 0


async def test_a_page_has_no_more_than_asked(store: Store) -> None:
    jobs = await put_many(store, 5)
    page = await store.page(EVERYTHING, 2)
    assert [job.id for job in page.jobs] == jobs[:-3:-1]
    assert page.next_cursor is not None


@pytest.mark.parametrize("page", [1, 2, 3, 6, 7])
async def test_pages_join_without_gap_or_overlap(store: Store, page: int) -> None:
    jobs = await put_many(store, 6)
    assert await listed(store, page=page) == jobs[::-1]


async def test_the_last_page_has_no_cursor(store: Store) -> None:
    await put_many(store, 3)
    assert (await store.page(EVERYTHING, 10)).next_cursor is None
    assert (await store.page(EVERYTHING, 4)).next_cursor is None


async def test_jobs_added_meanwhile_do_not_move_the_next_page(store: Store, clock: FakeClock) -> None:
    jobs = await put_many(store, 6)
    first = await store.page(EVERYTHING, 3)
    clock.advance(1)
    await put_many(store, 4)
    second = await store.page(EVERYTHING, 3, first.next_cursor)
    assert [job.id for job in [*first.jobs, *second.jobs]] == jobs[::-1]


async def test_jobs_that_change_meanwhile_do_not_move_the_next_page(store: Store) -> None:
    jobs = await put_many(store, 6)
    first = await store.page(EVERYTHING, 3)
    await store.claim("default", uuid7(), 4)
    await store.cancel(jobs[4])
    second = await store.page(EVERYTHING, 3, first.next_cursor)
    assert [job.id for job in second.jobs] == jobs[2::-1]


async def test_a_cursor_outlives_the_job_that_it_came_from(store: Store) -> None:
    jobs = [await put_and_end(store, Outcome.FAILED) for _ in range(4)]
    first = await store.page(EVERYTHING, 2)
    await store.discard(JobFilter(ids=[job.id for job in first.jobs]), 10)
    second = await store.page(EVERYTHING, 2, first.next_cursor)
    assert [job.id for job in second.jobs] == jobs[1::-1]


async def test_a_cursor_goes_on_in_another_process(store: Store, other: Store) -> None:
    jobs = await put_many(store, 4)
    first = await store.page(EVERYTHING, 2)
    second = await other.page(EVERYTHING, 2, first.next_cursor)
    assert [job.id for job in second.jobs] == jobs[1::-1]


@pytest.mark.parametrize("cursor", ["garbage", "", "0", "seq-1", "' OR 1=1 --", "日本", "e30=", "a" * 5_000, "\x00"])
async def test_a_cursor_that_no_page_gave_is_refused(store: Store, cursor: str) -> None:
    await put(store)
    with pytest.raises(ValueError, match="cursor"):
        await store.page(EVERYTHING, 10, cursor)


async def test_count_goes_no_further_than_asked(store: Store) -> None:
    await put_many(store, 7)
    assert await store.count(EVERYTHING, 5) == 5
    assert await store.count(EVERYTHING, 7) == 7
    assert await store.count(EVERYTHING, 100) == 7


async def test_count_sees_every_status(store: Store) -> None:
    await put_and_end(store)
    await put_and_take(store)
    await put(store)
    await put(store, delay_seconds=60)
    assert await store.count(EVERYTHING, 100) == 4


async def test_counts_tell_how_many_jobs_each_status_has(store: Store) -> None:
    for outcome, number in ((Outcome.SUCCEEDED, 3), (Outcome.FAILED, 2), (Outcome.CANCELLED, 1)):
        for _ in range(number):
            await put_and_end(store, outcome)
    await put_and_take(store)
    await store.enqueue([*new_jobs(2), *new_jobs(2, delay_seconds=60)])
    assert await store.counts() == {
        Status.QUEUED: 4,
        Status.PROCESSING: 1,
        Status.SUCCEEDED: 3,
        Status.FAILED: 2,
        Status.CANCELLED: 1,
    }


async def test_counts_of_an_empty_store_are_zero_for_every_status(store: Store) -> None:
    assert await store.counts() == dict.fromkeys(Status, 0)


async def test_counts_forget_what_was_discarded(store: Store) -> None:
    await put_and_end(store, Outcome.FAILED)
    await store.discard(EVERYTHING, 10)
    assert await counted(store) == {}


async def test_times_are_in_utc(store: Store) -> None:
    found = await record(store, await put_and_end(store))
    moments = (found.created_at, found.available_at, found.updated_at, found.started_at, found.finished_at)
    assert {moment.tzinfo for moment in moments if moment is not None} == {UTC}
    assert None not in moments


async def test_an_id_is_found_in_upper_case_too_or_not_at_all(store: Store) -> None:
    job_id = await put(store)
    found = await store.get(job_id.upper())
    assert found is None or found.id == job_id
    assert await status(store, job_id) is Status.QUEUED


@pytest.mark.parametrize("wanted", list(Status))
async def test_a_companys_jobs_are_found_by_status(store: Store, wanted: Status) -> None:
    async def each(**changes: str) -> dict[Status, list[str]]:
        return {
            Status.SUCCEEDED: [await put_and_end(store, Outcome.SUCCEEDED, **changes)],
            Status.FAILED: [await put_and_end(store, Outcome.FAILED, **changes)],
            Status.CANCELLED: [await put_and_end(store, Outcome.CANCELLED, **changes)],
            Status.PROCESSING: [(await put_and_take(store, **changes)).id],
            Status.QUEUED: [
                await put(store, delay_seconds=60, **changes),
                await put(store, priority=200, **changes),
                await put(store, priority=200, limit_key="api", **changes),
            ],
        }

    await each(company_id="other")
    jobs = await each(company_id="acme")
    await each()
    where = JobFilter(status=wanted, company_id="acme")
    assert await listed(store, where) == jobs[wanted][::-1]
    assert await listed(store, where, page=1) == jobs[wanted][::-1]
    assert await store.count(where, 10) == len(jobs[wanted])
    assert await store.count(where, 1) == 1
    assert await store.count(JobFilter(company_id="acme"), 10) == 7
    assert await store.count(JobFilter(status=wanted, company_id="nobody"), 10) == 0


@pytest.mark.parametrize("wanted", [None, Status.QUEUED, Status.SUCCEEDED, Status.FAILED])
async def test_a_companys_jobs_are_found_by_their_other_fields_too(store: Store, wanted: Status | None) -> None:
    outcomes = {Status.SUCCEEDED: Outcome.SUCCEEDED, Status.FAILED: Outcome.FAILED}

    async def add(**changes: str) -> str:
        if wanted in outcomes:
            return await put_and_end(store, outcomes[wanted], company_id="acme", **changes)
        return await put(store, company_id="acme", **changes)

    await add(type="a", queue="q")
    found = await add(type="b", queue="q")
    await add(type="b", queue="other")
    where = JobFilter(status=wanted, type="b", queue="q", company_id="acme")
    assert await listed(store, where) == [found]
    assert await store.count(where, 10) == 1


async def test_dead_jobs_of_one_company_are_retried_and_discarded_alone(store: Store) -> None:
    for company_id in ("acme", "other"):
        for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED):
            await put_and_end(store, outcome, company_id=company_id)
    assert len((await store.retry(JobFilter(status=Status.FAILED, company_id="acme"), 10)).retried) == 1
    assert len(await store.discard(JobFilter(company_id="acme"), 10)) == 1
    assert await counted(store) == {
        Status.QUEUED: 1,
        Status.SUCCEEDED: 2,
        Status.FAILED: 1,
        Status.CANCELLED: 1,
    }


async def test_jobs_found_by_ids_are_counted_up_to_what_was_asked(store: Store) -> None:
    jobs = await put_many(store, 5, type="a")
    where = JobFilter(type="a", ids=[*jobs[1:], uuid7(), "not-a-uuid"])
    assert await store.count(where, 10) == 4
    assert await store.count(where, 3) == 3
    assert await store.count(JobFilter(status=Status.FAILED, ids=jobs), 10) == 0


@pytest.mark.parametrize("where", [EVERYTHING, JobFilter(company_id="acme"), JobFilter(status=Status.QUEUED)])
async def test_a_cursor_is_the_last_job_seen_and_tells_nothing_of_others(store: Store, where: JobFilter) -> None:
    await put_many(store, 5, company_id="other", queue="elsewhere")
    jobs = await put_many(store, 4, company_id="acme")
    page = await store.page(where, 2)
    assert page.next_cursor == jobs[2] == page.jobs[-1].id


async def test_a_cursor_whose_job_was_removed_goes_on_at_the_next_older(store: Store) -> None:
    jobs = [await put_and_end(store, Outcome.FAILED) for _ in range(6)]
    for gone, rest in ((4, [3, 2, 1, 0]), (3, [2, 1, 0]), (0, []), (5, [2, 1])):
        await store.discard(JobFilter(ids=[jobs[gone]]), 1)
        page = await store.page(EVERYTHING, 10, jobs[gone])
        assert [job.id for job in page.jobs] == [jobs[place] for place in rest]


async def test_a_cursor_in_upper_case_is_the_same(store: Store) -> None:
    jobs = await put_many(store, 3)
    page = await store.page(EVERYTHING, 10, jobs[1].upper())
    assert [job.id for job in page.jobs] == [jobs[0]]


# -- by time -----------------------------------------------------------------------------------------

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def id_of(moment: datetime) -> str:
    """Return an id of this millisecond."""
    return first_id(moment)[:14] + uuid7()[14:]


@pytest.mark.parametrize("company_id", [None, "acme"])
@pytest.mark.parametrize("wanted", [None, *Status])
async def test_jobs_are_found_by_when_they_were_enqueued(
    store: Store, wanted: Status | None, company_id: str | None
) -> None:
    jobs = []
    for number in range(6):
        new = {"id": id_of(NOON + number * SECOND), "company_id": "acme"}
        match wanted:
            case None | Status.QUEUED:
                jobs.append(await put(store, **new, delay_seconds=60 * (number % 2)))
            case Status.PROCESSING:
                jobs.append((await put_and_take(store, **new)).id)
            case final:
                jobs.append(await put_and_end(store, Outcome[final.name], **new))
    where = JobFilter(wanted, company_id=company_id)
    for since, until in ((2, None), (None, 4), (2, 4), (3, 3), (0, 6), (7, None), (None, 0)):
        narrowed = replace(
            where,
            since=None if since is None else NOON + since * SECOND,
            until=None if until is None else NOON + until * SECOND,
        )
        expected = jobs[since or 0 : until][::-1]
        assert await listed(store, narrowed) == expected
        assert await listed(store, narrowed, page=1) == expected
        assert await store.count(narrowed, 10) == len(expected)
        assert await listed(store, replace(narrowed, ids=jobs[1:])) == [job for job in expected if job != jobs[0]]


async def test_a_time_is_inclusive_at_its_beginning_and_exclusive_at_its_end(store: Store) -> None:
    job_id = await put(store, id=id_of(NOON))
    millisecond = timedelta(milliseconds=1)
    assert await listed(store, JobFilter(since=NOON, until=NOON + millisecond)) == [job_id]
    assert await listed(store, JobFilter(until=NOON)) == []
    assert await listed(store, JobFilter(since=NOON + millisecond)) == []


@pytest.mark.parametrize("year", [1, 1969, 9999])
async def test_any_time_may_be_asked_for(store: Store, year: int) -> None:
    job_id = await put(store)
    moment = datetime(year, 1, 2, tzinfo=UTC)
    assert await listed(store, JobFilter(since=moment)) == ([job_id] if year < 2000 else [])
    assert await listed(store, JobFilter(until=moment)) == ([] if year < 2000 else [job_id])


async def test_dead_jobs_of_some_time_are_retried_and_discarded_alone(store: Store) -> None:
    jobs = [await put_and_end(store, Outcome.FAILED, id=id_of(NOON + number * SECOND)) for number in range(4)]
    assert (await store.retry(JobFilter(Status.FAILED, until=NOON + SECOND), 10)).retried == jobs[:1]
    assert await store.discard(JobFilter(Status.FAILED, since=NOON + 3 * SECOND), 10) == jobs[3:]
    assert await listed(store, JobFilter(Status.FAILED)) == jobs[1:3][::-1]
