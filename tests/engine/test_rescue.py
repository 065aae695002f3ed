"""Rescue: jobs of dead workers run again, and superseded attempts change nothing."""

from __future__ import annotations

import asyncio

import pytest

from conformance.builders import BEN, put_and_take
from engine.conftest import MakeApp
from engine.running import Log, done, drain, record, soon, take_over, working
from engine.watched import ALWAYS
from rowlock import FakeClock, Job, Rowlock, Status
from rowlock.clock import StoreClock
from rowlock.jobs.worker.maintenance import Maintenance
from rowlock.storage.contract import Store


@pytest.mark.every_store
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


@pytest.mark.every_store
async def test_a_running_worker_keeps_its_leases_however_long_the_handler_runs(
    make_app: MakeApp, store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Maintenance, "_wait_for_others", lambda maintenance: None)  # after a slow heartbeat
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


@pytest.mark.every_store
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


@pytest.mark.every_store
async def test_a_worker_that_gets_its_own_lost_job_back_lets_the_new_attempt_win(
    make_app: MakeApp, store: Store, clock: FakeClock
) -> None:
    """Another maintenance rescues its job while heartbeats fail, and the same worker runs it again."""
    app = await make_app(concurrency=2, heartbeat_ms=20, rescue_ms=20, poll_ms=20)
    entered, first_stopped, second_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> str:
        if job.attempt > 1:
            await first_stopped.wait()
            second_ended.set()
            return "second"
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert job.cancelled
            first_stopped.set()
        return "first"

    job_id = (await a.enqueue()).job_id
    async with working(app):
        await soon(entered.wait())
        app.store.refuse("beat", ALWAYS)
        again = app.store.next("claim", bool)
        clock.advance(31)
        while not await store.rescue(10, {}, str):  # a heartbeat was in progress
            clock.advance(31)
        await soon(again)
        settled = app.store.next("settle")
        app.store.mend("beat")
        await soon(first_stopped.wait())
        await soon(second_ended.wait())
        await soon(settled)
        for _ in range(3):
            await soon(app.store.next("beat"))
        after = await record(app, job_id)
    assert (after.status, after.result) == (Status.SUCCEEDED, '"second"')
    assert after.attempts == after.lease > 1  # both maintenance loops may have rescued it in turn


async def test_after_an_outage_the_living_may_beat_before_anything_is_rescued(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.jobs.worker.maintenance._BACK_SECONDS", 0.0)
    app = await make_app(heartbeat_ms=250, rescue_ms=10)
    async with working(app):
        await soon(app.store.next("beat"))
        app.store.refuse("beat")
        await soon(app.store.next("beat refused"))
        await soon(app.store.quiet())
        before = app.store.calls["beat"]
        await soon(app.store.next("rescue"))
        assert app.store.calls["beat"] > before


@pytest.mark.every_store
async def test_heartbeats_follow_the_shortest_lease_that_is_held(make_app: MakeApp) -> None:
    """A running or prefetched job with a visibility timeout shorter than its worker's heartbeat interval."""
    app = await make_app(concurrency=1, clock=StoreClock(), rescue_ms=100)
    assert app.settings.heartbeat_ms == 10_000
    producer = await make_app(clock=StoreClock(), visibility_ms=3_000, heartbeat_ms=1_000, allow_unknown_types=True)
    starts: list[str] = []
    entered, release = asyncio.Event(), asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> None:
        starts.append(job.id)
        entered.set()
        await release.wait()

    async with working(app):
        await soon(app.store.next("beat"))
        await producer.enqueue_many([("a", {})] * 2)
        await soon(entered.wait())
        for _ in range(5):  # three of these take as long as a lease
            await soon(app.store.next("beat"))
        release.set()
        while len(starts) < 2:
            await asyncio.sleep(0.01)
    assert len(set(starts)) == 2, "no job started twice"
