"""Prune: deletes finished jobs by their retention policy, in bounded batches, oldest first."""

from __future__ import annotations

import pytest

from conformance.builders import (
    EVERYTHING,
    counted,
    listed,
    new_job,
    put,
    put_and_end,
    put_and_take,
    settle,
    status,
    while_active,
)
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.records import JobFilter, JobId, KeepPolicy, OnConflict, Outcome, Status

FINAL = [
    (Outcome.SUCCEEDED, Status.SUCCEEDED),
    (Outcome.FAILED, Status.FAILED),
    (Outcome.CANCELLED, Status.CANCELLED),
]


async def days_of_work(store: Store, clock: FakeClock, days: int, outcome: Outcome = Outcome.SUCCEEDED) -> list[JobId]:
    """End one job per day, the last one a day ago. Returns them."""
    jobs = []
    for _ in range(days):
        jobs.append(await put_and_end(store, outcome))
        clock.advance(days=1)
    return jobs


@pytest.mark.parametrize(("outcome", "ended"), FINAL)
async def test_jobs_older_than_their_days_go(store: Store, clock: FakeClock, outcome: Outcome, ended: Status) -> None:
    jobs = await days_of_work(store, clock, 5, outcome)
    assert await store.prune({ended: KeepPolicy(days=2.5)}, 100) == {ended: 3}
    assert await listed(store) == jobs[:2:-1]


async def test_age_is_counted_from_the_end(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    clock.advance(days=10)
    await settle(store, claimed)
    assert (await store.prune({Status.SUCCEEDED: KeepPolicy(days=5)}, 100)).get(Status.SUCCEEDED, 0) == 0
    assert await status(store, claimed.id) is Status.SUCCEEDED


async def test_jobs_beyond_the_newest_so_many_go(store: Store, clock: FakeClock) -> None:
    jobs = await days_of_work(store, clock, 5)
    assert await store.prune({Status.SUCCEEDED: KeepPolicy(count=2)}, 100) == {Status.SUCCEEDED: 3}
    assert await listed(store) == [jobs[4], jobs[3]]


async def test_keeping_none_removes_all(store: Store, clock: FakeClock) -> None:
    await days_of_work(store, clock, 3)
    assert await store.prune({Status.SUCCEEDED: KeepPolicy(count=0)}, 100) == {Status.SUCCEEDED: 3}
    assert await listed(store) == []


async def test_a_job_goes_when_either_limit_says_so(store: Store, clock: FakeClock) -> None:
    jobs = await days_of_work(store, clock, 6)
    await store.prune({Status.SUCCEEDED: KeepPolicy(days=2.5, count=4)}, 100)
    assert await listed(store) == jobs[:3:-1]
    await store.prune({Status.SUCCEEDED: KeepPolicy(days=100, count=1)}, 100)
    assert await listed(store) == jobs[5:]


async def test_a_policy_without_limits_keeps_everything(store: Store, clock: FakeClock) -> None:
    await days_of_work(store, clock, 3)
    assert (await store.prune({Status.SUCCEEDED: KeepPolicy()}, 100)).get(Status.SUCCEEDED, 0) == 0
    assert await store.prune({}, 100) == {}
    assert await store.count(EVERYTHING, 10) == 3


async def test_no_more_than_the_limit_goes_and_the_oldest_first(store: Store, clock: FakeClock) -> None:
    jobs = await days_of_work(store, clock, 5)
    policies = {Status.SUCCEEDED: KeepPolicy(days=0.5)}
    assert await store.prune(policies, 2) == {Status.SUCCEEDED: 2}
    assert await listed(store) == jobs[:1:-1]
    assert await store.prune(policies, 2) == {Status.SUCCEEDED: 2}
    assert await store.prune(policies, 2) == {Status.SUCCEEDED: 1}


async def test_the_limit_is_for_each_status(store: Store, clock: FakeClock) -> None:
    for outcome, _ in FINAL:
        await days_of_work(store, clock, 3, outcome)
    policies = {ended: KeepPolicy(days=0.5) for _, ended in FINAL}
    assert await store.prune(policies, 2) == {ended: 2 for _, ended in FINAL}


async def test_every_status_has_its_own_policy(store: Store, clock: FakeClock) -> None:
    for outcome, _ in FINAL:
        await put_and_end(store, outcome)
    clock.advance(days=10)
    policies = {Status.SUCCEEDED: KeepPolicy(days=5), Status.FAILED: KeepPolicy(days=14)}
    await store.prune(policies, 100)
    assert await counted(store) == {Status.FAILED: 1, Status.CANCELLED: 1}


async def test_waiting_and_running_jobs_are_never_touched(store: Store, clock: FakeClock) -> None:
    kept = [
        (await put_and_take(store, queue="running")).id,
        await put(store),
        await put(store, delay_seconds=60),
    ]
    clock.advance(days=4_000)
    await store.prune({status: KeepPolicy(days=1, count=0) for status in Status}, 100)
    assert sorted(await listed(store)) == sorted(kept)


async def test_a_pruned_job_is_gone(store: Store, clock: FakeClock) -> None:
    (job_id,) = await days_of_work(store, clock, 1, Outcome.FAILED)
    await store.prune({Status.FAILED: KeepPolicy(days=0.5)}, 100)
    assert await store.get(job_id) is None
    assert (await store.retry(JobFilter(ids=[job_id]), 10)).retried == []
    assert await counted(store) == {}


async def test_pruning_an_old_job_leaves_a_key_that_another_holds(store: Store, clock: FakeClock) -> None:
    await put_and_end(store, unique=while_active())
    holder = await put(store, unique=while_active())
    clock.advance(days=10)
    await store.prune({Status.SUCCEEDED: KeepPolicy(days=1)}, 100)
    (receipt,) = await store.enqueue([new_job(unique=while_active("k", OnConflict.RETURN_EXISTING))])
    assert (receipt.job_id, receipt.created) == (holder, False)


async def test_a_retried_job_is_not_pruned_for_its_past(store: Store, clock: FakeClock) -> None:
    (job_id,) = await days_of_work(store, clock, 1, Outcome.FAILED)
    await store.retry(EVERYTHING, 10)
    await store.prune({Status.FAILED: KeepPolicy(count=0)}, 100)
    assert await status(store, job_id) is Status.QUEUED


async def test_pruning_again_finds_nothing_more(store: Store, clock: FakeClock) -> None:
    await days_of_work(store, clock, 2)
    policies = {Status.SUCCEEDED: KeepPolicy(days=0.5)}
    await store.prune(policies, 100)
    assert (await store.prune(policies, 100)).get(Status.SUCCEEDED, 0) == 0
