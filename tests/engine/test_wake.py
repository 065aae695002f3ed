"""Wake-ups: hints make an idle worker fast; polling alone is correct."""

from __future__ import annotations

import asyncio
import time

import pytest

from conformance.builders import put
from conformance.stores import Rig
from engine.conftest import MakeApp
from engine.running import soon, working
from engine.watched import ALWAYS
from rowlock import Job, Rowlock
from rowlock.clock import StoreClock
from rowlock.storage.contract import Store

A_DAY_MS = 86_400_000


def declare(app: Rowlock, queue: str = "default") -> asyncio.Queue[str]:
    started: asyncio.Queue[str] = asyncio.Queue()

    @app.job("a", queue=queue)
    async def a(job: Job) -> None:
        started.put_nowait(job.id)

    return started


@pytest.mark.every_store
async def test_an_idle_worker_hears_of_a_job_from_another_process(make_app: MakeApp, store: Store) -> None:
    app = await make_app(poll_ms=A_DAY_MS)
    started = declare(app)
    async with working(app):
        await soon(app.store.next("hint of queue"))  # the worker listens now
        for _ in range(3):
            job_id = await put(store, type="a", payload="{}")
            assert await soon(started.get()) == job_id


@pytest.mark.every_store
async def test_every_queue_of_a_worker_is_woken(make_app: MakeApp, store: Store) -> None:
    app = await make_app(poll_ms=A_DAY_MS)
    here, there = declare(app), asyncio.Queue()

    @app.job("b", queue="there")
    async def b(job: Job) -> None:
        there.put_nowait(job.id)

    async with working(app):
        await soon(app.store.next("hint of queue"))
        second = await put(store, type="b", payload="{}", queue="there")
        assert await soon(there.get()) == second
        first = await put(store, type="a", payload="{}")
        assert await soon(here.get()) == first


@pytest.mark.every_store
async def test_an_idle_worker_hears_that_its_queue_is_resumed(make_app: MakeApp, store: Store) -> None:
    app = await make_app(poll_ms=A_DAY_MS)
    started = declare(app)
    await store.pause("default")
    job_id = await put(store, type="a", payload="{}")
    async with working(app):
        with app.store.stalled("listen"):
            await soon(app.store.next("peek"))
            await app.store.quiet()
            looked = app.store.next("claim"), app.store.next("peek")
        await soon(asyncio.gather(*looked))  # the peeks after the first hint; the next poll would be in a day
        await store.resume("default")
        assert await soon(started.get()) == job_id


@pytest.mark.every_store
async def test_jobs_that_came_before_the_worker_listened_are_found(make_app: MakeApp, store: Store) -> None:
    app = await make_app(poll_ms=A_DAY_MS)
    started = declare(app)
    async with working(app):
        with app.store.stalled("listen"):
            await soon(app.store.next("peek"))  # it found nothing
            job_id = await put(store, type="a", payload="{}")
        assert await soon(started.get()) == job_id


async def test_without_hints_polling_finds_the_job_within_its_interval(make_app: MakeApp, store: Store) -> None:
    app = await make_app(poll_ms=20)
    app.store.refuse("listen", ALWAYS)
    started = declare(app)

    async def looks(times: int) -> None:
        for _ in range(times):
            await app.store.next("peek")

    async with working(app):
        for _ in range(2):
            await soon(looks(15))  # at the default interval of 5 s they would take longer than `soon` waits
            job_id = await put(store, type="a", payload="{}")
            assert await soon(started.get()) == job_id


async def test_a_queue_is_polled_at_its_own_interval(make_app: MakeApp, store: Store) -> None:
    app = await make_app(poll_ms=A_DAY_MS)
    app.queue("quick", poll_seconds=0.1)
    app.store.refuse("listen", ALWAYS)
    started = declare(app, queue="quick")
    async with working(app):
        await soon(app.store.next("peek"))
        job_id = await put(store, type="a", payload="{}", queue="quick")
        assert await soon(started.get()) == job_id


@pytest.mark.every_store
async def test_a_delayed_job_starts_when_it_is_due(make_app: MakeApp) -> None:
    app = await make_app(poll_ms=A_DAY_MS, clock=StoreClock())
    started = declare(app)
    async with working(app):
        await soon(app.store.next("hint of queue"))
        began = time.monotonic()
        receipt = await app.enqueue("a", delay_seconds=0.3)
        assert await soon(started.get()) == receipt.job_id
        assert time.monotonic() - began >= 0.3


async def test_a_delayed_job_enqueued_before_the_worker_began_starts_when_it_is_due(
    make_app: MakeApp, rig: Rig
) -> None:
    app = await make_app(poll_ms=A_DAY_MS, clock=StoreClock())
    app.store.refuse("listen", ALWAYS)
    started = declare(app)
    receipt = await app.enqueue("a", delay_seconds=0.3)
    async with working(app):
        assert await soon(started.get()) == receipt.job_id


@pytest.mark.every_store
async def test_a_retry_starts_when_it_is_due(make_app: MakeApp) -> None:
    app = await make_app(
        poll_ms=A_DAY_MS, clock=StoreClock(), backoff_base_seconds=0.1, backoff_factor=1, backoff_max_seconds=1
    )
    attempts: asyncio.Queue[int] = asyncio.Queue()

    @app.job("a")
    async def a(job: Job) -> None:
        attempts.put_nowait(job.attempt)
        if job.attempt < 3:
            raise RuntimeError("again")

    async with working(app):
        await a.enqueue()
        assert [await soon(attempts.get()) for _ in range(3)] == [1, 2, 3]


@pytest.mark.every_store
async def test_a_quiet_worker_asks_the_store_almost_nothing(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    # Once a minute, and the first time in the middle of this test if the machine needs two seconds to start a worker.
    monkeypatch.setattr("rowlock.jobs.worker.maintenance._LAG_AFTER_SECONDS", 3_600.0)
    app = await make_app()  # the defaults: poll 5 s, heartbeat 10 s, rescue 2 s
    declare(app)
    async with working(app):
        await soon(app.store.next("peek"))
        while not app.store.calls["prune_calls"]:  # the last maintenance chore at start-up
            await soon(app.store.next("prune_calls"))
        await asyncio.sleep(0)
        before, began = app.store.calls.copy(), time.monotonic()
        await asyncio.sleep(0.5)  # the only place that measures real time
        asked, seconds = app.store.calls - before, time.monotonic() - began
    assert asked.total() <= 2 + seconds, asked
