"""Open, close and diagnose: the life of a store object."""

from __future__ import annotations

import asyncio

import pytest

from conformance.builders import put, status, taken
from conformance.stores import PASSWORD, Rig
from rowlock.clock import FakeClock
from rowlock.errors import StoreUnavailable
from rowlock.storage.contract import Store
from rowlock.storage.records import Finding, Severity, Status


async def test_a_database_that_cannot_be_reached_is_named_without_its_password(rig: Rig, clock: FakeClock) -> None:
    store = rig.nowhere(clock)
    with pytest.raises(StoreUnavailable) as failure:
        await store.open()
    assert str(failure.value)
    assert PASSWORD not in str(failure.value)
    await store.close()


async def test_a_url_is_shown_without_its_password(store: Store) -> None:
    assert store.url
    assert PASSWORD not in store.url
    assert PASSWORD not in repr(store)


async def test_closing_twice_is_as_good_as_once(store: Store) -> None:
    await store.close()
    await store.close()


async def test_a_store_that_was_never_opened_can_be_closed(rig: Rig, clock: FakeClock) -> None:
    await rig.nowhere(clock).close()


async def test_jobs_outlive_the_store_object(rig: Rig, store: Store, clock: FakeClock) -> None:
    job_id = await put(store)
    await store.close()
    again = await rig.another(clock)
    assert await status(again, job_id) is Status.QUEUED
    assert await taken(again) == [job_id]


async def test_closing_one_store_object_leaves_the_other(store: Store, other: Store) -> None:
    await store.close()
    job_id = await put(other)
    assert await taken(other) == [job_id]


async def test_a_closed_store_refuses_everything_until_it_is_opened_again(rig: Rig, store: Store) -> None:
    job_id = await put(store)
    await store.close()
    for verb in (store.warm, lambda: store.depth("default", 1), lambda: put(store)):
        with pytest.raises(StoreUnavailable, match="open the store before using it"):
            await verb()
    await rig.connect(store)
    assert await taken(store) == [job_id]


async def test_several_workers_of_a_process_warm_its_store_at_once(store: Store) -> None:
    await asyncio.gather(*(store.warm() for _ in range(4)))
    assert await taken(store) == []


async def test_a_store_knows_its_clock(store: Store, clock: FakeClock) -> None:
    assert store.clock is clock


async def test_what_is_found_wrong_comes_with_advice(store: Store) -> None:
    findings = await store.diagnose()
    assert findings
    assert all(isinstance(finding, Finding) for finding in findings)
    for finding in findings:
        assert finding.check
        assert finding.message
        assert finding.advice or finding.severity is Severity.OK
