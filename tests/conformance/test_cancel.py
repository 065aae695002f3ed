"""Cancel: a waiting job ends at once, the owner of a running job is asked to stop."""

from __future__ import annotations

import pytest

from conformance.builders import (
    ANN,
    near,
    put,
    put_and_end,
    put_and_take,
    record,
    settle,
    status,
    take,
    taken,
    worker,
)
from rowlock.clock import FakeClock
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.storage.records import CancelResult, JobFilter, Outcome, Status


@pytest.mark.parametrize("delay", [0, 60])
async def test_a_waiting_job_is_cancelled_at_once(store: Store, clock: FakeClock, delay: float) -> None:
    job_id = await put(store, delay_seconds=delay)
    clock.advance(1)
    assert await store.cancel(job_id) is CancelResult.CANCELLED
    found = await record(store, job_id)
    assert (found.status, found.attempts, found.lease) == (Status.CANCELLED, 0, 0)
    assert near(found.finished_at, clock.now())
    assert found.started_at is None
    clock.advance(3_600)
    assert await taken(store) == []


@pytest.mark.parametrize("delay", [0, 60])
async def test_a_job_with_a_limit_key_is_cancelled_as_any_other(store: Store, delay: float) -> None:
    job_id = await put(store, delay_seconds=delay, limit_key="api:acme")
    assert await store.cancel(job_id) is CancelResult.CANCELLED
    assert await taken(store) == []


async def test_a_job_waiting_for_its_retry_is_cancelled_with_its_history(store: Store) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, Outcome.CRASH, delay_seconds=60)
    assert await store.cancel(claimed.id) is CancelResult.CANCELLED
    found = await record(store, claimed.id)
    assert (found.status, found.attempts, found.deaths, found.lease) == (Status.CANCELLED, 1, 1, 1)


async def test_the_owner_of_a_running_job_is_asked(store: Store) -> None:
    claimed = await put_and_take(store)
    assert await store.cancel(claimed.id) is CancelResult.REQUESTED
    found = await record(store, claimed.id)
    assert (found.status, found.cancel_requested, found.lock_owner) == (Status.PROCESSING, True, ANN)
    (held,) = await store.held(ANN)
    assert held.cancel_requested is True
    (beaten,) = await store.beat([worker(ANN)])
    assert beaten.cancel_requested is True


async def test_asking_again_changes_nothing(store: Store) -> None:
    claimed = await put_and_take(store)
    answers = [await store.cancel(claimed.id) for _ in range(2)]
    assert answers == [CancelResult.REQUESTED, CancelResult.REQUESTED]


async def test_a_request_leaves_the_lease_to_its_owner(store: Store) -> None:
    claimed = await put_and_take(store)
    await store.cancel(claimed.id)
    await settle(store, claimed, Outcome.CANCELLED, error="stopped by hand")
    found = await record(store, claimed.id)
    assert (found.status, found.error) == (Status.CANCELLED, "stopped by hand")


@pytest.mark.parametrize(
    ("outcome", "expected"), [(Outcome.SUCCEEDED, Status.SUCCEEDED), (Outcome.FAILED, Status.FAILED)]
)
async def test_a_job_that_ends_before_it_hears_the_request_ends_as_it_did(
    store: Store, outcome: Outcome, expected: Status
) -> None:
    claimed = await put_and_take(store)
    await store.cancel(claimed.id)
    await settle(store, claimed, outcome)
    assert await status(store, claimed.id) is expected


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.RELEASE, Outcome.CRASH, Outcome.SUSPECT])
async def test_a_job_that_was_to_be_cancelled_does_not_run_again(store: Store, outcome: Outcome) -> None:
    claimed = await put_and_take(store)
    await store.cancel(claimed.id)
    await settle(store, claimed, outcome, delay_seconds=5)
    assert await status(store, claimed.id) is Status.CANCELLED
    assert await taken(store) == []


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED])
async def test_a_finished_job_stays_as_it_is(store: Store, outcome: Outcome) -> None:
    job_id = await put_and_end(store, outcome)
    before = await record(store, job_id)
    assert await store.cancel(job_id) is CancelResult.ALREADY_FINAL
    assert await record(store, job_id) == before


@pytest.mark.parametrize("job_id", ["", "42", "not-a-uuid", "x" * 36, "0" * 32, "' OR 1=1 --", "日本"])
async def test_an_id_that_is_not_a_uuid_is_nobodys(store: Store, job_id: str) -> None:
    await put(store)
    assert await store.cancel(job_id) is CancelResult.NOT_FOUND
    assert await store.get(job_id) is None


async def test_an_unknown_job_is_not_found(store: Store) -> None:
    assert await store.cancel(uuid7()) is CancelResult.NOT_FOUND
    assert await store.get(uuid7()) is None


async def test_a_cancelled_job_is_cancelled_once(store: Store) -> None:
    job_id = await put(store)
    await store.cancel(job_id)
    assert await store.cancel(job_id) is CancelResult.ALREADY_FINAL


async def test_a_request_is_forgotten_when_an_operator_retries_the_job(store: Store) -> None:
    claimed = await put_and_take(store)
    await store.cancel(claimed.id)
    await settle(store, claimed, Outcome.CANCELLED)
    await store.retry(JobFilter(ids=[claimed.id]), 1)
    await take(store)
    assert (await record(store, claimed.id)).cancel_requested is False
    (held,) = await store.held(ANN)
    assert held.cancel_requested is False
