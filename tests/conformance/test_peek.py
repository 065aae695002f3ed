"""Peek: is anything claimable, and when is the next job due?"""

from __future__ import annotations

import pytest

from conformance.builders import put, put_and_end, put_and_take, settle
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.records import Outcome, Peek


async def peek(store: Store, queue: str = "default") -> Peek:
    (found,) = await store.peek([queue])
    return found


async def test_an_empty_queue_has_nothing(store: Store) -> None:
    assert await peek(store) == Peek("default", False, None)


async def test_a_waiting_job_is_seen(store: Store) -> None:
    await put(store)
    assert (await peek(store)).ready is True


async def test_a_waiting_job_with_a_limit_key_is_seen(store: Store) -> None:
    await put(store, limit_key="api")
    assert (await peek(store)).ready is True


async def test_the_next_delayed_job_tells_when(store: Store, clock: FakeClock) -> None:
    for seconds in (300, 60, 120):
        await put(store, delay_seconds=seconds)
    clock.advance(10)
    found = await peek(store)
    assert found.ready is False
    assert found.due_in_seconds == pytest.approx(50, abs=0.01)


async def test_a_delayed_job_that_is_due_is_ready(store: Store, clock: FakeClock) -> None:
    await put(store, delay_seconds=60)
    clock.advance(61)
    assert (await peek(store)).ready is True


async def test_running_and_finished_jobs_are_not_ready(store: Store) -> None:
    await put_and_end(store)
    await put_and_end(store, Outcome.FAILED)
    await put_and_take(store)
    assert await peek(store) == Peek("default", False, None)


async def test_a_job_that_waits_for_its_retry_tells_when(store: Store) -> None:
    await settle(store, await put_and_take(store), Outcome.RETRY, delay_seconds=8)
    found = await peek(store)
    assert found.ready is False
    assert found.due_in_seconds == pytest.approx(8, abs=0.01)


async def test_a_paused_queue_has_nothing_to_claim(store: Store) -> None:
    await put(store)
    await store.pause("default")
    assert (await peek(store)).ready is False


async def test_every_queue_asked_for_is_answered(store: Store) -> None:
    await put(store, queue="a")
    await put(store, queue="b", delay_seconds=5)
    await put(store, queue="d")
    found = await store.peek(["c", "b", "a"])
    assert [each.queue for each in found] == ["c", "b", "a"]
    assert [each.ready for each in found] == [False, False, True]


async def test_no_queue_no_answer(store: Store) -> None:
    assert await store.peek([]) == []
