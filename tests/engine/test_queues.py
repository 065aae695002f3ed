"""Queues: pause and resume for the whole fleet, drain, and prune."""

from __future__ import annotations

import asyncio

import pytest

from engine.conftest import MakeApp
from engine.running import done, drain, record, soon, working
from rowlock import FakeClock, Job, Retry, Rowlock, Status


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


@pytest.mark.every_store
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
        await soon(app.store.next("peek"))
        await soon(app.store.next("peek"))
        assert not second_ran.is_set()
        await app.resume("default")
        await soon(second_ran.wait())


async def test_draining_goes_on_when_a_job_enqueues_on_another_queue(make_app: MakeApp) -> None:
    app = await make_app()

    @app.job("first", queue="early")
    async def first(job: Job, left: int) -> None:
        await app.store.next("claim", lambda claimed: not claimed)  # the worker has found the other queue empty
        await app.enqueue("second", {"left": left})

    @app.job("second", queue="late")
    async def second(job: Job, left: int) -> None:
        if left:
            await app.enqueue("first", {"left": left - 1})

    await first.enqueue(left=2)
    await drain(app)
    assert (await app.store.counts())[Status.SUCCEEDED] == 6
    assert (await app.store.counts()).get(Status.QUEUED, 0) == 0


@pytest.mark.every_store
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
