"""Enqueue: all or none, in order, durable, and read back unchanged."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from conformance.builders import EVERYTHING, flat, near, new_job, new_jobs, put, record, status, take, taken
from rowlock.clock import FakeClock
from rowlock.errors import RowlockError
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.storage.records import Receipt, Status


async def test_a_new_job_is_queued_and_its_receipt_says_created(store: Store) -> None:
    job = new_job()
    assert await store.enqueue([job]) == [Receipt(job.id, True)]
    assert await status(store, job.id) is Status.QUEUED


async def test_every_field_of_a_new_job_is_kept(store: Store) -> None:
    job = new_job(
        type="report.build",
        payload='{"year": 2030}',
        queue="reports",
        priority=7,
        max_attempts=3,
        visibility_ms=1_500,
        company_id="acme",
        limit_key="api:acme",
        trace="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    )
    await store.enqueue([job])
    found = await record(store, job.id)
    assert (found.type, json.loads(found.payload), found.queue, found.priority) == (
        "report.build",
        {"year": 2030},
        "reports",
        7,
    )
    assert (found.max_attempts, found.visibility_timeout_ms, found.company_id) == (3, 1_500, "acme")
    assert (found.limit_key, found.trace) == (job.limit_key, job.trace)


async def test_a_new_job_has_no_history(store: Store) -> None:
    found = await record(store, await put(store))
    assert (found.attempts, found.deaths, found.lease) == (0, 0, 0)
    assert (found.locked_at, found.lock_owner, found.started_at, found.finished_at) == (None, None, None, None)
    assert (found.progress, found.message, found.result, found.error) == (None, None, None, None)
    assert (found.company_id, found.limit_key, found.unique_key, found.trace) == (None, None, None, None)
    assert found.cancel_requested is False


async def test_enqueueing_nothing_does_nothing(store: Store) -> None:
    assert await store.enqueue([]) == []
    assert await store.count(EVERYTHING, 10) == 0


async def test_receipts_come_in_the_order_of_the_jobs(store: Store) -> None:
    jobs = new_jobs(20)
    jobs.reverse()
    assert [receipt.job_id for receipt in await store.enqueue(jobs)] == [job.id for job in jobs]


async def test_a_thousand_jobs_go_in_with_one_call_and_come_out_in_order(store: Store) -> None:
    jobs = new_jobs(1_000)
    receipts = await store.enqueue(jobs)
    assert [receipt.job_id for receipt in receipts] == [job.id for job in jobs]
    assert await taken(store, limit=1_000) == [job.id for job in jobs]


async def test_jobs_of_one_call_may_differ_in_every_field(store: Store, clock: FakeClock) -> None:
    jobs = [
        new_job(),
        new_job(
            type="b",
            payload="{}",
            queue="q2",
            priority=1,
            max_attempts=1,
            visibility_ms=9_000,
            delay_seconds=5,
            company_id="c",
            limit_key="l",
            trace="t",
        ),
        new_job(available_at=clock.now() + timedelta(hours=1), queue="q3"),
        new_job(priority=-5),
    ]
    await store.enqueue(jobs)
    for job in jobs:
        found = await record(store, job.id)
        given = (job.type, job.queue, job.priority, job.max_attempts, job.visibility_ms)
        assert (found.type, found.queue, found.priority, found.max_attempts, found.visibility_timeout_ms) == given
        assert (found.company_id, found.limit_key, found.trace) == (job.company_id, job.limit_key, job.trace)
        assert json.loads(found.payload) == json.loads(job.payload)
        assert near(found.available_at, job.available_at or clock.now() + timedelta(seconds=job.delay_seconds))


async def test_two_equal_jobs_without_a_key_are_two_jobs(store: Store) -> None:
    job = new_job()
    receipts = await store.enqueue([job, job._replace(id=uuid7())])
    assert [receipt.created for receipt in receipts] == [True, True]
    assert len(await taken(store)) == 2


async def test_an_id_is_never_recorded_twice(store: Store) -> None:
    job = new_job()
    await store.enqueue([job])
    with pytest.raises(RowlockError):
        await store.enqueue([new_job(), job])
    assert await store.count(EVERYTHING, 10) == 1


@pytest.mark.parametrize(
    "payload",
    [
        {"text": "zażółć gęślą jaźń 日本語 🛶 \u202e"},
        {"text": "a\u0000b"},
        {"text": "quotes ' \" $1 ? %s :x {} \\ \n\r\t"},
        {"deep": [[[[{"a": [None, True, -1.5e-7, 12345678901234567890]}]]]]},
        {"": "", "a b": {"": []}},
        {"numbers": [0, -0.0, 1e300, 2**63, 0.1]},
    ],
    ids=["unicode", "nul", "quotes", "nested", "empty-keys", "numbers"],
)
@pytest.mark.parametrize("ascii_only", [True, False], ids=["escaped", "raw"])
async def test_a_payload_comes_back_as_it_was_given(store: Store, payload: dict[str, object], ascii_only: bool) -> None:
    job_id = await put(store, payload=json.dumps(payload, ensure_ascii=ascii_only))
    assert json.loads((await record(store, job_id)).payload) == payload
    assert json.loads((await take(store)).payload) == payload


async def test_the_order_of_a_payloads_keys_is_kept(store: Store) -> None:
    job_id = await put(store, payload='{"z": 1, "a": 2, "m": 3}')
    assert list(json.loads((await record(store, job_id)).payload)) == ["z", "a", "m"]


async def test_a_payload_of_a_megabyte_comes_back_whole(store: Store) -> None:
    payload = json.dumps({"text": "ż" * 500_000}, ensure_ascii=False)
    await put(store, payload=payload)
    assert json.loads((await take(store)).payload) == json.loads(payload)


async def test_names_may_be_any_text(store: Store) -> None:
    odd = "it's; DROP TABLE jobs -- 日本 {} % $1 ?"
    job_id = await put(store, type=odd, queue=odd, company_id=odd, limit_key=odd)
    claimed = await take(store, queue=odd)
    assert (claimed.id, claimed.type, claimed.company_id, claimed.limit_key) == (job_id, odd, odd, odd)


@pytest.mark.parametrize("seconds", [0.5, 60, 86_400, 20 * 365 * 86_400])
async def test_a_delayed_job_is_available_when_its_delay_is_over(
    store: Store, clock: FakeClock, seconds: float
) -> None:
    job_id = await put(store, delay_seconds=seconds)
    found = await record(store, job_id)
    assert found.status is Status.QUEUED
    assert near(found.available_at, clock.now() + timedelta(seconds=seconds))
    clock.advance(seconds - 0.1)
    assert await taken(store) == []
    clock.advance(0.2)
    assert await taken(store) == [job_id]


async def test_a_job_may_name_the_moment_when_it_is_available(store: Store, clock: FakeClock) -> None:
    moment = datetime(2030, 1, 1, 3, 0, tzinfo=timezone(timedelta(hours=2)))
    job_id = await put(store, available_at=moment)
    assert near((await record(store, job_id)).available_at, datetime(2030, 1, 1, 1, 0, tzinfo=UTC))
    clock.advance(minutes=59)
    assert await taken(store) == []
    clock.advance(minutes=2)
    assert await taken(store) == [job_id]


async def test_a_moment_in_the_past_is_now(store: Store, clock: FakeClock) -> None:
    job_id = await put(store, available_at=clock.now() - timedelta(days=400))
    found = await record(store, job_id)
    assert found.available_at == found.created_at
    assert await taken(store) == [job_id]


@pytest.mark.parametrize("priority", [-32_768, -1, 0, 32_767])
async def test_a_priority_may_be_any_small_integer(store: Store, priority: int) -> None:
    job_id = await put(store, priority=priority)
    assert (await record(store, job_id)).priority == priority
    assert (await take(store)).priority == priority


async def test_limits_of_attempts_and_leases_may_be_large(store: Store) -> None:
    weeks_ms = 20 * 86_400_000
    job_id = await put(store, max_attempts=1_000, visibility_ms=weeks_ms)
    found = await record(store, job_id)
    assert (found.max_attempts, found.visibility_timeout_ms) == (1_000, weeks_ms)


async def test_an_enqueued_job_is_seen_by_every_store_object(store: Store, other: Store) -> None:
    job_id = await put(store)
    assert await status(other, job_id) is Status.QUEUED
    assert await taken(other) == [job_id]


async def test_a_job_that_cannot_be_recorded_takes_its_batch_with_it(store: Store) -> None:
    known = new_job()
    await store.enqueue([known])
    batch = new_jobs(5)
    with pytest.raises(RowlockError):
        await store.enqueue([*batch, known])
    assert [await store.get(job.id) for job in batch] == [None] * 5


async def test_depth_counts_what_waits_ready_or_delayed(store: Store) -> None:
    await store.enqueue([*new_jobs(3), *new_jobs(2, delay_seconds=60), *new_jobs(4, queue="other")])
    await take(store)
    assert await store.depth("default", 100) == 4
    assert await store.depth("other", 100) == 4
    assert await store.depth("nobody's", 100) == 0


async def test_depth_counts_no_further_than_asked(store: Store) -> None:
    await store.enqueue(flat([new_jobs(6), new_jobs(6, delay_seconds=60)]))
    assert await store.depth("default", 5) == 5
    assert await store.depth("default", 8) == 8
    assert await store.depth("default", 100) == 12
