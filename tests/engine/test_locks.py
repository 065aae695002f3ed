"""Idempotency locks: work that must not be done twice."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from engine.conftest import MakeApp
from engine.running import Log, drain, record, soon, working
from engine.watched import ALWAYS
from rowlock import FakeClock, Job, Permanent, Rowlock, SettingsError, Status
from rowlock.clock import StoreClock
from rowlock.control import locks
from rowlock.jobs.payload import loads, payload_hash
from rowlock.observe.redaction import Redactor
from rowlock.storage.contract import Store
from rowlock.storage.records import JobFilter
from rowlock.storage.reliability import LockDecision, LockKey

KEY = LockKey("acme", "snapshot", "acme:full")


def declare(app: Rowlock) -> list[str | None]:
    """Declare a job type with a lock. Returns the list of months that it ran for."""
    ran: list[str | None] = []

    @app.job("snapshot", lock=app.lock("snapshot", "{companyId}:{month|full}"))
    async def snapshot(job: Job, companyId: str, month: str | None = None, note: str = "") -> dict[str, Any]:
        if note == "fail":
            raise Permanent("no")
        ran.append(month)
        return {"ran": True}

    return ran


async def result(app: Rowlock, job_id: str) -> Any:
    job = await app.get(job_id)
    assert job is not None
    assert job.status is Status.SUCCEEDED
    return loads(job.result or "null")


async def run(app: Rowlock, **payload: Any) -> str:
    receipt = await app.enqueue("snapshot", {"companyId": "acme"} | payload)
    await drain(app)
    return receipt.job_id


async def test_the_same_work_is_done_once_and_the_second_job_says_so(app: Rowlock) -> None:
    ran = declare(app)
    assert await result(app, await run(app)) == {"ran": True}
    assert await result(app, await run(app)) == {"skipped": True, "reason": "already_completed"}
    assert ran == [None]


async def test_another_scope_and_other_data_are_other_work(app: Rowlock) -> None:
    ran = declare(app)
    await run(app)
    await run(app, month="2026-11")
    await run(app, note="corrected")
    assert ran == [None, "2026-11", None]


async def test_work_that_failed_may_be_tried_again(app: Rowlock) -> None:
    ran = declare(app)
    failed = await app.get(await run(app, note="fail"))
    assert failed is not None
    assert failed.status is Status.FAILED
    await run(app, note="again")
    assert ran == [None]


async def test_work_that_runs_elsewhere_is_skipped_and_taken_over_when_stale(
    app: Rowlock, store: Store, clock: FakeClock
) -> None:
    ran = declare(app)
    other = await locks.take(store, KEY, "0" * 16, "someone", 1_800)
    assert other.decision is LockDecision.PROCEED
    clock.advance(29 * 60)
    assert await result(app, await run(app)) == {"skipped": True, "reason": "already_running"}
    clock.advance(61)
    assert await result(app, await run(app)) == {"ran": True}
    assert ran == [None]
    assert not await locks.end(store, KEY, other.token, completed=True)  # the late holder cannot complete it


@pytest.mark.every_store
async def test_the_next_attempt_of_a_job_takes_its_own_lock_over(app: Rowlock, store: Store) -> None:
    """A worker died while it held the lock: its job must run again, not be skipped because of its own lock."""
    attempts: list[int] = []

    @app.job("snapshot", lock=app.lock("snapshot", "{companyId}:full"))
    async def snapshot(job: Job, companyId: str) -> None:
        attempts.append(job.attempt)

    job_id = (await app.enqueue("snapshot", {"companyId": "acme"})).job_id
    lock = await locks.take(store, KEY, "0" * 16, job_id, 1_800)  # as the lost attempt left it
    assert lock.decision is LockDecision.PROCEED
    await drain(app)
    assert attempts == [1]
    assert (await record(app, job_id)).status is Status.SUCCEEDED
    assert not await locks.end(store, KEY, lock.token, completed=False)


async def test_locks_that_cannot_be_had_do_not_stop_the_work(app: Rowlock, log: Log) -> None:
    ran = declare(app)
    app.store.refuse("read job_idempotency_locks", ALWAYS)
    assert await result(app, await run(app)) == {"ran": True}
    assert ran == [None]
    (line,) = log.of("lock.failed_open")
    assert line["lock"] == "acme/snapshot/acme:full"


async def test_a_block_of_any_code_is_guarded(app: Rowlock, store: Store) -> None:
    async def work(data: str) -> str | None:
        async with app.lock("nightly", "2026-11", payload={"data": data}) as lock:
            return lock.reason

    assert await work("a") is None
    assert await work("a") == "already_completed"
    assert await work("b") is None
    with pytest.raises(ValueError, match="on purpose"):
        async with app.lock("nightly", "2026-12"):
            raise ValueError("on purpose")
    async with app.lock("nightly", "2026-12") as lock:
        assert lock.decision is LockDecision.RETRY


def test_a_scope_that_names_no_field_of_the_handler_is_refused() -> None:
    app = Rowlock("sqlite:///nowhere.db")
    with pytest.raises(SettingsError, match="names month, which the handler does not have; its parameters: companyId"):

        @app.job("a", lock=app.lock("a", "{companyId}:{month}"))
        async def a(job: Job, companyId: str) -> None: ...


def test_a_batch_handler_is_not_guarded() -> None:
    app = Rowlock("sqlite:///nowhere.db")
    with pytest.raises(SettingsError, match="a batch handler cannot be guarded"):

        @app.job("a", batch=10, lock=app.lock("a", "all"))
        async def a(jobs: list[Job]) -> None: ...


async def test_a_payload_without_the_field_of_the_scope_fails_for_good(app: Rowlock) -> None:
    @app.job("snapshot", lock=app.lock("snapshot", "{month}"))
    async def snapshot(job: Job, companyId: str = "", month: str | None = None) -> None: ...

    job = await app.get(await run(app))
    assert job is not None
    assert (job.status, job.error) == (
        Status.FAILED,
        "BadPayload: the scope of its lock needs 'month', which the payload lacks",
    )


def test_the_hash_knows_neither_secrets_nor_the_order_of_keys() -> None:
    redact = Redactor()
    one = payload_hash({"a": 1, "b": [{"token": "x", "c": 2}]}, redact)
    assert one == payload_hash({"b": [{"c": 2, "token": "y"}], "a": 1, "api_key": "z"}, redact)
    assert one != payload_hash({"a": 1, "b": [{"c": 3}]}, redact)
    assert len(one) == 16
    assert int(one, 16) >= 0


async def test_a_guarded_job_costs_four_statements_more(app: Rowlock) -> None:
    declare(app)
    await run(app)
    assert [app.store.calls[f"{verb} job_idempotency_locks"] for verb in ("read", "insert", "update")] == [2, 1, 1]


@pytest.mark.every_store
@pytest.mark.parametrize("block", [False, True], ids=["declared", "in_a_block"])
async def test_work_that_stopped_early_is_not_completed(app: Rowlock, block: bool) -> None:
    entered, ran = asyncio.Event(), list[str]()

    async def work(job: Job) -> None:
        if job.lease > 1:
            ran.append(job.id)
            return
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert job.cancelled
            return  # like a handler that leaves the rest to the next attempt

    @app.job("declared", lock=app.lock("work", "all"))
    async def declared(job: Job) -> None:
        await work(job)

    @app.job("in_a_block")
    async def in_a_block(job: Job) -> None:
        async with app.lock("work", "all") as lock:
            if not lock.skipped:
                await work(job)

    job_id = (await app.enqueue("in_a_block" if block else "declared")).job_id
    async with working(app):
        await soon(entered.wait())
        await app.cancel(job_id)
        await soon(app.store.next("settle"))
    assert (await record(app, job_id)).status is Status.CANCELLED
    await app.store.retry(JobFilter(ids=[job_id]), 1)
    await drain(app)
    assert (await record(app, job_id)).status is Status.SUCCEEDED
    assert ran == [job_id]


async def test_a_shutdown_that_stops_the_work_leaves_it_to_the_next_attempt(make_app: MakeApp) -> None:
    app = await make_app(grace_seconds=0.05)
    entered, ran = asyncio.Event(), list[int]()

    @app.job("a", lock=app.lock("work", "all"))
    def a(job: Job) -> None:
        if job.lease > 1:
            ran.append(job.attempt)
            return
        loop.call_soon_threadsafe(entered.set)
        while True:
            try:
                while not job.cancelled:
                    time.sleep(0.01)
            except BaseException:  # like a handler that finishes its step first
                continue
            return

    loop = asyncio.get_running_loop()
    job_id = (await app.enqueue("a")).job_id
    async with working(app):
        await soon(entered.wait())
    await drain(app)
    assert (await record(app, job_id)).status is Status.SUCCEEDED
    assert ran == [1]


@pytest.mark.every_store
async def test_a_lock_whose_holder_works_does_not_go_stale(make_app: MakeApp) -> None:
    app = await make_app(lock_stale_minutes=0.05, clock=StoreClock())
    entered, release = asyncio.Event(), asyncio.Event()

    @app.job("a", lock=app.lock("work", "all"))
    async def a(job: Job) -> None:
        entered.set()
        await release.wait()

    async with working(app):
        first = (await a.enqueue()).job_id
        await soon(entered.wait())
        for _ in range(5):  # three of these take longer than a lock takes to become stale
            assert await soon(app.store.next("update job_idempotency_locks"))
        second = (await a.enqueue()).job_id
        await soon(app.store.next("settle"))
        assert await result(app, second) == {"skipped": True, "reason": "already_running"}
        release.set()
    assert (await record(app, first)).status is Status.SUCCEEDED
