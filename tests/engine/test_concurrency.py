"""Concurrency: exactly as many jobs run at once as configured."""

from __future__ import annotations

import asyncio
import threading

import pytest

from engine.conftest import MakeApp
from engine.running import SECONDS, drain, record, soon, turns, working
from rowlock import Job, Rowlock, Status


class Gauge:
    """Counts the handlers inside, and lets them out when the expected number has arrived."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._inside = 0
        self._lock = threading.Lock()
        self._full = threading.Event()
        self.most = 0

    def enter(self) -> None:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
            if self._inside >= self._expected:
                self._full.set()

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1

    async def stay(self) -> None:
        """Stay inside until all others have arrived, and for some more turns of the event loop."""
        self.enter()
        assert await asyncio.to_thread(self._full.wait, SECONDS)
        for _ in range(20):
            await asyncio.sleep(0)
        self.leave()

    def stay_plain(self) -> None:
        self.enter()
        assert self._full.wait(SECONDS)
        self.leave()


@pytest.mark.parametrize("concurrency", [1, 3, 8])
async def test_a_worker_runs_n_async_jobs_at_once_and_never_more(make_app: MakeApp, concurrency: int) -> None:
    app = await make_app(concurrency=concurrency)
    gauge = Gauge(concurrency)

    @app.job("a")
    async def a(job: Job) -> None:
        await gauge.stay()

    await app.enqueue_many([("a", {})] * (4 * concurrency))
    await drain(app)
    assert gauge.most == concurrency
    assert (await app.store.counts())[Status.SUCCEEDED] == 4 * concurrency


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_a_worker_runs_n_plain_jobs_at_once_and_never_more(make_app: MakeApp, concurrency: int) -> None:
    app = await make_app(concurrency=concurrency)
    gauge = Gauge(concurrency)

    @app.job("a")
    def a(job: Job) -> None:
        gauge.stay_plain()

    await app.enqueue_many([("a", {})] * (4 * concurrency))
    await drain(app)
    assert gauge.most == concurrency


async def test_the_default_is_four(app: Rowlock) -> None:
    gauge = Gauge(4)

    @app.job("a")
    async def a(job: Job) -> None:
        await gauge.stay()

    await app.enqueue_many([("a", {})] * 12)
    await drain(app)
    assert gauge.most == 4


async def test_each_queue_has_its_own_concurrency(make_app: MakeApp) -> None:
    app = await make_app(concurrency=2)
    app.queue("narrow", concurrency=1)
    app.queue("wide", concurrency=5)
    gauges = {"default": Gauge(2), "narrow": Gauge(1), "wide": Gauge(5)}

    for queue in gauges:

        @app.job(f"on.{queue}", queue=queue)
        async def stay(job: Job) -> None:
            await gauges[job.queue].stay()

    await app.enqueue_many([(f"on.{queue}", {}) for queue in gauges for _ in range(10)])
    await drain(app)
    assert {queue: gauge.most for queue, gauge in gauges.items()} == {"default": 2, "narrow": 1, "wide": 5}


async def test_a_full_queue_does_not_hold_up_another(make_app: MakeApp) -> None:
    app = await make_app(concurrency=1)
    blocked, release, quick = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.job("slow", queue="slow")
    async def slow(job: Job) -> None:
        blocked.set()
        await release.wait()

    @app.job("quick", queue="quick")
    async def quickly(job: Job) -> None:
        quick.set()

    await slow.enqueue()
    await slow.enqueue()
    async with working(app):
        await soon(blocked.wait())
        await quickly.enqueue()
        await soon(quick.wait())
        release.set()


async def test_a_worker_takes_only_from_the_queues_that_it_was_given(app: Rowlock) -> None:
    @app.job("a")
    async def a(job: Job) -> None: ...

    here, there = await app.enqueue("a", queue="here"), await app.enqueue("a", queue="there")
    await drain(app, "here")
    assert (await record(app, here.job_id)).status is Status.SUCCEEDED
    assert (await record(app, there.job_id)).status is Status.QUEUED


@pytest.mark.every_store
async def test_two_workers_share_a_queue_and_no_job_runs_twice(make_app: MakeApp) -> None:
    ran: dict[str, list[str]] = {"one": [], "two": []}
    both = asyncio.Barrier(2)
    workers = {name: await make_app(concurrency=1) for name in ran}

    def declare(name: str, app: Rowlock) -> None:
        @app.job("a")
        async def a(job: Job) -> None:
            ran[name].append(job.id)
            if len(ran[name]) == 1:
                await soon(both.wait())  # the first job of each worker: both work

    for name, app in workers.items():
        declare(name, app)
    receipts = await workers["one"].enqueue_many([("a", {})] * 100)
    await asyncio.gather(*(drain(app) for app in workers.values()))
    assert sorted(ran["one"] + ran["two"]) == sorted(receipt.job_id for receipt in receipts)


async def test_a_job_claimed_behind_a_slow_one_is_given_back_for_others(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.jobs.worker.prefetch._STALE_SECONDS", 3_600)
    busy, idle = await make_app(concurrency=1), await make_app(concurrency=1)
    entered, release, elsewhere = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @busy.job("a")
    async def slow(job: Job) -> None:
        entered.set()
        await release.wait()

    @idle.job("a")
    async def quick(job: Job) -> None:
        elsewhere.set()

    receipts = await busy.enqueue_many([("a", {})] * 2)
    async with working(busy):
        await soon(entered.wait())
        assert (await record(busy, receipts[1].job_id)).status is Status.PROCESSING, "it was claimed ahead"
        monkeypatch.setattr("rowlock.jobs.worker.prefetch._STALE_SECONDS", 0.1)
        async with working(idle):
            await soon(elsewhere.wait())
        release.set()
    after = await record(busy, receipts[1].job_id)
    assert (after.status, after.attempts, after.lease) == (Status.SUCCEEDED, 1, 2)


@pytest.mark.every_store
async def test_a_worker_claims_no_more_while_the_store_is_behind_with_what_it_has_done(make_app: MakeApp) -> None:
    app = await make_app(concurrency=2, buffer_max=20)
    ran: list[str] = []

    @app.job("a")
    async def a(job: Job) -> None:
        ran.append(job.id)

    receipts = await app.enqueue_many([("a", {})] * 500)
    with app.store.stalled("settle"):
        draining = asyncio.create_task(drain(app))
        await soon(app.store.next("settle stalled"))
        claims = 0
        while claims < app.store.calls["claim"]:  # until no more claims are made
            claims = app.store.calls["claim"]
            await soon(app.store.quiet())
            await turns()
        assert 0 < len(ran) < 100, "no more than was claimed ahead, twice"
    await draining
    assert sorted(ran) == sorted(receipt.job_id for receipt in receipts)
