"""Retry and discard dead letters."""

from __future__ import annotations

import pytest

from conformance.builders import (
    EVERYTHING,
    near,
    put,
    put_and_end,
    put_and_take,
    record,
    settle,
    status,
    take,
    taken,
)
from rowlock.clock import FakeClock
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.storage.records import LEASES_PER_RETRY, JobFilter, JobId, Outcome, Status

DEAD = [Outcome.FAILED, Outcome.CANCELLED, Outcome.FATAL]


async def one_of_each(store: Store) -> dict[str, JobId]:
    """Create a job of every status, each in its own queue."""
    return {
        "failed": await put_and_end(store, Outcome.FAILED, queue="1"),
        "cancelled": await put_and_end(store, Outcome.CANCELLED, queue="2"),
        "succeeded": await put_and_end(store, Outcome.SUCCEEDED, queue="3"),
        "processing": (await put_and_take(store, queue="4")).id,
        "queued": await put(store, queue="5"),
        "delayed": await put(store, queue="6", delay_seconds=60),
    }


@pytest.mark.parametrize("outcome", DEAD)
async def test_a_retried_job_is_available_with_its_attempts_counted_anew(
    store: Store, clock: FakeClock, outcome: Outcome
) -> None:
    claimed = await put_and_take(store, max_attempts=3)
    await settle(store, claimed, Outcome.CRASH)
    await settle(store, await take(store), outcome, error="boom")
    clock.advance(60)
    answer = await store.retry(EVERYTHING, 10)
    assert (answer.retried, answer.conflicts) == ([claimed.id], [])
    found = await record(store, claimed.id)
    assert (found.status, found.attempts, found.deaths, found.lease) == (Status.QUEUED, 0, 0, LEASES_PER_RETRY)
    assert (found.finished_at, found.result) == (None, None)
    again = await take(store)
    assert (again.attempt, again.deaths, again.lease) == (1, 0, LEASES_PER_RETRY + 1)


async def test_only_failed_and_cancelled_jobs_are_retried(store: Store) -> None:
    jobs = await one_of_each(store)
    answer = await store.retry(EVERYTHING, 100)
    assert sorted(answer.retried) == sorted([jobs["failed"], jobs["cancelled"]])
    assert await status(store, jobs["succeeded"]) is Status.SUCCEEDED
    assert await status(store, jobs["processing"]) is Status.PROCESSING


async def test_only_failed_and_cancelled_jobs_are_discarded(store: Store) -> None:
    jobs = await one_of_each(store)
    assert sorted(await store.discard(EVERYTHING, 100)) == sorted([jobs["failed"], jobs["cancelled"]])
    left = [name for name, job_id in jobs.items() if await store.get(job_id)]
    assert left == ["succeeded", "processing", "queued", "delayed"]


@pytest.mark.parametrize("name", ["succeeded", "processing", "queued", "delayed"])
async def test_naming_a_job_that_is_not_dead_does_nothing(store: Store, name: str) -> None:
    jobs = await one_of_each(store)
    before = await record(store, jobs[name])
    where = JobFilter(ids=[jobs[name]])
    answer = await store.retry(where, 10)
    assert (answer.retried, answer.conflicts) == ([], [])
    assert await store.discard(where, 10) == []
    assert await record(store, jobs[name]) == before


@pytest.mark.parametrize("wanted", [Status.QUEUED, Status.PROCESSING, Status.SUCCEEDED])
async def test_a_filter_for_a_status_that_is_not_dead_matches_nothing(store: Store, wanted: Status) -> None:
    await one_of_each(store)
    where = JobFilter(status=wanted)
    assert (await store.retry(where, 10)).retried == []
    assert await store.discard(where, 10) == []
    assert await store.count(EVERYTHING, 10) == 6


@pytest.mark.parametrize(
    "where",
    [
        JobFilter(status=Status.CANCELLED),
        JobFilter(type="b"),
        JobFilter(queue="b"),
        JobFilter(company_id="b"),
        JobFilter(status=Status.CANCELLED, type="b", queue="b", company_id="b"),
    ],
)
async def test_retry_and_discard_obey_their_filter(store: Store, where: JobFilter) -> None:
    await put_and_end(store, Outcome.FAILED, type="a", queue="a", company_id="a")
    one = await put_and_end(store, Outcome.CANCELLED, type="b", queue="b", company_id="b")
    assert (await store.retry(where, 10)).retried == [one]
    await settle(store, await take(store, queue="b"), Outcome.CANCELLED)
    assert await store.discard(where, 10) == [one]
    assert await store.count(EVERYTHING, 10) == 1


async def test_retry_takes_no_more_than_its_limit(store: Store) -> None:
    for _ in range(5):
        await put_and_end(store, Outcome.FAILED)
    rounds = []
    for number in range(4):
        rounds.append(len((await store.retry(EVERYTHING, 2)).retried))
        assert len(await taken(store)) == rounds[number]
    assert rounds == [2, 2, 1, 0]


async def test_discard_takes_no_more_than_its_limit(store: Store) -> None:
    for _ in range(5):
        await put_and_end(store, Outcome.FAILED)
    assert [len(await store.discard(EVERYTHING, 2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_retry_and_discard_of_unknown_ids_do_nothing(store: Store) -> None:
    kept = await put_and_end(store, Outcome.FAILED)
    for unknown in ([], [uuid7()], ["not-a-uuid", ""]):
        where = JobFilter(ids=unknown)
        assert (await store.retry(where, 10)).retried == []
        assert await store.discard(where, 10) == []
    assert await status(store, kept) is Status.FAILED


async def test_known_and_unknown_ids_may_be_mixed(store: Store) -> None:
    job_id = await put_and_end(store, Outcome.FAILED)
    where = JobFilter(ids=["not-a-uuid", job_id, uuid7(), job_id])
    assert (await store.retry(where, 10)).retried == [job_id]


async def test_a_discarded_job_is_gone(store: Store) -> None:
    job_id = await put_and_end(store, Outcome.FAILED)
    assert await store.discard(JobFilter(ids=[job_id]), 1) == [job_id]
    assert await store.get(job_id) is None
    assert await store.count(EVERYTHING, 10) == 0
    assert await store.discard(JobFilter(ids=[job_id]), 1) == []


async def test_a_retried_job_keeps_what_it_was_given(store: Store, clock: FakeClock) -> None:
    job_id = await put_and_end(store, Outcome.FAILED, company_id="acme", priority=4, trace="00-a-b-01")
    before = await record(store, job_id)
    clock.advance(60)
    await store.retry(EVERYTHING, 1)
    after = await record(store, job_id)
    assert (after.payload, after.priority, after.company_id, after.trace, after.created_at) == (
        before.payload,
        before.priority,
        before.company_id,
        before.trace,
        before.created_at,
    )


async def test_a_retried_job_may_fail_and_be_retried_again(store: Store) -> None:
    job_id = await put_and_end(store, Outcome.FAILED)
    for retries in (1, 2, 3):
        assert (await store.retry(EVERYTHING, 1)).retried == [job_id]
        claimed = await take(store)
        assert (claimed.attempt, claimed.lease) == (1, retries * LEASES_PER_RETRY + 1)
        await settle(store, claimed, Outcome.FAILED)


async def test_the_releases_of_a_job_are_counted_anew_by_a_retry(store: Store) -> None:
    claimed = await put_and_take(store, max_attempts=2)
    for releases in (0, 1, 2):
        assert claimed.releases == releases
        await settle(store, claimed, Outcome.RELEASE)
        claimed = await take(store)
    await settle(store, claimed, Outcome.RETRY)
    claimed = await take(store)
    assert (claimed.attempt, claimed.releases) == (2, 3)
    await settle(store, claimed, Outcome.FAILED)
    await store.retry(EVERYTHING, 1)
    for releases in (0, 1):
        claimed = await take(store)
        assert (claimed.attempt, claimed.releases) == (1, releases)
        await settle(store, claimed, Outcome.RELEASE)


async def test_a_job_that_was_cancelled_before_it_ran_can_be_retried(store: Store, clock: FakeClock) -> None:
    job_id = await put(store, delay_seconds=600)
    await store.cancel(job_id)
    await store.retry(EVERYTHING, 1)
    claimed = await take(store)
    assert (claimed.id, claimed.attempt, claimed.lease) == (job_id, 1, 1)


async def test_a_retried_job_is_available_now(store: Store, clock: FakeClock) -> None:
    job_id = await put_and_end(store, Outcome.FAILED)
    clock.advance(hours=1)
    await store.retry(EVERYTHING, 1)
    found = await record(store, job_id)
    assert found.available_at <= clock.now()
    assert near(found.updated_at, clock.now())


async def test_the_dead_are_retried_and_discarded_by_how_their_type_begins(store: Store) -> None:
    crm = [await put_and_end(store, Outcome.FAILED, type=name, queue=name) for name in ("crm.a", "crm.b")]
    other = await put_and_end(store, Outcome.FAILED, type="crmx.a", queue="crmx")
    where = JobFilter(Status.FAILED, type_prefix="crm.")
    assert (await store.retry(where, 1)).retried == crm[1:]
    assert await store.discard(where, 10) == crm[:1]
    assert await status(store, crm[1]) is Status.QUEUED
    assert await status(store, other) is Status.FAILED
