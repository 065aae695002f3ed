"""Counts and failures of some queues, for all companies and for one."""

from __future__ import annotations

import pytest

from conformance.builders import (
    ANN,
    kept,
    put,
    put_and_end,
    put_and_fail,
    put_and_take,
    put_many,
    settle,
    take,
    taken,
)
from rowlock.clock import FakeClock
from rowlock.storage.calls import SyncCounts
from rowlock.storage.contract import Store
from rowlock.storage.records import JobFilter, Outcome, Status

NOTHING = SyncCounts(0, 0, 0, 0, 0, None, None)
QUEUES = ["sync", "sync.batch"]
COMPANY = "acme"
WHOSE = pytest.mark.parametrize("company_id", [None, COMPANY], ids=["all", "company"])


async def make_some(store: Store, clock: FakeClock, company_id: str | None) -> None:
    """Create some jobs in each state."""
    of = {"company_id": company_id, "limit_key": "sync"}
    for queue in ("sync", "sync.batch"):
        await put_and_fail(store, queue=queue, **of)
        await put_and_end(store, Outcome.CANCELLED, queue=queue, **of)
        for seconds in (1, 2, 3):
            claimed = await put_and_take(store, queue=queue, **of)
            await settle(store, claimed, queue=queue, seconds=seconds)
        await put_and_fail(store, Outcome.RETRY, queue=queue, delay_seconds=60, **of)
        await put_and_fail(store, Outcome.RETRY, queue=queue, **of)
        await store.claim(queue, ANN, 1)
        await put_and_fail(store, Outcome.RETRY, queue=queue, **of)
        clock.advance(10)
        await put_many(store, 2, queue=queue, **of)
        await put(store, queue=queue, delay_seconds=3_600, **of)


@WHOSE
async def test_a_store_without_jobs_counts_nothing(store: Store, company_id: str | None) -> None:
    assert await store.sync_counts(QUEUES, company_id) == NOTHING
    assert await store.sync_counts([], company_id) == NOTHING


@WHOSE
async def test_each_job_counts_where_it_stands(store: Store, clock: FakeClock, company_id: str | None) -> None:
    await make_some(store, clock, company_id)
    clock.advance(5)
    found = await store.sync_counts(QUEUES, company_id)
    counts = (found.pending, found.processing, found.retrying, found.dead, found.completed_24h)
    assert counts == (6, 2, 4, 2, 6)
    assert found.lag_seconds == pytest.approx(25, abs=0.01)
    one = await store.sync_counts(["sync"], company_id)
    assert (one.pending, one.processing, one.retrying, one.dead, one.completed_24h) == (3, 1, 2, 1, 3)


@WHOSE
async def test_other_queues_and_companies_do_not_count(store: Store, clock: FakeClock, company_id: str | None) -> None:
    await put_and_fail(store, company_id=company_id)
    await put_and_end(store, company_id=company_id)
    await put(store, company_id=company_id)
    await put(store, queue="sync", company_id="another")
    expected = NOTHING if company_id else SyncCounts(1, 0, 0, 0, 0, None, 0.0)
    assert await store.sync_counts(["sync"], company_id) == expected


async def test_the_mean_is_that_of_jobs_that_succeeded(store: Store, clock: FakeClock) -> None:
    await settle(store, await put_and_take(store, queue="sync", company_id=COMPANY), queue="sync", seconds=50.0)
    clock.advance(hours=25)
    await settle(store, await put_and_take(store, company_id=COMPANY), seconds=70.0)
    for seconds, outcome in ((1.0, Outcome.SUCCEEDED), (3.0, Outcome.SUCCEEDED), (5.0, None), (9.0, Outcome.CANCELLED)):
        if outcome is None:  # all jobs so far have succeeded
            for company_id in (None, COMPANY):
                assert (await store.sync_counts(["sync"], company_id)).mean_ms == pytest.approx(2_000)
        outcome = outcome or Outcome.FAILED
        claimed = await put_and_take(store, queue="sync", company_id=COMPANY)
        failure = kept(claimed) if outcome is Outcome.FAILED else None
        await settle(store, claimed, outcome, queue="sync", seconds=seconds, failure=failure)
    for company_id in (None, COMPANY):
        found = await store.sync_counts(["sync"], company_id)
        assert found.mean_ms == pytest.approx(2_000)


@WHOSE
async def test_what_was_completed_before_yesterday_is_not_counted(
    store: Store, clock: FakeClock, company_id: str | None
) -> None:
    await put_and_end(store, queue="sync", company_id=company_id)
    clock.advance(hours=25)
    assert await store.sync_counts(["sync"], company_id) == NOTHING
    await put_and_end(store, queue="sync", company_id=company_id)
    assert (await store.sync_counts(["sync"], company_id)).completed_24h == 1


@WHOSE
async def test_a_job_that_was_given_back_is_not_one_that_failed(store: Store, company_id: str | None) -> None:
    claimed = await put_and_take(store, queue="sync", company_id=company_id)
    await settle(store, claimed, Outcome.RELEASE, queue="sync", delay_seconds=5)
    found = await store.sync_counts(["sync"], company_id)
    assert (found.pending, found.retrying) == (1, 0)
    assert await store.failing(["sync"], 10, company_id) == []


@WHOSE
async def test_failing_jobs_come_the_latest_failure_first(
    store: Store, clock: FakeClock, company_id: str | None
) -> None:
    of = {"company_id": company_id}
    failed = []
    for queue, outcome in (("sync", Outcome.FAILED), ("sync.batch", Outcome.RETRY), ("sync", Outcome.RETRY)):
        failed.append((await put_and_fail(store, outcome, f"no {queue}", queue=queue, delay_seconds=60, **of)).job_id)
        clock.advance(1)
    found = await store.failing(QUEUES, 10, company_id)
    assert [job.id for job in found] == failed[::-1]
    assert [job.status for job in found] == [Status.QUEUED, Status.QUEUED, Status.FAILED]
    assert [job.error for job in found] == ["no sync", "no sync.batch", "no sync"]
    assert [job.id for job in await store.failing(QUEUES, 2, company_id)] == failed[:0:-1]
    assert [job.id for job in await store.failing(["sync.batch"], 2, company_id)] == [failed[1]]
    assert await store.failing(QUEUES, 0, company_id) == []
    assert await store.failing([], 5, company_id) == []


@WHOSE
async def test_a_job_that_failed_more_than_once_is_listed_once_by_its_last(
    store: Store, clock: FakeClock, company_id: str | None
) -> None:
    of = {"company_id": company_id, "queue": "sync"}
    first = (await put_and_fail(store, Outcome.RETRY, **of)).job_id
    clock.advance(1)
    second = (await put_and_fail(store, Outcome.RETRY, delay_seconds=60, **of, priority=1)).job_id
    clock.advance(1)
    claimed = await take(store, queue="sync")
    assert claimed.id == first
    await settle(store, claimed, Outcome.RETRY, queue="sync", error="again", failure=kept(claimed), delay_seconds=60)
    found = await store.failing(["sync"], 10, company_id)
    assert [(job.id, job.attempts, job.error) for job in found] == [(first, 2, "again"), (second, 1, "ValueError: no")]


@WHOSE
async def test_a_job_that_came_through_is_not_failing(store: Store, clock: FakeClock, company_id: str | None) -> None:
    of = {"company_id": company_id, "queue": "sync"}
    again = (await put_and_fail(store, Outcome.RETRY, **of)).job_id
    claimed = await take(store, queue="sync")
    assert claimed.id == again
    assert await store.failing(["sync"], 10, company_id) == []  # it runs
    await settle(store, claimed, queue="sync")
    dead, removed = [(await put_and_fail(store, **of)).job_id for _ in range(2)]
    await store.retry(JobFilter(ids=[dead]), 1)
    await store.discard(JobFilter(ids=[removed]), 1)
    assert await store.failing(["sync"], 10, company_id) == []
    assert await taken(store, queue="sync") == [dead]


async def test_failures_of_other_companies_are_not_told(store: Store) -> None:
    await put_and_fail(store, queue="sync", company_id="another")
    await put_and_fail(store, queue="sync")
    assert await store.failing(["sync"], 10, COMPANY) == []
    assert len(await store.failing(["sync"], 10)) == 2
