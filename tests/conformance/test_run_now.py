"""run_now: makes a delayed job available now, in its own place in the order, and touches no other job."""

from __future__ import annotations

import asyncio

import pytest

from conformance.builders import (
    ANN,
    counted,
    end,
    ids,
    kept,
    near,
    put,
    put_and_end,
    put_and_take,
    record,
    settle,
    status,
    take,
    taken,
    while_active,
)
from conformance.test_wake import ANY, listening
from rowlock.clock import FakeClock
from rowlock.errors import DuplicateJob
from rowlock.storage.contract import Store
from rowlock.storage.records import CancelResult, Limit, Outcome, Status


async def test_a_delayed_job_is_ready_at_once(store: Store, clock: FakeClock) -> None:
    job_id = await put(store, delay_seconds=3_600)
    assert await taken(store) == []
    clock.advance(1)
    assert await store.run_now(job_id)
    assert near((await record(store, job_id)).available_at, clock.now())
    assert await taken(store) == [job_id]


async def test_a_job_that_waits_for_another_attempt_keeps_what_it_has_spent(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store, max_attempts=3)
    await settle(store, claimed, Outcome.CRASH, delay_seconds=600, error="no", failure=kept(claimed))
    assert await store.run_now(claimed.id)
    found = await record(store, claimed.id)
    assert (found.attempts, found.deaths, found.lease, found.error) == (1, 1, 1, "no")
    again = await take(store)
    assert (again.id, again.attempt, again.lease) == (claimed.id, 2, 2)


async def test_it_keeps_the_place_of_its_enqueueing(store: Store) -> None:
    first = await put(store, delay_seconds=60)
    second = await put(store)
    urgent = await put(store, priority=1)
    assert await store.run_now(first)
    assert await taken(store) == [urgent, first, second]


async def test_it_keeps_its_limit(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    claimed = await put_and_take(store, limit_key="api")
    waiting = await put(store, limit_key="api", delay_seconds=60)
    assert await store.run_now(waiting)
    assert await taken(store) == []
    await settle(store, claimed)
    assert await taken(store) == [waiting]


async def test_it_keeps_its_unique_key(store: Store) -> None:
    job_id = await put(store, delay_seconds=60, unique=while_active())
    assert await store.run_now(job_id)
    with pytest.raises(DuplicateJob):
        await put(store, unique=while_active())


async def test_a_paused_queue_stays_paused(store: Store) -> None:
    job_id = await put(store, delay_seconds=60)
    await store.pause("default")
    assert await store.run_now(job_id)
    assert await taken(store) == []
    await store.resume("default")
    assert await taken(store) == [job_id]


async def test_a_job_that_is_ready_stays_as_it_is(store: Store, clock: FakeClock) -> None:
    ready, due = await put(store), await put(store, delay_seconds=5)
    clock.advance(5)
    before = [await record(store, job_id) for job_id in (ready, due)]
    clock.advance(1)
    assert [await store.run_now(job_id) for job_id in (ready, due)] == [False, False]
    assert [await record(store, job_id) for job_id in (ready, due)] == before
    assert await taken(store) == [ready, due]


async def test_a_running_job_stays_as_it_is(store: Store) -> None:
    claimed = await put_and_take(store)
    assert not await store.run_now(claimed.id)
    assert await status(store, claimed.id) is Status.PROCESSING
    await settle(store, claimed)


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED])
async def test_what_is_over_stays_over(store: Store, outcome: Outcome) -> None:
    job_id = await put_and_end(store, outcome)
    before = await record(store, job_id)
    assert not await store.run_now(job_id)
    assert await record(store, job_id) == before
    assert await taken(store) == []


@pytest.mark.parametrize("nobody", ["01a1e4d9-74ca-7000-9d23-faa8ea1912e3", "no-uuid", ""])
async def test_nobody_is_run_now_by_an_id_that_nobody_has(store: Store, nobody: str) -> None:
    job_id = await put(store, delay_seconds=60)
    assert not await store.run_now(nobody)
    assert await store.run_now(job_id.upper())


async def test_the_counts_stay_right(store: Store) -> None:
    run_now, _ = await put(store, delay_seconds=60), await put(store, delay_seconds=60)
    assert await store.run_now(run_now)
    (queue,) = await store.queues()
    assert (queue.ready, queue.delayed) == (1, 1)
    assert await counted(store) == {Status.QUEUED: 2}
    await store.compact(1_000)
    (queue,) = await store.queues()
    assert (queue.ready, queue.delayed) == (1, 1)


async def test_it_is_told_as_a_change(store: Store, clock: FakeClock) -> None:
    job_id = await put(store, delay_seconds=60)
    clock.advance(10)
    since = clock.now()
    assert (await store.changes(since, 10)).jobs == []
    assert await store.run_now(job_id)
    (change,) = (await store.changes(since, 10)).jobs
    assert (change.id, change.status) == (job_id, Status.QUEUED)


async def test_workers_hear_of_it(store: Store, other: Store) -> None:
    job_id = await put(store, queue="mail", delay_seconds=60)
    async with listening(other) as ear:
        await store.run_now(job_id)
        await ear.wait_for(("queue", "mail"), ("queue", ANY))


async def test_of_many_who_run_now_one_job_one_does(store: Store, other: Store) -> None:
    for _ in range(10):
        job_id = await put(store, delay_seconds=60)
        done = await asyncio.gather(*((store, other)[n % 2].run_now(job_id) for n in range(6)))
        assert sorted(done) == [False] * 5 + [True]
        assert await taken(store) == [job_id]


async def test_a_job_is_run_now_or_cancelled_and_then_runs_or_not(store: Store, other: Store) -> None:
    for _ in range(20):
        job_id = await put(store, delay_seconds=60)
        run_now, cancelled = await asyncio.gather(store.run_now(job_id), other.cancel(job_id))
        if cancelled is CancelResult.CANCELLED:
            assert await status(store, job_id) is Status.CANCELLED
            assert await taken(store) == []
        else:
            assert run_now
            assert await taken(store) == [job_id]


async def test_a_job_that_falls_due_meanwhile_is_taken_once(store: Store, other: Store, clock: FakeClock) -> None:
    for _ in range(20):
        job_id = await put(store, delay_seconds=1)
        clock.advance(1)
        _, first, second = await asyncio.gather(
            store.run_now(job_id), other.claim("default", ANN, 5), store.claim("default", ANN, 5)
        )
        assert ids([*first, *second]) == [job_id]
        await store.settle(ANN, [end(claimed) for claimed in (*first, *second)])
