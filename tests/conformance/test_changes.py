"""Changes: jobs changed since a time, each returned once, in its present state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import fields
from datetime import timedelta

import pytest

from conformance.builders import (
    ANN,
    BEN,
    EVERYTHING,
    end,
    new_job,
    new_jobs,
    put,
    put_and_end,
    put_and_take,
    put_many,
    record,
    settle,
    take,
    taken,
    worker,
)
from conformance.stores import Rig
from rowlock.clock import FakeClock, StoreClock
from rowlock.storage.access import Changes, JobChange
from rowlock.storage.contract import Store
from rowlock.storage.records import LEASES_PER_RETRY, JobFilter, JobId, KeepPolicy, Limit, Outcome, Progress, Status

LIMIT = 100


@pytest.fixture(autouse=True)
def moving(clock: FakeClock) -> None:
    clock.advance(hours=1)


async def look(store: Store, clock: FakeClock, back_seconds: float = 0.0, limit: int = LIMIT) -> Changes:
    """Return the changes of the last `back_seconds`."""
    return await store.changes(clock.now() - timedelta(seconds=back_seconds), limit)


async def one(store: Store, clock: FakeClock) -> JobChange:
    """Return the only job that changed just now."""
    (change,) = (await look(store, clock)).jobs
    assert change.changed_at == clock.now()
    return change


async def changed(store: Store, clock: FakeClock, back_seconds: float = 0.0, limit: int = LIMIT) -> list[JobId]:
    return [change.id for change in (await look(store, clock, back_seconds, limit)).jobs]


async def same_as_recorded(store: Store, change: JobChange) -> bool:
    """Whether the change agrees with the job's record."""
    found = await record(store, change.id)
    names = {field.name for field in fields(JobChange)} - {"changed_at"}
    return all(getattr(change, name) == getattr(found, name) for name in names)


# -- each kind of change -----------------------------------------------------------------------------


async def test_an_enqueued_job_is_told(store: Store, clock: FakeClock) -> None:
    job_id = await put(store, type="send.sms", queue="texts", max_attempts=3)
    assert await one(store, clock) == JobChange(
        id=job_id,
        type="send.sms",
        queue="texts",
        status=Status.QUEUED,
        attempts=0,
        max_attempts=3,
        lease=0,
        progress=None,
        message=None,
        error=None,
        company_id=None,
        changed_at=clock.now(),
    )


async def test_a_delayed_job_is_told_when_it_is_enqueued(store: Store, clock: FakeClock) -> None:
    job_id = await put(store, delay_seconds=60)
    change = await one(store, clock)
    assert (change.id, change.status) == (job_id, Status.QUEUED)


async def test_a_delayed_job_that_falls_due_has_not_changed(store: Store, clock: FakeClock) -> None:
    await put(store, delay_seconds=60, priority=200)
    await put(store, priority=1)
    clock.advance(60)
    first = await take(store)
    assert await changed(store, clock) == [first.id]


async def test_a_claimed_job_is_told(store: Store, clock: FakeClock) -> None:
    await put(store)
    clock.advance(10)
    claimed = await take(store)
    change = await one(store, clock)
    assert (change.id, change.status, change.attempts, change.lease) == (claimed.id, Status.PROCESSING, 1, 1)


async def test_a_job_with_a_limit_key_is_told_like_any(store: Store, clock: FakeClock) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    first, second = await put_many(store, 2, limit_key="api")
    assert await changed(store, clock) == [first, second]
    clock.advance(10)
    claimed = await take(store)
    assert await changed(store, clock) == [first]
    clock.advance(10)
    await settle(store, claimed, Outcome.RETRY)
    assert await changed(store, clock) == [first]
    assert await changed(store, clock, 20) == [second, first]


async def test_progress_is_told(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    clock.advance(10)
    await store.progress(ANN, [Progress(claimed.id, claimed.lease, 40, "reading żółw")])
    change = await one(store, clock)
    assert (change.status, change.progress, change.message) == (Status.PROCESSING, 40, "reading żółw")


async def test_a_report_of_a_lost_lease_is_no_change(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    clock.advance(10)
    await store.progress(BEN, [Progress(claimed.id, claimed.lease, 40, None)])
    await store.progress(ANN, [Progress(claimed.id, claimed.lease + 1, 40, None)])
    assert await changed(store, clock) == []


async def test_a_request_to_cancel_is_told_once(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    clock.advance(10)
    await store.cancel(claimed.id)
    assert (await one(store, clock)).status is Status.PROCESSING
    clock.advance(10)
    await store.cancel(claimed.id)
    assert await changed(store, clock) == []


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.SUCCEEDED, Status.SUCCEEDED),
        (Outcome.FAILED, Status.FAILED),
        (Outcome.CANCELLED, Status.CANCELLED),
        (Outcome.FATAL, Status.FAILED),
    ],
)
async def test_the_end_of_a_job_is_told(store: Store, clock: FakeClock, outcome: Outcome, status: Status) -> None:
    claimed = await put_and_take(store, company_id="acme")
    clock.advance(10)
    error = None if outcome is Outcome.SUCCEEDED else "ValueError: żółw"
    await settle(store, claimed, outcome, seconds=9.5, error=error, result='{"a": 1}')
    change = await one(store, clock)
    assert (change.id, change.status, change.error, change.company_id) == (claimed.id, status, error, "acme")
    assert (change.attempts, change.lease) == (1, 1)


@pytest.mark.parametrize("delay_seconds", [0.0, 60.0])
@pytest.mark.parametrize(
    ("outcome", "attempts"),
    [(Outcome.RETRY, 1), (Outcome.RELEASE, 0), (Outcome.CRASH, 1), (Outcome.SUSPECT, 0)],
)
async def test_a_job_that_waits_again_is_told(
    store: Store, clock: FakeClock, outcome: Outcome, attempts: int, delay_seconds: float
) -> None:
    claimed = await put_and_take(store)
    clock.advance(10)
    await settle(store, claimed, outcome, delay_seconds=delay_seconds, error="TimeoutError: slow")
    change = await one(store, clock)
    assert (change.id, change.status, change.attempts) == (claimed.id, Status.QUEUED, attempts)
    assert (change.lease, change.error) == (1, "TimeoutError: slow")


@pytest.mark.parametrize("delay_seconds", [0.0, 60.0])
async def test_a_rescued_job_is_told(store: Store, clock: FakeClock, delay_seconds: float) -> None:
    claimed = await put_and_take(store)
    clock.advance(31)
    await store.rescue(10, {"default": delay_seconds}, str)
    change = await one(store, clock)
    assert (change.id, change.status, change.attempts) == (claimed.id, Status.QUEUED, 1)
    assert change.error is not None
    assert "lease expired" in change.error


async def test_a_job_whose_last_attempt_was_lost_is_told(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store, max_attempts=1)
    clock.advance(31)
    await store.rescue(10, {}, str)
    change = await one(store, clock)
    assert (change.id, change.status) == (claimed.id, Status.FAILED)


@pytest.mark.parametrize("delay_seconds", [0.0, 60.0])
async def test_a_waiting_job_that_was_cancelled_is_told(store: Store, clock: FakeClock, delay_seconds: float) -> None:
    job_id = await put(store, delay_seconds=delay_seconds)
    clock.advance(10)
    await store.cancel(job_id)
    change = await one(store, clock)
    assert (change.id, change.status, change.attempts) == (job_id, Status.CANCELLED, 0)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED])
async def test_a_job_that_an_operator_retried_is_told(store: Store, clock: FakeClock, outcome: Outcome) -> None:
    job_id = await put_and_end(store, outcome)
    clock.advance(10)
    await store.retry(EVERYTHING, 10)
    change = await one(store, clock)
    assert (change.id, change.status, change.attempts, change.lease) == (job_id, Status.QUEUED, 0, LEASES_PER_RETRY)


async def test_a_job_enqueued_in_a_transaction_is_told(store: Store, clock: FakeClock) -> None:
    async with store.transaction() as transaction:
        (receipt,) = await transaction.enqueue([new_job()])
    assert await changed(store, clock) == [receipt.job_id]


# -- events that are not changes ---------------------------------------------------------------------


async def test_nothing_is_told_of_an_empty_store(store: Store, clock: FakeClock) -> None:
    assert await look(store, clock, 86_400) == Changes([], False, clock.now())


async def test_a_heartbeat_is_no_change(store: Store, clock: FakeClock) -> None:
    await put_and_take(store)
    clock.advance(10)
    await store.beat([worker(ANN)])
    assert await changed(store, clock) == []
    assert (await record(store, (await store.held(ANN))[0].job_id)).updated_at == clock.now()


async def every_state(store: Store) -> dict[JobId, Status]:
    """Create one job in every state."""
    retried = await put_and_take(store)
    await settle(store, retried, Outcome.RETRY, queue="default")
    assert await store.cancel(retried.id)
    await store.retry(JobFilter(ids=[retried.id]), 1)
    again = await take(store)
    await settle(store, again, Outcome.RETRY, delay_seconds=3_600)
    jobs = {again.id: Status.QUEUED}
    for outcome, status in (
        (Outcome.SUCCEEDED, Status.SUCCEEDED),
        (Outcome.FAILED, Status.FAILED),
        (Outcome.CANCELLED, Status.CANCELLED),
    ):
        jobs[await put_and_end(store, outcome)] = status
    jobs[(await put_and_take(store)).id] = Status.PROCESSING
    waiting = await put_and_take(store)
    await settle(store, waiting, Outcome.RELEASE)
    jobs[waiting.id] = Status.QUEUED
    jobs[await put(store, priority=200)] = Status.QUEUED
    jobs[await put(store, delay_seconds=3_600)] = Status.QUEUED
    return jobs


async def test_jobs_of_every_state_are_told_once_as_they_are(store: Store, clock: FakeClock) -> None:
    jobs = await every_state(store)
    found = (await look(store, clock)).jobs
    assert {change.id: change.status for change in found} == jobs
    assert len(found) == len(jobs)
    for change in found:
        assert await same_as_recorded(store, change)


async def test_what_changed_before_is_not_told(store: Store, clock: FakeClock) -> None:
    await every_state(store)
    clock.advance(0.001)
    assert await changed(store, clock) == []
    assert len(await changed(store, clock, 0.001)) == 8


async def test_a_job_that_changed_twice_is_told_once_as_it_is(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    clock.advance(1)
    await store.progress(ANN, [Progress(claimed.id, claimed.lease, 50, "half")])
    clock.advance(1)
    await settle(store, claimed, Outcome.RETRY)
    clock.advance(1)
    again = await take(store)
    clock.advance(1)
    await settle(store, again)
    (change,) = (await look(store, clock, 60)).jobs
    assert (change.status, change.attempts, change.changed_at) == (Status.SUCCEEDED, 2, clock.now())
    assert change.progress is None


async def test_jobs_that_were_removed_are_not_told(store: Store, clock: FakeClock) -> None:
    await put_and_end(store, Outcome.FAILED)
    await put_and_end(store)
    kept = await put(store)
    await store.discard(EVERYTHING, 10)
    clock.advance(1)
    await store.prune({Status.SUCCEEDED: KeepPolicy(days=0)}, 10)
    assert await changed(store, clock, 60) == [kept]


async def test_new_jobs_are_found_after_the_newest_were_removed(store: Store, clock: FakeClock) -> None:
    first = await put(store, priority=200)
    await put_and_end(store, Outcome.FAILED, priority=1)
    await store.discard(EVERYTHING, 10)
    second = await put(store)
    assert await changed(store, clock) == [first, second]


# -- order, and how many -----------------------------------------------------------------------------


async def test_the_oldest_change_comes_first(store: Store, clock: FakeClock) -> None:
    jobs = await put_many(store, 5)
    expected = []
    for place in (3, 0, 4):
        clock.advance(1)
        await store.cancel(jobs[place])
        expected.append(jobs[place])
    assert await changed(store, clock, 60) == [jobs[1], jobs[2], *expected]
    found = (await look(store, clock, 60)).jobs
    assert [change.changed_at for change in found] == sorted(change.changed_at for change in found)


async def test_jobs_enqueued_together_come_in_their_order(store: Store, clock: FakeClock) -> None:
    jobs = await put_many(store, 20)
    assert await changed(store, clock) == jobs


@pytest.mark.parametrize(("limit", "more"), [(1, True), (4, True), (5, False), (6, False)])
async def test_no_more_are_told_than_asked(store: Store, clock: FakeClock, limit: int, more: bool) -> None:
    jobs = []
    for _ in range(5):
        clock.advance(1)
        jobs.append(await put(store))
    found = await look(store, clock, 60, limit)
    assert [change.id for change in found.jobs] == jobs[:limit]
    assert found.more is more


async def wait(store: Store) -> JobId:
    return await put(store, priority=200)


async def wait_for_later(store: Store) -> JobId:
    return await put(store, delay_seconds=3_600)


async def run_on(store: Store) -> JobId:
    return (await put_and_take(store, priority=1)).id


async def finish(store: Store) -> JobId:
    return await put_and_end(store, Outcome.SUCCEEDED, priority=1)


async def die(store: Store) -> JobId:
    return await put_and_end(store, Outcome.FAILED, priority=1)


async def give_back(store: Store) -> JobId:
    claimed = await put_and_take(store, priority=1)
    await settle(store, claimed, Outcome.RETRY, delay_seconds=3_600)
    return claimed.id


KINDS: list[Callable[[Store], Awaitable[JobId]]] = [wait, wait_for_later, run_on, finish, die, give_back]


async def test_the_oldest_are_told_whatever_they_did(store: Store, clock: FakeClock) -> None:
    """No job is skipped: the next look starts from the last returned change."""
    jobs = []
    for number in range(18):
        clock.advance(1)
        jobs.append(await KINDS[number * 5 % 6](store))
    for limit in (1, 7, 17):
        found, since = [], clock.now() - timedelta(seconds=60)
        while True:
            answer = await store.changes(since, limit)
            found += [change.id for change in answer.jobs]
            if not answer.more:
                break
            since = answer.jobs[-1].changed_at + timedelta(microseconds=1)
        assert found == jobs


async def test_jobs_that_moved_on_do_not_crowd_out_those_that_wait(store: Store, clock: FakeClock) -> None:
    """The oldest jobs finish last: the order is by the time of change."""
    early = await put_many(store, 10)
    clock.advance(1)
    late = await put(store, priority=200)
    claims = await store.claim("default", ANN, 10)
    clock.advance(1)
    await store.settle(ANN, [end(claimed) for claimed in claims])
    found = await look(store, clock, 60, 3)
    assert found.jobs[0].id == late
    assert {change.id for change in found.jobs[1:]} <= set(early)
    assert found.more


# -- the time ----------------------------------------------------------------------------------------


async def test_the_answer_says_when_it_looked(store: Store, clock: FakeClock) -> None:
    await put(store)
    assert (await look(store, clock)).looked_at == clock.now()
    clock.advance(60)
    answer = await look(store, clock)
    assert (answer.jobs, answer.looked_at) == ([], clock.now())


async def test_looking_again_from_the_last_look_finds_what_came_after_it(store: Store, clock: FakeClock) -> None:
    since, found = clock.now(), []
    for _ in range(4):
        jobs = await put_many(store, 3)
        answer = await store.changes(since, LIMIT)
        found += [change.id for change in answer.jobs]
        assert found[-3:] == jobs
        since = answer.looked_at + timedelta(microseconds=1)
        clock.advance(5)
    assert len(found) == len(set(found)) == 12


async def test_looking_changes_nothing(store: Store, clock: FakeClock) -> None:
    await every_state(store)
    first = await look(store, clock, 60)
    assert await look(store, clock, 60) == first


async def test_another_process_finds_the_same(store: Store, other: Store, clock: FakeClock) -> None:
    await every_state(store)
    assert await look(other, clock, 60) == await look(store, clock, 60)


async def test_a_busy_store_tells_each_job_once(store: Store, other: Store, clock: FakeClock) -> None:
    """Jobs move between tables meanwhile: one look sees each job once."""
    await store.enqueue(new_jobs(60))

    async def work() -> None:
        while claims := await store.claim("default", ANN, 5):
            await store.settle(ANN, [end(claimed) for claimed in claims])

    working = asyncio.create_task(work())
    looks = 0
    while not working.done() or looks == 0:
        found = await changed(other, clock, 60)
        assert len(found) == len(set(found)) == 60
        looks += 1
    await working


async def test_every_job_that_was_taken_is_told(store: Store, clock: FakeClock) -> None:
    jobs = await put_many(store, 50)
    clock.advance(1)
    assert await taken(store) == jobs
    found = (await look(store, clock)).jobs
    assert sorted(change.id for change in found) == sorted(jobs)
    assert {change.status for change in found} == {Status.PROCESSING}


async def test_a_change_is_told_in_the_stores_own_time(rig: Rig, store: Store) -> None:
    own = await rig.another(StoreClock())
    before = (await own.changes(await own.now(), LIMIT)).looked_at
    job_id = await put(own)
    answer = await own.changes(before, LIMIT)
    (change,) = answer.jobs
    assert change.id == job_id
    assert before <= change.changed_at <= answer.looked_at


async def test_a_job_that_was_written_late_hides_no_other(rig: Rig, store: Store, clock: FakeClock) -> None:
    """Its time was read before it waited for the store, so jobs are not written strictly in order of time."""
    late = await rig.another(FakeClock(clock.now() - timedelta(seconds=3)))
    first = await put(store)
    await put_many(late, 20)
    last = await put(store)
    await put_many(late, 20)
    assert await changed(store, clock) == [first, last]
