"""Stopping: jobs not started are released, running jobs get the grace period, and no attempt is counted."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator

import pytest

from conformance.builders import ANN
from engine.conftest import MakeApp
from engine.running import SECONDS, Log, drain, record, soon, turns, working
from rowlock import Job, Status
from rowlock.storage.contract import Store


@pytest.mark.every_store
async def test_running_jobs_may_end_and_buffered_ones_go_back_unspent(make_app: MakeApp, store: Store) -> None:
    app = await make_app(concurrency=1)
    entered, release = asyncio.Event(), asyncio.Event()
    started: list[str] = []

    @app.job("a")
    async def a(job: Job) -> str:
        started.append(job.id)
        entered.set()
        await release.wait()
        return "ended in peace"

    receipts = await app.enqueue_many([("a", {})] * 3)
    async with working(app) as stop:
        await soon(entered.wait())
        given_back = app.store.next("settle")
        stop.set()
        await soon(given_back)
        waiting = await record(app, receipts[1].job_id)
        assert (waiting.status, waiting.attempts) == (Status.QUEUED, 0)
        release.set()
    assert started == [receipts[0].job_id]
    after = [await record(app, receipt.job_id) for receipt in receipts]
    assert [(job.status, job.attempts) for job in after] == [
        (Status.SUCCEEDED, 1),
        (Status.QUEUED, 0),
        (Status.QUEUED, 0),
    ]
    assert await store.workers() == []


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_what_outlasts_the_grace_period_is_interrupted_and_goes_back_unspent(
    make_app: MakeApp, log: Log, plain: bool
) -> None:
    app = await make_app(grace_seconds=0.05)
    entered, interrupted = threading.Event(), threading.Event()

    async def in_loop(job: Job) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert job.cancelled
            interrupted.set()

    def in_thread(job: Job) -> None:
        entered.set()
        try:
            while True:
                sum(range(100))
        finally:
            assert job.cancelled
            interrupted.set()

    app.job("a")(in_thread if plain else in_loop)
    job_id = (await app.enqueue("a")).job_id
    async with working(app):
        assert await asyncio.to_thread(entered.wait, SECONDS)
    assert await asyncio.to_thread(interrupted.wait, SECONDS)
    after = await record(app, job_id)
    assert (after.status, after.attempts, after.lock_owner) == (Status.QUEUED, 0, None)
    (line,) = log.of("job.released")
    assert line["jobs"] == [job_id]
    assert log.of("lease.lost") == []


@pytest.fixture
def untraced() -> Iterator[None]:
    """Start new threads without a trace function, such as that of coverage.

    Python 3.11 spins on an exception pending for another thread instead of checking for it: while that thread is
    blocked, every traced thread of the process hangs at its next function call.
    """
    here, started = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    yield
    threading.settrace(started)  # type: ignore[arg-type]
    sys.settrace(here)


async def test_a_plain_handler_that_cannot_be_interrupted_is_left_behind_and_its_job_goes_back(
    untraced: None, make_app: MakeApp, log: Log
) -> None:
    app = await make_app(grace_seconds=0.05)
    app.limit("api", rate=1, per_seconds=3_600)
    entered, release = threading.Event(), threading.Event()

    @app.job("a", limit="api")
    def a(job: Job) -> None:
        entered.set()
        release.wait(SECONDS)

    job_id = (await a.enqueue()).job_id
    try:
        async with working(app):
            assert await asyncio.to_thread(entered.wait, SECONDS)
        after = await record(app, job_id)
        claimed = await app.store.claim("default", ANN, 1)
    finally:
        release.set()
    assert (after.status, after.attempts) == (Status.QUEUED, 0)
    assert claimed == [], "it did start: the rate of its limit is used up"
    assert log.of("lease.lost") == []


async def test_a_handler_that_returns_early_because_the_worker_stops_runs_again(make_app: MakeApp) -> None:
    app = await make_app(grace_seconds=0.05)
    entered = threading.Event()

    @app.job("a")
    async def a(job: Job) -> str:
        entered.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "done" if not job.cancelled else "half of it"

    job_id = (await a.enqueue()).job_id
    async with working(app):
        assert await asyncio.to_thread(entered.wait, SECONDS)
    after = await record(app, job_id)
    assert (after.status, after.attempts, after.result) == (Status.QUEUED, 0, None)


@pytest.mark.every_store
async def test_a_claim_under_way_when_the_worker_stops_is_given_back(make_app: MakeApp, store: Store) -> None:
    app = await make_app()
    app.job("a")(lambda job: None)
    async with working(app) as stop:
        await soon(app.store.next("claim"))
        with app.store.held("claim"):
            claimed = app.store.next("claim", bool)
            job_id = (await app.enqueue("a")).job_id
            await soon(claimed)  # claimed, but the worker has no answer yet
            stop.set()
            await turns()  # the stop is in progress when the answer arrives
    after = await record(app, job_id)
    assert (after.status, after.attempts) == (Status.QUEUED, 0)


async def test_stopping_an_idle_worker_takes_no_time_and_leaves_nothing(make_app: MakeApp, store: Store) -> None:
    app = await make_app(grace_seconds=3_600)
    app.job("a")(lambda job: None)
    async with working(app):
        await soon(app.store.next("peek"))
    assert await store.workers() == []


@pytest.mark.every_store
async def test_stopping_again_and_again_under_load_loses_nothing(make_app: MakeApp) -> None:
    app = await make_app(concurrency=3)
    ran: list[str] = []

    @app.job("a")
    async def a(job: Job) -> None:
        await asyncio.sleep(0)
        ran.append(job.id)

    receipts = await app.enqueue_many([("a", {})] * 300)
    for _ in range(5):
        async with working(app):
            await soon(app.store.next("claim", bool))
    await drain(app)
    assert sorted(ran) == sorted(receipt.job_id for receipt in receipts)
    attempts = {(await record(app, receipt.job_id)).attempts for receipt in receipts[::10]}
    assert attempts == {1}


async def test_a_stop_does_not_wait_for_a_claim_to_be_tried_again(
    make_app: MakeApp, store: Store, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.jobs.worker.consumer._RETRY_SECONDS", (3_600,))
    app = await make_app()
    app.job("a")(lambda job: None)
    app.store.refuse("claim", 1_000)
    async with working(app):
        await soon(app.store.next("claim refused"))
    assert app.store.calls["claim"] == 1
    assert log.of("worker.unsettled") == []
    assert await store.workers() == []


async def test_a_stop_before_the_start_is_a_stop(make_app: MakeApp) -> None:
    app = await make_app()
    ran = []
    app.job("a")(lambda job: ran.append(job.id))
    stop = asyncio.Event()
    stop.set()
    await soon(app.work(stop=stop))
    await app.enqueue("a")
    await soon(app.work(stop=stop))
    assert len((await app.jobs(status="processing")).jobs) == 0


@pytest.mark.every_store
async def test_a_fault_of_our_own_ends_the_worker_with_that_fault(make_app: MakeApp) -> None:
    for verb in ("beat", "rescue", "peek", "claim"):
        # A heartbeat that takes longer than its interval delays the rescue.
        beats = {"heartbeat_ms": 20} if verb == "beat" else {}
        app = await make_app(rescue_ms=20, poll_ms=20, **beats)
        app.job("a")(lambda job: None)
        stop = asyncio.Event()
        worker = asyncio.create_task(app.work(stop=stop))
        await soon(app.store.next("peek"))
        app.store.refuse(verb, 1, RuntimeError(f"a fault in {verb}"))
        await app.enqueue("a")
        _, running = await asyncio.wait([worker], timeout=SECONDS)
        stop.set()
        outcome = (await asyncio.gather(worker, return_exceptions=True))[0]
        assert not running, f"a fault in {verb} went unseen"
        assert f"a fault in {verb}" in repr(outcome)
