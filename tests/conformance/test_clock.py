"""Time: the store uses the clock given to it, or the database's, never the worker's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from conformance.builders import BEN, near, put, put_and_take, record, settle, taken, worker
from conformance.stores import Rig
from rowlock.clock import FakeClock, StoreClock
from rowlock.storage.contract import Store
from rowlock.storage.records import Outcome, Status


async def test_every_moment_of_a_jobs_life_is_the_clocks(store: Store, clock: FakeClock) -> None:
    begun = clock.now()
    job_id = await put(store)
    clock.advance(10)
    claimed_at = clock.now()
    (claimed,) = await store.claim("default", BEN, 1)
    clock.advance(10)
    await settle(store, claimed, owner=BEN, seconds=10)
    found = await record(store, job_id)
    assert near(found.created_at, begun)
    assert near(found.available_at, begun)
    assert near(found.started_at, claimed_at)
    assert near(found.finished_at, clock.now())


async def test_a_record_is_updated_when_it_changes(store: Store, clock: FakeClock) -> None:
    job_id = await put(store)
    assert near((await record(store, job_id)).updated_at, clock.now())
    clock.advance(10)
    (claimed,) = await store.claim("default", BEN, 1)
    assert near((await record(store, job_id)).updated_at, clock.now())
    clock.advance(10)
    await settle(store, claimed, Outcome.RETRY, BEN, delay_seconds=5)
    assert near((await record(store, job_id)).updated_at, clock.now())
    clock.advance(10)
    await store.cancel(job_id)
    assert near((await record(store, job_id)).updated_at, clock.now())


async def test_store_objects_with_different_clocks_each_use_their_own(rig: Rig, store: Store, clock: FakeClock) -> None:
    ahead = FakeClock(clock.now() + timedelta(hours=1))
    early = await rig.another(ahead)
    job_id = await put(store, delay_seconds=60)
    assert await taken(store) == []
    assert await taken(early) == [job_id]
    assert near((await record(store, job_id)).started_at, ahead.now())


async def test_without_a_fake_the_stores_own_clock_decides(rig: Rig, store: Store) -> None:
    real = await rig.another(StoreClock())
    claimed = await put_and_take(real)
    await real.beat([worker()])
    await settle(real, claimed)
    found = await record(real, claimed.id)
    moments = (found.created_at, found.available_at, found.started_at, found.finished_at, found.updated_at)
    for moment in moments:
        assert near(moment, datetime.now(UTC), within_seconds=60)
    assert found.created_at <= found.finished_at  # type: ignore[operator]


async def test_without_a_fake_delays_and_leases_go_by_the_stores_own_clock(rig: Rig, store: Store) -> None:
    real = await rig.another(StoreClock())
    await put(real, delay_seconds=3_600, queue="later")
    assert await taken(real, queue="later") == []
    await put_and_take(real)
    assert await real.rescue(10, {}, str) == []
    (peek,) = await real.peek(["later"])
    assert peek.due_in_seconds is not None
    assert 3_500 < peek.due_in_seconds <= 3_600


async def test_fractions_of_a_second_are_kept(store: Store, clock: FakeClock) -> None:
    clock.advance(0.123456)
    job_id = await put(store, delay_seconds=0.25)
    found = await record(store, job_id)
    assert near(found.created_at, clock.now())
    assert near(found.available_at, clock.now() + timedelta(seconds=0.25))


async def test_a_clock_that_goes_back_takes_no_live_lease(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    clock.advance(hours=-1)
    assert await store.rescue(10, {}, str) == []
    await settle(store, claimed)
    assert (await record(store, claimed.id)).status is Status.SUCCEEDED


async def test_far_futures_and_pasts_are_kept(store: Store, clock: FakeClock) -> None:
    far = datetime(9000, 1, 1, tzinfo=UTC)
    past = datetime(1971, 1, 1, tzinfo=UTC)
    later, earlier = await put(store, available_at=far), await put(store, available_at=past)
    assert near((await record(store, later)).available_at, far)
    assert await taken(store) == [earlier]


async def test_the_stores_time_is_that_of_its_clock(store: Store, clock: FakeClock) -> None:
    before = await store.now()
    clock.advance(hours=1)
    assert await store.now() - before == timedelta(hours=1)
    assert near(await store.now(), clock.now())
