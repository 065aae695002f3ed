"""Shared limits: concurrency and rate per key, and keys paused for the whole fleet."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from engine.conftest import MakeApp
from engine.running import SECONDS, done, drain, record, soon, working
from rowlock import BadPayload, FakeClock, Job, RateLimited, Rowlock, SettingsError, Status


@pytest.mark.every_store
async def test_a_limit_holds_across_two_workers_and_is_used_fully(make_app: MakeApp) -> None:
    running, most, done_jobs = 0, 0, asyncio.Semaphore(0)
    workers = [await make_app(concurrency=4), await make_app(concurrency=4)]
    for app in workers:
        app.limit("api", concurrency=3)

        @app.job("call", limit="api")
        async def call(job: Job) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            for _ in range(20):
                await asyncio.sleep(0)
                if running == 3:
                    break
            running -= 1
            done_jobs.release()

    await workers[0].enqueue_many([("call", {})] * 40)
    await asyncio.gather(*(drain(app) for app in workers))
    await drain(workers[0])
    assert (await workers[0].store.counts())[Status.SUCCEEDED] == 40
    assert most == 3


@pytest.mark.every_store
async def test_jobs_given_back_unstarted_start_later_within_their_rate(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.jobs.worker.prefetch._STALE_SECONDS", 0.05)
    app = await make_app(concurrency=2, poll_ms=50)
    app.limit("api", rate=4, per_seconds=3_600)
    entered: asyncio.Queue[str] = asyncio.Queue()
    release = asyncio.Event()

    @app.job("call", limit="api")
    async def call(job: Job) -> None:
        entered.put_nowait(job.id)
        await release.wait()

    await app.enqueue_many([("call", {})] * 6)
    given_back = app.store.next("settle")
    async with working(app):
        started = {await soon(entered.get()) for _ in range(2)}
        await soon(given_back)  # the prefetched jobs are released
        release.set()
        started |= {await soon(entered.get()) for _ in range(2)}
        fruitless = app.store.next("claim", lambda claims: claims == [])
        await soon(fruitless)
    assert len(started) == 4
    assert entered.empty(), "the rate is used up"


async def test_each_part_of_a_limit_counts_on_its_own(make_app: MakeApp) -> None:
    app = await make_app(concurrency=8)
    app.limit("per.company", concurrency=1)
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    together = asyncio.Barrier(3)

    @app.job("call", limit="per.company", limit_by="company")
    async def call(job: Job, company: str, meet: bool = False) -> None:
        running[company] += 1
        most[company] = max(most[company], running[company])
        if meet:
            await soon(together.wait())  # the first job of each company: the three run at the same time
        await asyncio.sleep(0)
        running[company] -= 1

    companies = ("acme", "blue", "cord")
    await app.enqueue_many([("call", {"company": company, "meet": True}) for company in companies])
    await app.enqueue_many([("call", {"company": company}) for company in companies for _ in range(5)])
    await drain(app)
    assert most == Counter(companies)
    assert (await app.store.counts())[Status.SUCCEEDED] == 18


@pytest.mark.every_store
async def test_a_job_under_a_limit_starts_as_soon_as_another_of_its_key_is_done(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    # If only polling found them, the 30 jobs would take twice as long as `soon` waits.
    monkeypatch.setattr("rowlock.jobs.worker.consumer._BLOCKED_SECONDS", 2 * SECONDS / 30)
    app = await make_app(poll_ms=86_400_000)
    app.limit("one", concurrency=1)
    last = asyncio.Event()

    @app.job("call", limit="one")
    async def call(job: Job, number: int) -> None:
        await soon(app.store.next("claim", lambda claimed: not claimed))  # nothing else may start at the same time
        if number == 29:
            last.set()

    async with working(app):
        await app.enqueue_many([("call", {"number": number}) for number in range(30)])
        await soon(last.wait())


async def test_a_rate_counts_starts_in_any_window(app: Rowlock, clock: FakeClock) -> None:
    app.limit("calls", rate=3, per_seconds=60)
    ran: list[float] = []
    began = clock.now()

    @app.job("call", limit="calls")
    async def call(job: Job) -> None:
        ran.append((clock.now() - began).total_seconds())

    await app.enqueue_many([("call", {})] * 8)
    for _ in range(3):
        await drain(app)
        clock.advance(59)
        await drain(app)
        clock.advance(1)
    assert ran == [0.0] * 3 + [60.0] * 3 + [120.0] * 2


async def test_a_limit_does_not_hold_up_jobs_without_it(make_app: MakeApp) -> None:
    app = await make_app(concurrency=2)
    app.limit("one", concurrency=1)
    entered, free, release = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.job("limited", limit="one", priority=1)
    async def limited(job: Job) -> None:
        entered.set()
        await release.wait()

    @app.job("free")
    async def unlimited(job: Job) -> None:
        free.set()

    async with working(app):
        await app.enqueue_many([("limited", {})] * 5)
        await soon(entered.wait())
        await unlimited.enqueue()
        await soon(free.wait())
        release.set()


@pytest.mark.every_store
async def test_a_rate_limited_job_pauses_its_key_for_all_and_gets_its_attempt_back(
    make_app: MakeApp, clock: FakeClock
) -> None:
    one, two = await make_app(concurrency=1), await make_app(concurrency=1)
    ran: list[str] = []
    for app in (one, two):
        app.limit("hubspot", concurrency=10)

        @app.job("call", limit="hubspot")
        async def call(job: Job) -> None:
            ran.append(job.id)
            if len(ran) == 1:
                raise RateLimited("hubspot", seconds=120, reason="429 from hubspot")

        @app.job("other")
        async def other(job: Job) -> None: ...

    first, second = await one.enqueue("call"), await one.enqueue("call")
    free = await one.enqueue("other")
    await drain(one)
    after = await record(one, first.job_id)
    assert (after.status, after.attempts, after.error) == (Status.QUEUED, 0, "429 from hubspot (hubspot)")
    assert (await record(one, free.job_id)).status is Status.SUCCEEDED
    started_behind = len(ran)  # a prefetched job may have run
    late = await two.enqueue("call")
    await drain(two)
    clock.advance(119)
    await drain(two)
    assert len(ran) == started_behind
    clock.advance(1)
    await drain(two)
    assert {(await record(one, r.job_id)).status for r in (first, second, late)} == {Status.SUCCEEDED}


@pytest.mark.every_store
async def test_a_key_may_be_paused_until_a_moment_of_the_stores_clock(app: Rowlock, clock: FakeClock) -> None:
    app.limit("api", concurrency=1)
    until = clock.now() + timedelta(seconds=90)

    @app.job("call", limit="api")
    async def call(job: Job) -> None:
        if clock.now() < until:
            raise RateLimited("api", until=until)

    job_id = (await call.enqueue()).job_id
    assert (await done(app, job_id)).available_at == until
    clock.advance(90)
    assert (await done(app, job_id)).status is Status.SUCCEEDED


async def test_a_part_may_be_paused_alone(app: Rowlock, clock: FakeClock) -> None:
    app.limit("api", concurrency=5)

    @app.job("call", limit="api", limit_by="company")
    async def call(job: Job, company: str) -> None:
        if company == "acme":
            raise RateLimited("api:acme", seconds=60)

    acme, blue = await call.enqueue(company="acme"), await call.enqueue(company="blue")
    await drain(app)
    assert (await record(app, acme.job_id)).status is Status.QUEUED
    assert (await record(app, blue.job_id)).status is Status.SUCCEEDED


async def test_a_job_without_the_part_that_its_limit_counts_by_is_refused(app: Rowlock) -> None:
    app.limit("api", concurrency=5)

    @app.job("call", limit="api", limit_by="company")
    async def call(job: Job, company: str | None = None) -> None: ...

    with pytest.raises(BadPayload, match="'company'"):
        await call.enqueue()


async def test_a_limit_must_be_declared_and_make_sense(app: Rowlock) -> None:
    with pytest.raises(SettingsError, match="'nowhere' is not declared"):
        app.job("a", limit="nowhere")
    with pytest.raises(SettingsError, match="limit="):
        app.job("a", limit_by="company")(lambda job: None)
    for wrong in ({}, {"concurrency": 0}, {"rate": 0}, {"rate": 1, "per_seconds": 0}):
        with pytest.raises(SettingsError, match="limit 'x'"):
            app.limit("x", **wrong)
    with pytest.raises(SettingsError, match="colon"):
        app.limit("a:b", concurrency=1)
