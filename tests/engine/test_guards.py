"""Guards: work that must not be done twice."""

from __future__ import annotations

from typing import Any

import pytest

from engine.running import Log, drain, record
from engine.watched import ALWAYS
from rowlock import FakeClock, Job, Permanent, Rowlock, SettingsError, Status
from rowlock.jobs.payload import loads, payload_hash
from rowlock.observe.redact import Redactor
from rowlock.storage.base import Store
from rowlock.storage.reliability import LockKey, LockVerdict

KEY = LockKey("acme", "snapshot", "acme:full")


def declare(app: Rowlock) -> list[str | None]:
    """A guarded type, and the months that it was run for."""
    ran: list[str | None] = []

    @app.job("snapshot", guard=app.guard("snapshot", "{companyId}:{month|full}"))
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
    other = await store.take_lock(KEY, "0" * 16, "someone", 1_800)
    assert other.verdict is LockVerdict.PROCEED
    clock.advance(29 * 60)
    assert await result(app, await run(app)) == {"skipped": True, "reason": "already_running"}
    clock.advance(61)
    assert await result(app, await run(app)) == {"ran": True}
    assert ran == [None]
    assert not await store.end_lock(KEY, other.token, completed=True)  # the late one cannot say that it is done


async def test_the_next_attempt_of_a_job_takes_its_own_lock_over(app: Rowlock, store: Store) -> None:
    """A worker died while it held the lock: its job must run again, not be skipped for its own sake."""
    attempts: list[int] = []

    @app.job("snapshot", guard=app.guard("snapshot", "{companyId}:full"))
    async def snapshot(job: Job, companyId: str) -> None:
        attempts.append(job.attempt)

    job_id = (await app.enqueue("snapshot", {"companyId": "acme"})).job_id
    lock = await store.take_lock(KEY, "0" * 16, job_id, 1_800)  # as the attempt that was lost left it
    assert lock.verdict is LockVerdict.PROCEED
    await drain(app)
    assert attempts == [1]
    assert (await record(app, job_id)).status is Status.SUCCEEDED
    assert not await store.end_lock(KEY, lock.token, completed=False)


async def test_locks_that_cannot_be_had_do_not_stop_the_work(app: Rowlock, log: Log) -> None:
    ran = declare(app)
    app.store.refuse("take_lock", ALWAYS)
    assert await result(app, await run(app)) == {"ran": True}
    assert ran == [None]
    (line,) = log.of("lock.failed_open")
    assert line["lock"] == "acme/snapshot/acme:full"


async def test_a_block_of_any_code_is_guarded(app: Rowlock, store: Store) -> None:
    async def work(data: str) -> str | None:
        async with app.guard("nightly", "2026-11", payload={"data": data}) as lock:
            return lock.reason

    assert await work("a") is None
    assert await work("a") == "already_completed"
    assert await work("b") is None
    with pytest.raises(ValueError, match="on purpose"):
        async with app.guard("nightly", "2026-12"):
            raise ValueError("on purpose")
    async with app.guard("nightly", "2026-12") as lock:
        assert lock.verdict is LockVerdict.RETRY


def test_a_scope_that_names_no_field_of_the_handler_is_refused() -> None:
    app = Rowlock("sqlite:///nowhere.db")
    with pytest.raises(SettingsError, match="names month, which the handler does not take; it takes companyId"):

        @app.job("a", guard=app.guard("a", "{companyId}:{month}"))
        async def a(job: Job, companyId: str) -> None: ...


def test_a_batch_handler_is_not_guarded() -> None:
    app = Rowlock("sqlite:///nowhere.db")
    with pytest.raises(SettingsError, match="a batch handler cannot be guarded"):

        @app.job("a", batch=10, guard=app.guard("a", "all"))
        async def a(jobs: list[Job]) -> None: ...


async def test_a_payload_without_the_field_of_the_scope_fails_for_good(app: Rowlock) -> None:
    @app.job("snapshot", guard=app.guard("snapshot", "{month}"))
    async def snapshot(job: Job, companyId: str = "", month: str | None = None) -> None: ...

    job = await app.get(await run(app))
    assert job is not None
    assert (job.status, job.error) == (
        Status.FAILED,
        "BadPayload: the scope of its guard needs 'month', which the payload lacks",
    )


def test_the_hash_knows_neither_secrets_nor_the_order_of_keys() -> None:
    redact = Redactor()
    one = payload_hash({"a": 1, "b": [{"token": "x", "c": 2}]}, redact)
    assert one == payload_hash({"b": [{"c": 2, "token": "y"}], "a": 1, "api_key": "z"}, redact)
    assert one != payload_hash({"a": 1, "b": [{"c": 3}]}, redact)
    assert len(one) == 16
    assert int(one, 16) >= 0


async def test_a_guarded_job_costs_two_statements_more(app: Rowlock) -> None:
    declare(app)
    await run(app)
    assert app.store.calls["take_lock"] == 1
    assert app.store.calls["end_lock"] == 1
