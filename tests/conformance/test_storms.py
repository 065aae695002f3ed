"""Storms: identical failures are counted in one record, in the settlement's statement."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from conformance.builders import ANN, BEN, end, failures, put_many, take
from rowlock.clock import FakeClock
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.storage.records import Claimed, Failed, JobId, Outcome, Settlement
from rowlock.storage.reliability import FailureFilter, FailureRecord

REASON = "ConnectionError: no route to host"


def retried(jobs: Sequence[Claimed], failure_id: str, outcome: Outcome = Outcome.RETRY) -> list[Settlement]:
    """Return settlements with failures of these jobs, counted in one record."""
    failed = Failed(failure_id, '{"n": 1}', "Traceback", counted=True)
    return [end(job, outcome, error=REASON, seconds=0.5, failure=failed) for job in jobs]


async def running(store: Store, count: int) -> list[Claimed]:
    await put_many(store, count, max_attempts=9)
    return [await take(store, ANN) for _ in range(count)]


async def only(store: Store) -> FailureRecord:
    (found,) = await failures(store)
    return found


async def attempts_failed(store: Store) -> int:
    return sum(activity.failures for activity in await store.activity(3600))


async def test_failures_of_one_storm_are_one_record_that_counts_them(store: Store, clock: FakeClock) -> None:
    jobs, storm = await running(store, 6), uuid7()
    began = clock.now()
    assert await store.settle(ANN, retried(jobs[:1], storm)) == []
    first = await only(store)
    assert (first.id, first.job_id, first.occurrences, first.last_failed_at) == (storm, jobs[0].id, 1, None)
    assert (first.failed_reason, first.stack_trace, first.is_final_attempt) == (REASON, "Traceback", False)

    clock.advance(7)
    assert await store.settle(ANN, retried(jobs[1:5], storm)) == []
    clock.advance(7)
    assert await store.settle(ANN, retried(jobs[5:], storm)) == []

    found = await only(store)
    assert (found.id, found.job_id, found.occurrences) == (storm, jobs[0].id, 6)
    assert (found.first_failed_at, found.last_failed_at) == (began, clock.now())
    assert await store.failure(storm) == found
    assert await attempts_failed(store) == 6, "what raises an alert counts attempts, not records"
    assert [job.error for job in [await store.get(job.id) for job in jobs] if job] == [REASON] * 6


async def test_many_failures_of_a_storm_in_one_settlement_are_one_record(store: Store, clock: FakeClock) -> None:
    jobs, storm, other, own = await running(store, 9), uuid7(), uuid7(), Failed(uuid7(), "{}", None)
    ends = [
        *retried(jobs[:4], storm),
        end(jobs[4], Outcome.RETRY, error="ValueError: no", failure=own),
        end(jobs[5]),
        *retried(jobs[6:], other),
    ]
    assert await store.settle(ANN, ends) == []

    found = {failure.id: failure for failure in await failures(store)}
    assert {id: failure.occurrences for id, failure in found.items()} == {storm: 4, own.id: 1, other: 3}
    assert found[storm].last_failed_at == found[storm].first_failed_at == clock.now()
    assert (found[own.id].last_failed_at, found[own.id].failed_reason) == (None, "ValueError: no")
    assert found[storm].job_id in {job.id for job in jobs[:4]}


async def test_a_failure_whose_lease_was_lost_is_not_counted(store: Store) -> None:
    jobs, storm = await running(store, 3), uuid7()
    stale = jobs[1]._replace(lease=jobs[1].lease - 1)
    assert await store.settle(ANN, retried([jobs[0], stale, jobs[2]], storm)) == [stale.id]
    assert (await only(store)).occurrences == 2
    assert await store.settle(ANN, retried(jobs[:1], storm)) == [jobs[0].id], "said twice, by one whose answer was lost"
    assert await store.settle(BEN, retried(jobs[1:2], storm)) == [jobs[1].id]
    assert (await only(store)).occurrences == 2


async def test_a_storm_whose_record_was_pruned_goes_on_in_a_new_one(store: Store, clock: FakeClock) -> None:
    jobs, storm = await running(store, 3), uuid7()
    await store.settle(ANN, retried(jobs[:2], storm))
    clock.advance(2)
    assert await store.prune_failures(1 / 24 / 3600, 10) == 1
    await store.settle(ANN, retried(jobs[2:], storm))
    found = await only(store)
    assert (found.id, found.job_id, found.occurrences, found.last_failed_at) == (storm, jobs[2].id, 1, None)


@pytest.mark.parametrize("cancelled", [False, True], ids=["waits", "cancelled"])
async def test_a_job_that_was_to_be_cancelled_counts_like_the_others(store: Store, cancelled: bool) -> None:
    jobs, storm = await running(store, 2), uuid7()
    if cancelled:
        await store.cancel(jobs[0].id)
    assert await store.settle(ANN, retried(jobs, storm)) == []
    found = await only(store)
    assert (found.occurrences, found.is_final_attempt) == (2, False)


async def test_the_record_of_a_storm_leads_to_its_job_and_is_resolved_with_it(store: Store) -> None:
    jobs, storm = await running(store, 2), uuid7()
    await store.settle(ANN, retried(jobs[:1], storm))
    await store.settle(ANN, retried(jobs[1:], storm))
    owned: dict[JobId, int] = {}
    for job in jobs:
        page = await store.failures(FailureFilter(job_id=job.id), 10)
        owned[job.id] = len(page.failures)
    assert owned == {jobs[0].id: 1, jobs[1].id: 0}
