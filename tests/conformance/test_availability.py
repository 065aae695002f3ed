"""Availability: the time since when a job could run, in every state."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from conformance.builders import near, put, record, settle, take
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.records import JobId, Outcome


async def test_a_job_keeps_the_time_since_when_it_could_run(store: Store, clock: FakeClock) -> None:
    async def available_at(job_id: JobId) -> datetime:
        return (await record(store, job_id)).available_at

    start = clock.now()
    job_id = await put(store, delay_seconds=20, limit_key="api")
    due = start + timedelta(seconds=20)
    clock.advance(25)
    claimed = await take(store)
    assert near(await available_at(job_id), due), "of a running job"
    await settle(store, claimed, Outcome.RELEASE, seconds=None)
    assert near(await available_at(job_id), due), "it did not start"
    claimed = await take(store)
    clock.advance(5)
    await settle(store, claimed, Outcome.RETRY)
    retried = start + timedelta(seconds=30)
    assert near(await available_at(job_id), retried), "of a job that was retried"
    clock.advance(5)
    claimed = await take(store)
    assert near(await available_at(job_id), retried)
    await settle(store, claimed)
    assert near(await available_at(job_id), retried), "of a job that is over"


@pytest.mark.parametrize("limit_key", [None, "api"])
async def test_a_job_that_never_waited_again_could_run_since_it_was_created(
    store: Store, clock: FakeClock, limit_key: str | None
) -> None:
    created = clock.now()
    job_id = await put(store, limit_key=limit_key)
    clock.advance(5)
    claimed = await take(store)
    assert near((await record(store, job_id)).available_at, created)
    await settle(store, claimed, Outcome.RELEASE, seconds=None)
    assert near((await record(store, job_id)).available_at, created)
    claimed = await take(store)
    clock.advance(31)
    (rescued,) = await store.rescue(10, {}, str)
    assert rescued.job_id == job_id
    assert near((await record(store, job_id)).available_at, clock.now())
    later = await put(store, limit_key=limit_key, delay_seconds=60)
    due = (await record(store, later)).available_at
    await store.cancel(later)
    assert near((await record(store, later)).available_at, due)
