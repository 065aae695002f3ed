"""Queues: their contents, pause and resume."""

from __future__ import annotations

import pytest

from conformance.builders import ANN, put, put_and_end, put_and_take, put_many, settle, status, taken
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.records import Outcome, QueueRecord, Status


async def queue(store: Store, name: str = "default") -> QueueRecord:
    (found,) = [record for record in await store.queues() if record.name == name]
    return found


async def test_a_store_without_jobs_has_no_queues(store: Store) -> None:
    assert await store.queues() == []


async def test_a_queue_shows_what_waits_and_what_runs(store: Store, clock: FakeClock) -> None:
    await put_many(store, 3)
    await put_many(store, 2, delay_seconds=60)
    assert len(await taken(store, limit=1)) == 1
    clock.advance(7)
    found = await queue(store)
    assert (found.paused, found.ready, found.delayed, found.processing) == (False, 2, 2, 1)
    assert found.oldest_ready_seconds == pytest.approx(7, abs=0.01)


async def test_queues_come_by_name(store: Store) -> None:
    for name in ("b", "c", "a"):
        await put(store, queue=name)
    assert [found.name for found in await store.queues()] == ["a", "b", "c"]


async def test_a_queue_whose_jobs_are_over_is_not_shown(store: Store) -> None:
    await put_and_end(store)
    await put_and_end(store, Outcome.FAILED)
    assert await store.queues() == []


async def test_a_queue_that_only_runs_is_shown(store: Store) -> None:
    await put_and_take(store)
    found = await queue(store)
    assert (found.ready, found.delayed, found.processing, found.oldest_ready_seconds) == (0, 0, 1, None)


async def test_a_queue_that_only_has_delayed_jobs_is_shown(store: Store) -> None:
    await put(store, delay_seconds=60)
    found = await queue(store)
    assert (found.ready, found.delayed, found.processing, found.oldest_ready_seconds) == (0, 1, 0, None)


async def test_a_job_that_is_due_counts_as_ready(store: Store, clock: FakeClock) -> None:
    await put(store, delay_seconds=60)
    clock.advance(65)
    found = await queue(store)
    assert (found.ready, found.delayed) == (1, 0)
    assert found.oldest_ready_seconds == pytest.approx(5, abs=0.01)


@pytest.mark.parametrize("limit_key", [None, "api"])
async def test_the_oldest_ready_job_is_the_one_that_waits_longest(
    store: Store, clock: FakeClock, limit_key: str | None
) -> None:
    first = await put_and_take(store, limit_key=limit_key)
    await put(store, limit_key=limit_key, delay_seconds=20)
    clock.advance(10)
    await put(store, limit_key=limit_key)
    clock.advance(840)
    await settle(store, first, Outcome.RETRY)
    assert (await queue(store)).oldest_ready_seconds == pytest.approx(840, abs=0.01)
    clock.advance(1)
    assert len(await taken(store, limit=1)) == 1, "the job that was retried, which keeps its place"
    assert (await queue(store)).oldest_ready_seconds == pytest.approx(841, abs=0.01)


async def test_the_longest_wait_is_that_of_a_retried_job_too(store: Store, clock: FakeClock) -> None:
    retried = await put_and_take(store, priority=5)
    await settle(store, retried, Outcome.RETRY)
    clock.advance(300)
    for priority in (1, 9):
        await put(store, priority=priority)
    assert (await queue(store)).oldest_ready_seconds == pytest.approx(300, abs=0.01)


async def test_nothing_is_claimed_from_a_paused_queue(store: Store) -> None:
    await put(store)
    await store.pause("default")
    assert await taken(store) == []
    assert (await queue(store)).paused is True


async def test_a_resumed_queue_goes_on_where_it_stopped(store: Store) -> None:
    jobs = await put_many(store, 2)
    await store.pause("default")
    await store.resume("default")
    assert await taken(store) == jobs


async def test_pausing_and_resuming_twice_is_as_good_as_once(store: Store) -> None:
    job_id = await put(store)
    await store.pause("default")
    await store.pause("default")
    await store.resume("default")
    assert (await queue(store)).paused is False
    await store.resume("default")
    assert await taken(store) == [job_id]


async def test_a_paused_queue_without_jobs_is_shown(store: Store) -> None:
    await store.pause("quiet")
    assert await store.queues() == [QueueRecord("quiet", True, 0, 0, 0, None)]
    await store.resume("quiet")
    assert await store.queues() == []


async def test_resuming_a_queue_that_nobody_paused_does_nothing(store: Store) -> None:
    await store.resume("quiet")
    assert await store.queues() == []


async def test_a_pause_is_for_its_own_queue_only(store: Store) -> None:
    await store.pause("other")
    job_id = await put(store)
    assert await taken(store) == [job_id]


async def test_a_pause_is_seen_by_every_process_and_outlives_them(store: Store, other: Store) -> None:
    job_id = await put(store)
    await store.pause("default")
    await store.close()
    assert await taken(other) == []
    await other.resume("default")
    assert await taken(other) == [job_id]


async def test_a_paused_queue_takes_new_jobs(store: Store) -> None:
    await store.pause("default")
    job_id = await put(store)
    assert await status(store, job_id) is Status.QUEUED
    assert await taken(store) == []


async def test_running_jobs_of_a_paused_queue_go_on(store: Store) -> None:
    claimed = await put_and_take(store, ANN)
    await store.pause("default")
    await settle(store, claimed)
    assert await status(store, claimed.id) is Status.SUCCEEDED


async def test_leases_of_a_paused_queue_are_rescued(store: Store, clock: FakeClock) -> None:
    await put_and_take(store)
    await store.pause("default")
    clock.advance(31)
    assert len(await store.rescue(10, {}, str)) == 1
    assert await taken(store) == []


async def test_jobs_of_a_paused_queue_can_be_cancelled(store: Store) -> None:
    job_id = await put(store)
    await store.pause("default")
    await store.cancel(job_id)
    assert await status(store, job_id) is Status.CANCELLED


async def test_jobs_with_limit_keys_are_shown_with_the_rest(store: Store) -> None:
    await put_many(store, 2, limit_key="api")
    await put(store, limit_key="api", delay_seconds=60)
    await put(store)
    assert len(await taken(store, limit=1)) == 1
    found = await queue(store)
    assert (found.ready, found.delayed, found.processing) == (2, 1, 1)


async def test_the_oldest_is_found_behind_many_of_another_priority_and_key(store: Store, clock: FakeClock) -> None:
    await put(store, priority=200, limit_key="b")
    clock.advance(9)
    for key in ("a", "b", "c"):
        await put_many(store, 1_100, limit_key=key)
    assert (await queue(store)).oldest_ready_seconds == pytest.approx(9, abs=0.01)
