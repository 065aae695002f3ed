"""Prune also deletes workers that have vanished and hold no lease."""

from __future__ import annotations

from conformance.builders import ANN, BEN, put_and_take, worker
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store


async def test_a_worker_that_vanished_is_forgotten_after_an_hour(store: Store, clock: FakeClock) -> None:
    await store.beat([worker(ANN), worker(BEN)])
    clock.advance(hours=1, seconds=1)
    await store.beat([worker(BEN)])
    await store.prune({}, 100)
    assert [found.id for found in await store.workers()] == [BEN]


async def test_a_worker_that_holds_a_lease_is_not_forgotten(store: Store, clock: FakeClock) -> None:
    await store.beat([worker(ANN)])
    await put_and_take(store, ANN)
    clock.advance(hours=2)
    await store.prune({}, 100)
    assert [found.id for found in await store.workers()] == [ANN]
