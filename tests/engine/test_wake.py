"""Waking up: hints make an idle worker quick, and polling alone is correct."""

from __future__ import annotations

import asyncio
import time

from conformance.builders import put
from conformance.stores import Rig
from engine.conftest import MakeApp
from engine.running import soon, working
from engine.watched import ALWAYS
from rowlock import Job, Rowlock
from rowlock.clock import StoreClock
from rowlock.storage.base import Store

A_DAY_MS = 86_400_000
PROMPTLY = 2.0  # seconds, on a busy machine; the latency itself is for the bench to measure


def declare(app: Rowlock, queue: str = "default") -> asyncio.Queue[str]:
    started: asyncio.Queue[str] = asyncio.Queue()

    @app.job("a", queue=queue)
    async def a(job: Job) -> None:
        started.put_nowait(job.id)

    return started


async def test_an_idle_worker_hears_of_a_job_from_another_process(make_app: MakeApp, store: Store) -> None:
    app = await make_app(poll_ms=A_DAY_MS)
    started = declare(app)
    async with working(app):
        await soon(app.store.next("hint of queue"))  # it has begun to listen
        for _ in range(3):
            job_id = await put(store, type="a", payload="{}")
            assert await soon(started.get(), PROMPTLY) == job_id


async def test_every_queue_of_a_worker_is_woken(make_app: MakeApp, store: Store) -> None:
    app = await make_app(poll_ms=A_DAY_MS)
    here, there = declare(app), asyncio.Queue()

    @app.job("b", queue="there")
    async def b(job: Job) -> None:
        there.put_nowait(job.id)

    async with working(app):
        await soon(app.store.next("hint of queue"))
        second = await put(store, type="b", payload="{}", queue="there")
        assert await soon(there.get(), PROMPTLY) == second
        first = await put(store, type="a", payload="{}")
        assert await soon(here.get(), PROMPTLY) == first


async def test_jobs_that_came_before_the_worker_listened_are_found(make_app: MakeApp, store: Store) -> None:
    app = await make_app(poll_ms=A_DAY_MS)
    started = declare(app)
    async with working(app):
        with app.store.stalled("listen"):
            await soon(app.store.next("glance"))  # it has found nothing
            job_id = await put(store, type="a", payload="{}")
        assert await soon(started.get(), PROMPTLY) == job_id


async def test_without_hints_polling_finds_the_job_within_its_interval(make_app: MakeApp, store: Store) -> None:
    app = await make_app(poll_ms=100)
    app.store.refuse("listen", ALWAYS)
    started = declare(app)
    async with working(app):
        for _ in range(2):
            await soon(app.store.next("glance"))
            job_id = await put(store, type="a", payload="{}")
            assert await soon(started.get(), PROMPTLY) == job_id


async def test_a_queue_is_polled_at_its_own_interval(make_app: MakeApp, store: Store) -> None:
    app = await make_app(poll_ms=A_DAY_MS)
    app.queue("quick", poll_seconds=0.1)
    app.store.refuse("listen", ALWAYS)
    started = declare(app, queue="quick")
    async with working(app):
        await soon(app.store.next("glance"))
        job_id = await put(store, type="a", payload="{}", queue="quick")
        assert await soon(started.get(), PROMPTLY) == job_id


async def test_a_delayed_job_starts_when_it_is_due(make_app: MakeApp) -> None:
    app = await make_app(poll_ms=A_DAY_MS, clock=StoreClock())
    started = declare(app)
    async with working(app):
        await soon(app.store.next("hint of queue"))
        began = time.monotonic()
        receipt = await app.enqueue("a", delay_seconds=0.3)
        assert await soon(started.get(), PROMPTLY) == receipt.job_id
        assert time.monotonic() - began >= 0.3


async def test_a_delayed_job_enqueued_before_the_worker_began_starts_when_it_is_due(
    make_app: MakeApp, rig: Rig
) -> None:
    app = await make_app(poll_ms=A_DAY_MS, clock=StoreClock())
    app.store.refuse("listen", ALWAYS)
    started = declare(app)
    receipt = await app.enqueue("a", delay_seconds=0.3)
    async with working(app):
        assert await soon(started.get(), PROMPTLY) == receipt.job_id


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
        assert [await soon(attempts.get(), PROMPTLY) for _ in range(3)] == [1, 2, 3]


async def test_a_quiet_worker_asks_the_store_almost_nothing(make_app: MakeApp) -> None:
    app = await make_app()  # the defaults: poll 5 s, heartbeat 10 s, rescue 2 s
    declare(app)
    async with working(app):
        await soon(app.store.next("glance"))
        while not app.store.calls["prune_calls"]:  # the last of the chores at the start
            await soon(app.store.next("prune_calls"))
        await asyncio.sleep(0)
        before = app.store.calls.copy()
        await asyncio.sleep(0.5)  # the one place where time itself is what is measured
        asked = app.store.calls - before
    assert asked.total() <= 2, asked
