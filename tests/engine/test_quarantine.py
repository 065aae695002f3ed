"""Quarantine: a job that one more process death would quarantine runs alone while the others wait."""

from __future__ import annotations

import asyncio

import pytest

from conformance.builders import BEN
from engine.conftest import MakeApp
from engine.running import drain, record, soon, turns, working
from rowlock import Job, Rowlock, Status
from rowlock.storage.contract import Store
from rowlock.storage.records import Outcome, Settlement


async def suspect(app: Rowlock, store: Store, type_name: str, queue: str = "default", deaths: int = 2) -> str:
    """Enqueue a job whose process has died `deaths` times."""
    job_id = (await app.enqueue(type_name, {"suspect": True}, queue=queue)).job_id
    for _ in range(deaths):
        held = await store.claim(queue, BEN, 100)
        ends = {True: Outcome.CRASH, False: Outcome.RELEASE}
        assert await store.settle(BEN, [Settlement(c.id, c.lease, ends[c.id == job_id]) for c in held]) == []
    return job_id


class Together:
    """Records which jobs run at the same time."""

    def __init__(self) -> None:
        self.inside: list[bool] = []
        self.ran = 0
        self.beside_a_suspect = False

    async def run(self, is_candidate: bool) -> None:
        self.inside.append(is_candidate)
        self.beside_a_suspect |= any(self.inside) and len(self.inside) > 1
        for _ in range(10):
            await asyncio.sleep(0)
        self.inside.remove(is_candidate)
        self.ran += 1


async def test_they_run_alone_in_their_process_and_everything_runs(make_app: MakeApp, store: Store) -> None:
    app = await make_app(concurrency=4)
    watch = Together()
    for queue in ("one", "two"):

        @app.job(f"on.{queue}", queue=queue)
        async def work(job: Job, suspect: bool) -> None:
            await watch.run(suspect)

        for _ in range(3):
            await suspect(app, store, f"on.{queue}", queue)
            await app.enqueue_many([(f"on.{queue}", {"suspect": False})] * 5)
    await drain(app)
    assert (await app.store.counts())[Status.SUCCEEDED] == 36
    assert watch.ran == 36
    assert not watch.beside_a_suspect


async def test_a_job_that_died_once_runs_beside_the_others(make_app: MakeApp, store: Store) -> None:
    app = await make_app(concurrency=2)
    together = asyncio.Barrier(2)

    @app.job("a")
    async def a(job: Job, suspect: bool) -> None:
        await soon(together.wait())

    await suspect(app, store, "a", deaths=1)
    await app.enqueue("a", {"suspect": False})
    await drain(app)
    assert (await app.store.counts())[Status.SUCCEEDED] == 2


async def test_other_queues_go_on_when_it_has_ended(
    make_app: MakeApp, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.jobs.worker.quarantine.ALONE_SECONDS", 3_600)
    app = await make_app(poll_ms=50)
    entered, release, after = asyncio.Event(), asyncio.Event(), asyncio.Queue()

    @app.job("poison", queue="one")
    async def poison(job: Job, suspect: bool) -> None:
        entered.set()
        await release.wait()

    for queue in ("default", "one", "two"):

        @app.job(f"on.{queue}", queue=queue)
        async def work(job: Job) -> None:
            after.put_nowait(job.queue)

    await suspect(app, store, "poison", "one")
    async with working(app):
        await soon(app.store.next("hint of queue"))  # the worker listens now
        await soon(entered.wait())
        claims = app.store.calls["claim"]
        for queue in ("default", "one", "two"):
            heard = app.store.next("hint of queue", lambda name, queue=queue: name in ("*", queue))
            await app.enqueue(f"on.{queue}")
            await soon(heard)
        await turns()  # each consumer has received the hint for its job, and must not claim it
        assert app.store.calls["claim"] == claims
        await soon(app.store.quiet())
        await turns()
        assert after.empty()
        release.set()
        assert {await soon(after.get()) for _ in range(3)} == {"default", "one", "two"}


async def test_one_that_has_lived_long_enough_does_not_keep_the_others_waiting(
    make_app: MakeApp, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.jobs.worker.quarantine.ALONE_SECONDS", 0.05)
    app = await make_app(poll_ms=50)
    entered, release, beside = asyncio.Event(), asyncio.Event(), asyncio.Queue()

    @app.job("long", queue="one")
    async def long(job: Job, suspect: bool) -> None:
        entered.set()
        await release.wait()

    for queue in ("one", "two"):

        @app.job(f"on.{queue}", queue=queue)
        async def work(job: Job) -> None:
            beside.put_nowait(job.queue)

    job_id = await suspect(app, store, "long", "one")
    async with working(app):
        await soon(entered.wait())
        for queue in ("one", "two"):
            await app.enqueue(f"on.{queue}")
        assert {await soon(beside.get()) for _ in range(2)} == {"one", "two"}
        assert (await record(app, job_id)).status is Status.PROCESSING
        release.set()
    assert (await record(app, job_id)).status is Status.SUCCEEDED


async def test_one_that_waits_for_others_goes_back_unspent_when_the_worker_stops(
    make_app: MakeApp, store: Store
) -> None:
    app = await make_app(concurrency=2)
    entered, release = asyncio.Event(), asyncio.Event()

    @app.job("a", queue="one")
    async def a(job: Job, suspect: bool) -> None:
        entered.set()
        await release.wait()

    app.job("b", queue="two")(a.function)
    first, second = await suspect(app, store, "a", "one"), await suspect(app, store, "b", "two")
    before = {job_id: (await record(app, job_id)).attempts for job_id in (first, second)}
    claims = [
        app.store.next("claim", lambda got, job_id=job_id: job_id in {job.id for job in got}) for job_id in before
    ]
    async with working(app) as stop:
        await soon(asyncio.gather(*claims))
        await soon(entered.wait())
        given_back = app.store.next("settle")
        stop.set()
        await soon(given_back)
        release.set()
    after = [await record(app, job_id) for job_id in (first, second)]
    assert sorted(job.status for job in after) == [Status.QUEUED, Status.SUCCEEDED]
    for job in after:
        assert job.attempts == before[job.id] + (job.status is Status.SUCCEEDED)
        assert job.lock_owner is None


async def test_it_is_a_batch_of_its_own(make_app: MakeApp, store: Store) -> None:
    app = await make_app(concurrency=2)
    sizes: list[tuple[int, int]] = []

    @app.job("a", batch=10)
    async def a(jobs: list[Job]) -> None:
        sizes.append((len(jobs), sum(job.payload["suspect"] for job in jobs)))

    for _ in range(2):
        await suspect(app, store, "a")
    await app.enqueue_many([("a", {"suspect": False})] * 6)
    await drain(app)
    assert sum(number for number, _ in sizes) == 8
    assert [size for size in sizes if size[1]] == [(1, 1), (1, 1)]


async def test_it_may_be_cancelled_while_it_waits(make_app: MakeApp, store: Store) -> None:
    app = await make_app(concurrency=2)
    entered, release, ran = asyncio.Event(), asyncio.Event(), []

    @app.job("long", priority=1)
    async def long(job: Job) -> None:
        entered.set()
        await release.wait()

    @app.job("a")
    async def a(job: Job, suspect: bool) -> None:
        ran.append(job.id)

    job_id = await suspect(app, store, "a")
    await long.enqueue()
    async with working(app):
        await soon(app.store.next("hint of queue"))
        await soon(entered.wait())
        settled = app.store.next("settle")
        await app.cancel(job_id)
        await soon(settled)
        assert (await record(app, job_id)).status is Status.CANCELLED
        release.set()
    assert ran == []
