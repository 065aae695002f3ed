"""Order: lowest priority number first, then FIFO."""

from __future__ import annotations

import random

from conformance.builders import BEN, CAT, EVERYTHING, new_job, new_jobs, put, put_many, settle, take, taken
from rowlock.clock import FakeClock
from rowlock.ids import uuid7s
from rowlock.storage.contract import Store
from rowlock.storage.records import Outcome


async def test_the_lowest_number_goes_first(store: Store) -> None:
    priorities = [100, 5, 32_767, -1, 0, -32_768]
    jobs = {priority: await put(store, priority=priority) for priority in priorities}
    assert await taken(store) == [jobs[priority] for priority in sorted(priorities)]


async def test_jobs_of_one_priority_go_first_come_first_served(store: Store) -> None:
    jobs = [await put(store) for _ in range(10)]
    assert await taken(store, limit=5) == jobs[:5]
    assert await taken(store, limit=5) == jobs[5:]


async def test_jobs_of_one_call_go_in_the_order_given_whatever_their_ids(store: Store) -> None:
    shuffled = uuid7s(20)
    random.Random(7).shuffle(shuffled)
    await store.enqueue([new_job(id=id) for id in shuffled])
    assert await taken(store) == shuffled


async def test_calls_at_the_same_moment_keep_their_order_whatever_their_ids(store: Store) -> None:
    descending = uuid7s(5)[::-1]
    for id in descending:
        await store.enqueue([new_job(id=id)])
    assert await taken(store) == descending


async def test_the_order_holds_though_the_clock_goes_back(store: Store, clock: FakeClock) -> None:
    first = await put(store)
    clock.advance(hours=-2)
    second = await put(store)
    assert await taken(store, limit=1) == [first]
    assert await taken(store, limit=1) == [second]


async def test_a_more_urgent_newcomer_overtakes(store: Store) -> None:
    await put_many(store, 5)
    assert len(await taken(store, limit=2)) == 2
    urgent = await put(store, priority=1)
    assert await taken(store, limit=1) == [urgent]


async def test_a_more_urgent_newcomer_of_another_process_overtakes(store: Store, other: Store) -> None:
    await put_many(store, 5)
    assert len(await taken(store, limit=2)) == 2
    urgent = await put(other, priority=1)
    assert await taken(store, limit=1) == [urgent]


async def test_less_urgent_jobs_follow_in_the_same_batch(store: Store) -> None:
    late, early = await put_many(store, 2, priority=200), await put_many(store, 2, priority=50)
    assert await taken(store) == [*early, *late]


async def test_a_job_that_waits_again_keeps_its_place(store: Store) -> None:
    jobs = await put_many(store, 3)
    for outcome in (Outcome.RETRY, Outcome.RELEASE, Outcome.CRASH, Outcome.SUSPECT):
        claimed = await take(store)
        assert claimed.id == jobs[0]
        await settle(store, claimed, outcome)
    assert await taken(store) == jobs


async def test_a_job_given_back_by_another_process_keeps_its_place(store: Store, other: Store) -> None:
    jobs = await put_many(store, 4)
    lent = await take(other, BEN)
    assert await taken(store, limit=1) == [jobs[1]]
    await settle(other, lent, Outcome.RELEASE, BEN)
    assert await taken(store, limit=2) == [jobs[0], jobs[2]]


async def test_a_rescued_job_keeps_its_place(store: Store, clock: FakeClock) -> None:
    jobs = await put_many(store, 3)
    assert await taken(store, BEN, limit=1) == jobs[:1]
    clock.advance(31)
    await store.rescue(10, {}, str)
    assert await taken(store, CAT) == jobs


async def test_a_due_job_takes_the_place_of_its_coming(store: Store, clock: FakeClock) -> None:
    early = await put(store, delay_seconds=60)
    late = await put(store)
    clock.advance(61)
    latest = await put(store)
    assert await taken(store) == [early, late, latest]


async def test_due_jobs_go_in_the_order_of_their_coming_not_of_their_delays(store: Store, clock: FakeClock) -> None:
    delays = [50, 10, 30, 20, 40]
    jobs = [await put(store, delay_seconds=delay) for delay in delays]
    clock.advance(61)
    assert await taken(store) == jobs


async def test_a_due_job_goes_by_its_priority(store: Store, clock: FakeClock) -> None:
    ready = await put_many(store, 3, priority=10)
    due = await put(store, priority=1, delay_seconds=60)
    clock.advance(61)
    assert await taken(store, limit=1) == [due]
    assert await taken(store) == ready


async def test_a_job_with_a_limit_key_goes_by_the_same_order(store: Store) -> None:
    jobs = [
        await put(store, priority=priority, limit_key=key)
        for priority, key in [(2, "a"), (1, None), (2, None), (1, "b"), (1, "a"), (3, "a"), (1, None)]
    ]
    assert await taken(store) == [jobs[place] for place in (1, 3, 4, 6, 0, 2, 5)]


async def test_a_retried_job_goes_by_its_priority(store: Store) -> None:
    failed = await put(store, priority=1)
    await settle(store, await take(store), Outcome.FAILED)
    others = await put_many(store, 2, priority=2)
    await store.enqueue(new_jobs(1, queue="elsewhere"))
    await store.retry(EVERYTHING, 10)
    assert await taken(store) == [failed, *others]
