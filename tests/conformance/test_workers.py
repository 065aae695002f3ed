"""beat, retire, workers: the live workers and the leases that they hold."""

from __future__ import annotations

from conformance.builders import ANN, BEN, CAT, near, put, put_and_take, put_many, record, settle, worker
from rowlock.clock import FakeClock
from rowlock.ids import uuid7s
from rowlock.storage.contract import Store
from rowlock.storage.records import Worker


async def test_nobody_works_at_first(store: Store) -> None:
    assert await store.workers() == []


async def test_a_beating_worker_becomes_known(store: Store, clock: FakeClock) -> None:
    await store.beat([Worker(ANN, "host-1:4711", ("mail", "日本"))])
    (found,) = await store.workers()
    assert (found.id, found.name, found.queues) == (ANN, "host-1:4711", ("mail", "日本"))
    assert near(found.started_at, clock.now())
    assert near(found.seen_at, clock.now())


async def test_what_a_worker_has_handlers_for_is_recorded_and_stays(store: Store) -> None:
    types = ("mail.send", "日本", "a b")
    await store.beat([Worker(ANN, "host-1:4711", ("mail",)), Worker(BEN, "host-1:4712", ("mail",), ("first",))])
    await store.beat([Worker(ANN, "host-1:4711", ("mail",), types)])
    await store.beat([Worker(ANN, "host-1:4711", ("mail",)), Worker(BEN, "host-1:4712", ("mail",))])
    assert {found.id: found.types for found in await store.workers()} == {ANN: types, BEN: ("first",)}


async def test_a_beat_moves_when_a_worker_was_seen_and_not_when_it_started(store: Store, clock: FakeClock) -> None:
    await store.beat([worker(ANN)])
    begun = clock.now()
    clock.advance(10)
    await store.beat([worker(ANN)])
    (found,) = await store.workers()
    assert near(found.started_at, begun)
    assert near(found.seen_at, clock.now())


async def test_one_beat_is_for_many_workers(store: Store) -> None:
    await put_and_take(store, ANN)
    await put_and_take(store, BEN)
    await put_and_take(store, CAT)
    held = await store.beat([worker(ANN), worker(BEN)])
    assert {lease.owner for lease in held} == {ANN, BEN}
    assert {found.id for found in await store.workers()} == {ANN, BEN}


async def test_a_beat_of_nobody_does_nothing(store: Store) -> None:
    await put_and_take(store)
    assert await store.beat([]) == []
    assert await store.workers() == []


async def test_a_beat_returns_the_leases_that_its_workers_hold(store: Store) -> None:
    await put_many(store, 3)
    first, second, third = await store.claim("default", ANN, 3)
    await settle(store, second)
    held = await store.beat([worker(ANN)])
    assert {(lease.job_id, lease.lease, lease.owner) for lease in held} == {
        (first.id, first.lease, ANN),
        (third.id, third.lease, ANN),
    }


async def test_a_beat_and_held_say_the_same(store: Store) -> None:
    await put_many(store, 2)
    await store.claim("default", ANN, 2)
    assert sorted(await store.beat([worker(ANN)])) == sorted(await store.held(ANN))


async def test_a_beat_renews_the_lock_that_the_record_shows(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    begun = clock.now()
    clock.advance(10)
    await store.beat([worker(ANN)])
    found = await record(store, claimed.id)
    assert near(found.locked_at, clock.now())
    assert near(found.started_at, begun)


async def test_a_retired_worker_is_forgotten(store: Store) -> None:
    await store.beat([worker(ANN), worker(BEN)])
    await store.retire(ANN)
    assert [found.id for found in await store.workers()] == [BEN]


async def test_retiring_twice_or_a_stranger_does_nothing(store: Store) -> None:
    await store.beat([worker(ANN)])
    for _ in range(2):
        await store.retire(BEN)
    assert [found.id for found in await store.workers()] == [ANN]


async def test_a_silent_worker_stays_known(store: Store, clock: FakeClock) -> None:
    await store.beat([worker(ANN)])
    clock.advance(days=2)
    assert [found.id for found in await store.workers()] == [ANN]


async def test_every_process_sees_the_workers(store: Store, other: Store) -> None:
    await store.beat([worker(ANN)])
    assert [found.id for found in await other.workers()] == [ANN]


async def test_a_beat_does_not_touch_waiting_jobs(store: Store, clock: FakeClock) -> None:
    job_id = await put(store)
    before = await record(store, job_id)
    clock.advance(10)
    await store.beat([worker(ANN)])
    assert await record(store, job_id) == before


async def test_a_hundred_workers_beat_at_once(store: Store) -> None:
    await store.beat([worker(id) for id in uuid7s(100)])
    assert len(await store.workers()) == 100
