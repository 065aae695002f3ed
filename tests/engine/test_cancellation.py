"""Cancel a running job, and watch its progress."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator

import pytest

from engine.conftest import MakeApp
from engine.running import SECONDS, done, drain, record, soon, working
from rowlock import CancelResult, Job, Rowlock, Status
from rowlock.storage.contract import Store


@contextlib.asynccontextmanager
async def hearing(app: Rowlock) -> AsyncIterator[None]:
    """Run a worker that receives hints."""
    async with working(app):
        await soon(app.store.next("hint of queue"))  # the worker listens now
        yield


@pytest.mark.every_store
async def test_an_async_handler_is_cancelled_where_it_waits(app: Rowlock, store: Store) -> None:
    entered, seen = asyncio.Event(), []

    @app.job("a")
    async def a(job: Job) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(job.cancelled)

    job_id = (await a.enqueue()).job_id
    async with hearing(app):
        await soon(entered.wait())
        settled = app.store.next("settle")
        assert await store.cancel(job_id) is CancelResult.REQUESTED  # as another process would
        await soon(settled)
        after = await record(app, job_id)
    assert seen == [True]
    assert (after.status, after.attempts) == (Status.CANCELLED, 1)
    assert after.error == "JobCancelled: cancelled while it ran"


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_handler_that_returns_because_it_was_told_to_stop_has_not_succeeded(app: Rowlock, plain: bool) -> None:
    entered = threading.Event()

    async def in_loop(job: Job) -> str:
        entered.set()
        while not job.cancelled:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return "stopped in the middle"

    def in_thread(job: Job) -> str:
        entered.set()
        give_up = time.monotonic() + SECONDS
        while not job.cancelled and time.monotonic() < give_up:
            sum(range(100))
        return "stopped in the middle"

    app.job("a")(in_thread if plain else in_loop)
    job_id = (await app.enqueue("a")).job_id
    async with hearing(app):
        assert await asyncio.to_thread(entered.wait, SECONDS)
        settled = app.store.next("settle")
        assert await app.cancel(job_id) is CancelResult.REQUESTED
        await soon(settled)
        after = await record(app, job_id)
    assert (after.status, after.result) == (Status.CANCELLED, None)


@pytest.mark.every_store
async def test_a_worker_that_hears_no_hints_learns_of_it_at_the_next_heartbeat(make_app: MakeApp, store: Store) -> None:
    app = await make_app(heartbeat_ms=100)
    app.store.refuse("listen", 1_000)
    entered = asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> None:
        entered.set()
        await asyncio.Event().wait()

    job_id = (await a.enqueue()).job_id
    async with working(app):
        await soon(entered.wait())
        settled = app.store.next("settle")
        await store.cancel(job_id)
        await soon(settled)
        assert (await record(app, job_id)).status is Status.CANCELLED


async def test_cancelling_one_job_leaves_its_neighbours_alone(make_app: MakeApp) -> None:
    app = await make_app(concurrency=3)
    together, release = asyncio.Barrier(4), asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> None:
        await together.wait()
        await release.wait()

    receipts = await app.enqueue_many([("a", {})] * 3)
    async with hearing(app):
        await soon(together.wait())
        settled = app.store.next("settle")
        await app.cancel(receipts[1].job_id)
        await soon(settled)
        release.set()
    statuses = [(await record(app, receipt.job_id)).status for receipt in receipts]
    assert statuses == [Status.SUCCEEDED, Status.CANCELLED, Status.SUCCEEDED]


@pytest.mark.every_store
async def test_a_job_cancelled_before_its_handler_starts_never_starts(make_app: MakeApp) -> None:
    app = await make_app(concurrency=1)
    entered, release = asyncio.Event(), asyncio.Event()
    ran = []

    @app.job("first")
    async def first(job: Job) -> None:
        entered.set()
        await release.wait()

    @app.job("second")
    async def second(job: Job) -> None:
        ran.append(job.id)

    receipts = await app.enqueue_many([("first", {}), ("second", {})])
    async with hearing(app):
        await soon(entered.wait())  # and the second was prefetched with it
        told = app.store.next("hint of cancel")
        if await app.cancel(receipts[1].job_id) is CancelResult.REQUESTED:
            await soon(told)
        release.set()
        await soon(app.store.next("settle"))
    await drain(app)
    assert ran == []
    assert (await record(app, receipts[1].job_id)).status is Status.CANCELLED


async def test_a_job_that_was_to_be_cancelled_is_not_tried_again(app: Rowlock) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> None:
        entered.set()
        try:
            await release.wait()
        finally:
            raise RuntimeError("and it failed on the way out")

    job_id = (await a.enqueue()).job_id
    async with hearing(app):
        await soon(entered.wait())
        settled = app.store.next("settle")
        await app.cancel(job_id)
        await soon(settled)
    assert (await record(app, job_id)).status is Status.CANCELLED


# -- progress --------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_progress_is_seen_while_the_job_runs(app: Rowlock, plain: bool) -> None:
    release = threading.Event()

    def report(job: Job) -> None:
        job.progress(10, "reading")
        job.progress(40.7, "writing ✓")

    if plain:

        @app.job("a")
        def in_thread(job: Job) -> None:
            report(job)
            assert release.wait(SECONDS)

    else:

        @app.job("a")
        async def in_loop(job: Job) -> None:
            report(job)
            await asyncio.to_thread(release.wait, SECONDS)

    job_id = (await app.enqueue("a")).job_id
    async with working(app):
        await soon(app.store.next("progress"))
        during = await record(app, job_id)
        release.set()
    assert (during.status, during.progress, during.message) == (Status.PROCESSING, 40, "writing ✓")


async def test_progress_outside_of_0_to_100_is_refused(app: Rowlock) -> None:
    @app.job("a")
    async def a(job: Job) -> str:
        for percent in (-1, -0.01, 100.01, 101, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="progress must be 0 to 100"):
                job.progress(percent)
        job.progress(0)
        job.progress(100)
        return "all refused"

    assert (await done(app, (await a.enqueue()).job_id)).result == '"all refused"'


async def test_progress_from_a_store_that_is_away_does_not_harm_the_job(app: Rowlock) -> None:
    release = asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> None:
        job.progress(50)
        await release.wait()

    app.store.refuse("progress")
    job_id = (await a.enqueue()).job_id
    async with working(app):
        await soon(app.store.next("progress refused"))
        release.set()
    assert (await record(app, job_id)).status is Status.SUCCEEDED
