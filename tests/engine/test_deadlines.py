"""A handler past its deadline is stopped, and its attempt counts as failed."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from conformance.stores import Rig
from engine.conftest import MakeApp
from engine.running import SECONDS, done, drain, record, soon, working
from rowlock import Backoff, Job, Rowlock, Status
from rowlock.jobs.worker.runner import Runner
from rowlock.storage.contract import Store

DEADLINE = 0.05


async def test_an_async_handler_past_its_deadline_is_stopped_and_tried_again(app: Rowlock) -> None:
    stopped = []

    @app.job("a", deadline_seconds=DEADLINE)
    async def a(job: Job) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(job.cancelled)

    after = await done(app, (await a.enqueue()).job_id)
    assert stopped == [True]
    assert (after.status, after.attempts) == (Status.QUEUED, 1)
    assert after.error == "DeadlineExceeded: the handler ran past its deadline of 0.05 s"


async def test_a_plain_handler_in_a_loop_is_stopped_in_its_thread(app: Rowlock) -> None:
    stopped = []

    @app.job("a", deadline_seconds=DEADLINE, retry=Backoff(max_attempts=1))
    def a(job: Job) -> None:
        give_up = time.monotonic() + SECONDS
        try:
            while time.monotonic() < give_up:
                sum(range(100))
        finally:
            stopped.append(time.monotonic() < give_up)

    after = await done(app, (await a.enqueue()).job_id)
    assert stopped == [True]
    assert after.status is Status.FAILED
    assert "ran past its deadline of 0.05 s (attempt 1 of 1, the last)" in (after.error or "")


async def test_after_a_deadline_the_place_is_free_for_the_next_job(make_app: MakeApp) -> None:
    app = await make_app(concurrency=1)

    @app.job("stuck", deadline_seconds=DEADLINE)
    async def stuck(job: Job) -> None:
        await asyncio.Event().wait()

    @app.job("stuck.plain", deadline_seconds=DEADLINE)
    def stuck_plain(job: Job) -> None:
        while not job.cancelled:
            sum(range(100))

    @app.job("fine")
    def fine(job: Job) -> str:
        return "ran"

    await app.enqueue_many([("stuck", {}), ("stuck.plain", {})])
    last = await fine.enqueue()
    assert (await done(app, last.job_id)).result == '"ran"'
    assert (await app.store.counts())[Status.QUEUED] == 2


async def test_a_handler_within_its_deadline_is_left_alone(app: Rowlock) -> None:
    @app.job("a", deadline_seconds=30)
    async def a(job: Job) -> None: ...

    @app.job("b", deadline_seconds=30)
    def b(job: Job) -> None: ...

    await a.enqueue()
    await b.enqueue()
    await drain(app)
    assert (await app.store.counts())[Status.SUCCEEDED] == 2


async def test_a_setting_is_the_deadline_of_types_without_their_own(make_app: MakeApp) -> None:
    app = await make_app(deadline_seconds=DEADLINE)

    @app.job("default")
    async def by_setting(job: Job) -> None:
        await asyncio.Event().wait()

    assert "its deadline of 0.05 s" in ((await done(app, (await by_setting.enqueue()).job_id)).error or "")


async def test_a_handler_that_ends_badly_when_stopped_says_how(app: Rowlock) -> None:
    @app.job("a", deadline_seconds=DEADLINE)
    async def a(job: Job) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("could not say goodbye")

    after = await done(app, (await a.enqueue()).job_id)
    assert (after.status, after.error) == (Status.QUEUED, "ConnectionError: could not say goodbye")


@pytest.mark.parametrize("how", ["stops", "returns", "raises"])
async def test_however_a_handler_takes_its_stop_the_next_job_is_not_disturbed(make_app: MakeApp, how: str) -> None:
    app = await make_app(concurrency=1)

    @app.job("stubborn", deadline_seconds=DEADLINE, retry=Backoff(max_attempts=1))
    async def stubborn(job: Job) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if how == "stops":
                raise
            if how == "raises":
                raise RuntimeError("not now") from None

    @app.job("group")
    async def group(job: Job) -> Any:
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0, "a cancellation was left over"

        async def broken() -> None:
            raise ValueError("in the group")

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(broken())
                tasks.create_task(asyncio.sleep(60))
        except ExceptionGroup:
            return "the group's own error"

    await stubborn.enqueue()
    after = await done(app, (await group.enqueue()).job_id)
    assert (after.status, after.result, after.error) == (Status.SUCCEEDED, '"the group\'s own error"', None)


async def test_jobs_of_a_stopped_batch_each_fail_their_attempt(app: Rowlock) -> None:
    @app.job("a", batch=10, deadline_seconds=DEADLINE)
    async def a(jobs: list[Job]) -> None:
        await asyncio.Event().wait()

    receipts = await app.enqueue_many([("a", {})] * 3)
    await drain(app)
    for receipt in receipts:
        after = await record(app, receipt.job_id)
        assert (after.status, after.attempts) == (Status.QUEUED, 1)
        assert "deadline" in (after.error or "")


async def test_a_stop_that_comes_too_late_for_its_handler_harms_no_thread(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler returns at the very moment of the stop."""
    app = await make_app(concurrency=1)
    release = threading.Event()

    class Late:
        """ctypes, but the handler ends between the check of its thread and the exception sent to it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(ctypes, name)

        def c_ulong(self, thread: int) -> Any:
            release.set()
            time.sleep(0.1)  # as if the system had switched to the handler's thread
            return ctypes.c_ulong(thread)

    monkeypatch.setattr("rowlock.jobs.worker.runner.ctypes", Late())

    @app.job("a", deadline_seconds=DEADLINE, retry=Backoff(max_attempts=1))
    def a(job: Job) -> None:
        release.wait(SECONDS)

    ran = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()

    @app.job("b")
    def b(job: Job) -> None:
        loop.call_soon_threadsafe(ran.release)

    async with working(app):
        settled = app.store.next("settle")
        await a.enqueue()
        await soon(settled)
        for _ in range(3):
            await b.enqueue()
            await soon(ran.acquire())  # the only thread still works


@pytest.mark.every_store
async def test_a_deadline_while_a_transaction_begins_leaves_none_behind(
    app: Rowlock, rig: Rig, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended, gate, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    real, stop = app.store.inner.transaction, Runner.stop

    @contextlib.asynccontextmanager
    async def slow(*given: Any) -> AsyncIterator[Any]:
        try:
            async with real(*given) as transaction:
                begun.set()
                await gate.wait()
                yield transaction
        finally:
            ended.set()

    def tell(runner: Runner, *reason: Any) -> None:
        stop(runner, *reason)
        stopped.set()

    vars(app.store)["transaction"] = slow
    monkeypatch.setattr(Runner, "stop", tell)
    kept = []  # as error reporters keep an exception's frames: the test must not rely on garbage collection

    @app.job("a", deadline_seconds=DEADLINE, retry=Backoff(max_attempts=1))
    def a(job: Job) -> None:
        kept.append(job.transaction())
        with kept[0]:
            pass

    job_id = (await a.enqueue()).job_id
    async with working(app):
        settled = app.store.next("settle")
        await soon(begun.wait())
        await soon(stopped.wait())  # the deadline has passed, and the watchdog has seen it
        gate.set()
        await soon(ended.wait())
        await soon(settled)
    assert (await record(app, job_id)).status is Status.FAILED
    async with store.transaction():
        pass
