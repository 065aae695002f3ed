"""Queues: paused and resumed for everyone, drained, and rescued from workers that are gone."""

from __future__ import annotations

import asyncio

import pytest

from conformance.builders import BEN, put_and_take
from engine.conftest import MakeApp
from engine.running import Log, done, drain, record, soon, take_over, working
from rowlock import FakeClock, Job, Retry, Rowlock, Status
from rowlock.storage.base import Store


async def test_a_paused_queue_is_left_alone_until_it_is_resumed(make_app: MakeApp) -> None:
    operator, worker = await make_app(), await make_app()
    ran = []
    for app in (operator, worker):
        app.job("a")(lambda job: ran.append(job.id))
        app.job("b", queue="side")(lambda job: ran.append(job.id))
    await operator.pause("default")
    await operator.pause("default")
    held, free = await operator.enqueue("a"), await operator.enqueue("b")
    await drain(worker)
    assert ran == [free.job_id]
    await operator.resume("default")
    await drain(worker)
    assert ran == [free.job_id, held.job_id]


async def test_a_pause_lets_running_jobs_end_and_an_idle_worker_goes_on_after_it(make_app: MakeApp) -> None:
    app = await make_app(poll_ms=50)
    entered, release, second_ran = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.job("a")
    async def a(job: Job, which: int) -> None:
        if which == 1:
            entered.set()
            await release.wait()
        else:
            second_ran.set()

    first = await a.enqueue(which=1)
    async with working(app):
        await soon(entered.wait())
        await app.pause("default")
        await a.enqueue(which=2)
        settled = app.store.next("settle")
        release.set()
        await soon(settled)
        assert (await record(app, first.job_id)).status is Status.SUCCEEDED
        await soon(app.store.next("glance"))
        await soon(app.store.next("glance"))
        assert not second_ran.is_set()
        await app.resume("default")
        await soon(second_ran.wait())


async def test_draining_goes_on_when_a_job_enqueues_on_another_queue(make_app: MakeApp) -> None:
    app = await make_app()

    @app.job("first", queue="early")
    async def first(job: Job, left: int) -> None:
        await app.store.next("claim", lambda claimed: not claimed)  # the other queue has been found empty
        await app.enqueue("second", {"left": left})

    @app.job("second", queue="late")
    async def second(job: Job, left: int) -> None:
        if left:
            await app.enqueue("first", {"left": left - 1})

    await first.enqueue(left=2)
    await drain(app)
    assert (await app.store.counts())[Status.SUCCEEDED] == 6
    assert (await app.store.counts()).get(Status.QUEUED, 0) == 0


async def test_draining_goes_on_when_a_settlement_makes_a_job_ready_again(app: Rowlock) -> None:
    @app.job("a")
    async def a(job: Job) -> None:
        if job.attempt == 1:
            raise Retry(after=0)

    async def settle_late() -> None:
        with app.store.stalled("settle"):
            await app.store.next("settle stalled")
            await app.store.next("claim", lambda claimed: not claimed)

    job_id = (await a.enqueue()).job_id
    late = asyncio.create_task(settle_late())
    assert (await done(app, job_id)).status is Status.SUCCEEDED
    await late


async def test_the_jobs_of_a_dead_worker_run_again(app: Rowlock, store: Store, clock: FakeClock, log: Log) -> None:
    app.job("a")(lambda job: None)
    dead = await put_and_take(store, owner=BEN, type="a", payload="{}")
    await drain(app)
    assert (await record(app, dead.id)).status is Status.PROCESSING
    clock.advance(31)
    after = await done(app, dead.id)
    assert (after.status, after.attempts, after.lease) == (Status.SUCCEEDED, 2, 2)
    (line,) = log.of("job.rescued")
    assert (line["job"], line["owner"], line["status"]) == (dead.id, BEN, "queued")


async def test_each_queue_has_its_own_visibility_and_rescue_delay(app: Rowlock, store: Store, clock: FakeClock) -> None:
    app.queue("sync", visibility_seconds=600, rescue_delay_seconds=300)
    app.job("a", queue="sync")(lambda job: None)
    job_id = (await app.enqueue("a")).job_id
    await store.claim("sync", BEN, 1)
    clock.advance(599)
    assert (await done(app, job_id)).status is Status.PROCESSING
    clock.advance(2)
    after = await done(app, job_id)
    assert (after.status, (after.available_at - clock.now()).total_seconds()) == (Status.QUEUED, 300)
    clock.advance(300)
    assert (await done(app, job_id)).status is Status.SUCCEEDED


async def test_a_lost_last_attempt_is_the_last(app: Rowlock, store: Store, clock: FakeClock, log: Log) -> None:
    app.job("a")(lambda job: None)
    job_id = (await app.enqueue("a", max_attempts=1)).job_id
    await store.claim("default", BEN, 1)
    clock.advance(31)
    after = await done(app, job_id)
    assert (after.status, after.attempts) == (Status.FAILED, 1)
    assert [line["level"] for line in log.of("job.rescued")] == ["error"]


async def test_a_running_worker_keeps_its_leases_however_long_the_handler_runs(
    make_app: MakeApp, store: Store, clock: FakeClock
) -> None:
    app = await make_app(heartbeat_ms=50, rescue_ms=50)
    entered, release = asyncio.Event(), asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> None:
        entered.set()
        await release.wait()

    job_id = (await a.enqueue()).job_id
    async with working(app):
        await soon(entered.wait())
        for _ in range(5):
            clock.advance(20)
            await soon(app.store.next("beat"))
            await soon(app.store.next("rescue"))
        during = await record(app, job_id)
        release.set()
    assert (during.status, during.attempts) == (Status.PROCESSING, 1)
    assert (await record(app, job_id)).status is Status.SUCCEEDED


async def test_a_handler_whose_lease_was_lost_is_stopped_and_its_result_not_recorded(
    make_app: MakeApp, store: Store, clock: FakeClock
) -> None:
    app = await make_app(heartbeat_ms=50)
    entered, stopped = asyncio.Event(), asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert job.cancelled
            stopped.set()

    job_id = (await a.enqueue()).job_id
    async with working(app):
        await soon(entered.wait())
        await take_over(app, store, clock, BEN)
        app.store.mend("beat")
        await soon(stopped.wait())
    after = await record(app, job_id)
    assert (after.status, after.lock_owner, after.lease) == (Status.PROCESSING, BEN, 2)


@pytest.mark.parametrize(
    "keep", [{"keep_succeeded_days": 30}, {"keep_succeeded_count": 1, "keep_succeeded_days": None}]
)
async def test_finished_jobs_go_when_their_time_has_come(make_app: MakeApp, clock: FakeClock, keep: dict) -> None:
    app = await make_app(**keep)
    app.job("a")(lambda job: None)
    old = await app.enqueue("a")
    await drain(app)
    clock.advance(days=29)
    new = await app.enqueue("a")
    await drain(app)
    clock.advance(days=2)
    async with working(app):
        await soon(app.store.next("prune", lambda gone: not any(gone.values())))
    assert await app.get(old.job_id) is None
    assert (await record(app, new.job_id)).status is Status.SUCCEEDED
