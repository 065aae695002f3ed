"""Batch handlers: up to N jobs in one call, each settled separately."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.builders import BEN
from engine.conftest import MakeApp
from engine.running import SECONDS, Log, drain, record, soon, working
from engine.watched import ALWAYS
from rowlock import Backoff, FakeClock, Job, Permanent, RateLimited, Retry, Rowlock, SettingsError, Snooze, Status
from rowlock.storage.contract import Store


async def test_a_call_gets_up_to_n_jobs_in_order(make_app: MakeApp) -> None:
    app = await make_app(concurrency=1)
    calls: list[list[str]] = []

    @app.job("a", batch=10)
    async def a(jobs: list[Job]) -> None:
        calls.append([job.id for job in jobs])

    receipts = await app.enqueue_many([("a", {"n": n}) for n in range(34)])
    await drain(app)
    assert max(map(len, calls)) == 10
    assert [job_id for call in calls for job_id in call] == [receipt.job_id for receipt in receipts]
    assert (await app.store.counts())[Status.SUCCEEDED] == 34


async def test_a_plain_batch_handler_reads_its_payloads(app: Rowlock) -> None:
    @app.job("a", batch=100)
    def a(jobs: list[Job]) -> list[Any]:
        return [job.payload["n"] * 2 for job in jobs]

    receipts = await app.enqueue_many([("a", {"n": n}) for n in range(7)])
    await drain(app)
    assert [(await record(app, r.job_id)).result for r in receipts] == [str(2 * n) for n in range(7)]


async def test_each_job_of_a_batch_is_settled_on_its_own(app: Rowlock, clock: FakeClock, log: Log) -> None:
    app.limit("api", concurrency=100)
    answers: dict[str, Any] = {
        "fine": {"ok": True},
        "nothing": None,
        "again": Retry("busy", after=7),
        "broken": RuntimeError("no"),
        "never": Permanent("gone"),
        "later": Snooze(50),
        "limited": RateLimited("api", seconds=90),
        "no json": object(),
    }

    @app.job("a", batch=100)
    async def a(jobs: list[Job]) -> list[Any]:
        return [answers[job.payload["which"]] for job in jobs]

    receipts = {which: await a.enqueue(which=which) for which in answers}
    await drain(app)
    after = {which: await record(app, receipt.job_id) for which, receipt in receipts.items()}
    assert (after["fine"].status, after["fine"].result) == (Status.SUCCEEDED, '{"ok":true}')
    assert (after["nothing"].status, after["nothing"].result) == (Status.SUCCEEDED, None)
    assert (after["never"].status, after["never"].error) == (Status.FAILED, "gone")
    assert (after["no json"].status, after["no json"].attempts) == (Status.FAILED, 1)
    waiting = {"again": (7, 1), "broken": (2, 1), "later": (50, 0), "limited": (90, 0)}
    for which, (seconds, attempts) in waiting.items():
        assert after[which].status is Status.QUEUED
        assert round((after[which].available_at - clock.now()).total_seconds()) == seconds
        assert after[which].attempts == attempts
    assert log.of("lease.lost") == []


async def test_raising_fails_all_of_them_each_by_its_own_attempts(app: Rowlock) -> None:
    @app.job("a", batch=100, retry=Backoff(max_attempts=5))
    async def a(jobs: list[Job]) -> None:
        raise RuntimeError("the other system is down")

    patient, last = await app.enqueue("a"), await app.enqueue("a", max_attempts=1)
    await drain(app)
    assert (await record(app, patient.job_id)).status is Status.QUEUED
    after = await record(app, last.job_id)
    assert (after.status, after.error) == (
        Status.FAILED,
        "RuntimeError: the other system is down (attempt 1 of 1, the last)",
    )


async def test_an_answer_that_does_not_fit_fails_all_with_a_reason(make_app: MakeApp) -> None:
    app = await make_app(concurrency=1)
    answers: list[Any] = [[], [1], [1, 2, 3], {"a": 1, "b": 2}, "ab"]
    calls = iter(answers)

    @app.job("a", batch=2)
    async def a(jobs: list[Job]) -> Any:
        return next(calls)

    for _ in answers:
        receipts = await app.enqueue_many([("a", {})] * 2)
        await drain(app)
        for receipt in receipts:
            after = await record(app, receipt.job_id)
            assert after.status is not Status.SUCCEEDED
            assert "a list with one entry per job" in (after.error or "")


async def test_a_batch_has_one_type_only_and_order_is_kept(make_app: MakeApp) -> None:
    app = await make_app(concurrency=1)
    order: list[Any] = []

    @app.job("batched", batch=10)
    async def batched(jobs: list[Job]) -> None:
        assert {job.type for job in jobs} == {"batched"}
        order.extend(job.payload["n"] for job in jobs)

    @app.job("single")
    async def single(job: Job, n: int) -> None:
        order.append(n)

    await app.enqueue_many([("single" if n % 4 == 3 else "batched", {"n": n}) for n in range(12)])
    await drain(app)
    assert order == list(range(12))


@pytest.mark.every_store
async def test_a_job_of_a_batch_may_complete_itself_in_a_transaction(app: Rowlock, log: Log) -> None:
    @app.job("a", batch=10)
    async def a(jobs: list[Job]) -> None:
        for job in jobs:
            async with job.transaction() as tx:
                tx.result = job.payload["n"]

    receipts = await app.enqueue_many([("a", {"n": n}) for n in range(3)])
    await drain(app)
    assert [(await record(app, receipt.job_id)).result for receipt in receipts] == ["0", "1", "2"]
    assert log.of("lease.lost") == []


async def test_cancelling_one_job_of_a_batch_does_not_cancel_the_others(app: Rowlock) -> None:
    entered = asyncio.Event()

    @app.job("a", batch=10)
    async def a(jobs: list[Job]) -> None:
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()

    receipts = await app.enqueue_many([("a", {})] * 3)
    async with working(app):
        await soon(app.store.next("hint of queue"))
        await soon(entered.wait())
        settled = app.store.next("settle")
        await app.cancel(receipts[1].job_id)
        await soon(settled)
    await drain(app)
    after = [await record(app, receipt.job_id) for receipt in receipts]
    assert [job.status for job in after] == [Status.SUCCEEDED, Status.CANCELLED, Status.SUCCEEDED]
    assert [job.attempts for job in after] == [1, 1, 1], "it was not their fault"


@pytest.mark.every_store
async def test_losing_one_lease_of_a_batch_does_not_lose_the_other_jobs(
    make_app: MakeApp, store: Store, clock: FakeClock
) -> None:
    app = await make_app(heartbeat_ms=50, concurrency=1)
    entered, calls = asyncio.Event(), []

    @app.job("a", batch=10)
    async def a(jobs: list[Job]) -> None:
        calls.append([job.id for job in jobs])
        if len(calls) == 1:
            entered.set()
            await asyncio.Event().wait()

    short = await app.store.enqueue([app.engine.builder.new("a", {})._replace(visibility_ms=1_000)])
    long = await app.enqueue("a")
    async with working(app):
        await soon(entered.wait())
        assert len(calls[0]) == 2
        app.store.refuse("beat", ALWAYS)
        with app.store.stalled("claim"), app.store.stalled("rescue"):
            await soon(app.store.quiet())
            clock.advance(2)
            assert len(await store.rescue(10, {}, str)) == 1
            await store.claim("default", BEN, 1)
        settled = app.store.next("settle")
        app.store.mend("beat")
        await soon(settled)
        async with asyncio.timeout(SECONDS):
            while (await record(app, long.job_id)).status is not Status.SUCCEEDED:
                await app.store.next("beat")
    lost = await record(app, short[0].job_id)
    assert (lost.status, lost.lock_owner) == (Status.PROCESSING, BEN)


async def test_a_batch_handler_takes_the_list_and_nothing_else(app: Rowlock) -> None:
    with pytest.raises(SettingsError, match="takes the list of jobs"):

        @app.job("a", batch=2)
        async def a(jobs: list[Job], to: str) -> None: ...

    for batch in (0, -1, 10_001):
        with pytest.raises(SettingsError, match="batch must be 1 to 10000"):
            app.job("a", batch=batch)(lambda jobs: None)
