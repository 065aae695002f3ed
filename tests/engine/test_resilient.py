"""Resilient mode: the work is done where it is asked for, without the queue."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from conformance.stores import Rig
from engine.conftest import MakeApp
from engine.running import Log
from rowlock import BadPayload, Job, Retry, Rowlock, UnknownJobType
from rowlock.storage.base import Store


@pytest.fixture
async def resilient(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> Rowlock:
    monkeypatch.setenv("QUEUE_RESILIENT_MODE", "true")
    app = await make_app()
    assert app.settings.resilient
    return app


async def test_a_job_is_done_when_enqueue_returns_and_nothing_is_recorded(resilient: Rowlock, store: Store) -> None:
    ran: list[Any] = []

    @resilient.job("async")
    async def in_loop(job: Job, n: int) -> None:
        await asyncio.sleep(0)
        ran.append((job.type, n, job.attempt, job.max_attempts))

    @resilient.job("plain")
    def in_thread(job: Job, n: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        job.progress(50)
        ran.append((job.type, n, job.attempt, job.max_attempts))

    @resilient.job("batch", batch=10)
    async def batch(jobs: list[Job]) -> None:
        ran.extend((job.type, job.payload["n"], job.attempt, job.max_attempts) for job in jobs)

    await in_loop.enqueue(n=1)
    await resilient.enqueue_many([("plain", {"n": 2}), ("batch", {"n": 3})])
    await asyncio.to_thread(resilient.blocking.enqueue, "async", {"n": 4})
    assert ran == [("async", 1, 1, 1), ("plain", 2, 1, 1), ("batch", 3, 1, 1), ("async", 4, 1, 1)]
    assert (await store.counts()).get("succeeded", 0) == 0
    assert resilient.store.calls == {}


async def test_it_works_without_the_database(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_RESILIENT_MODE", "1")
    nowhere = {
        "sqlite": "sqlite:////no/such/folder/jobs.db",
        "postgres": "postgresql://nobody@127.0.0.1:1/nowhere",
        "mongo": "mongodb://127.0.0.1:1/nowhere",
    }
    ran = []
    async with Rowlock(nowhere[rig.name]) as app:
        app.job("a")(lambda job: ran.append(job.id))
        receipt = await app.enqueue("a")
    assert ran == [receipt.job_id]


async def test_its_exception_is_the_callers(resilient: Rowlock, log: Log) -> None:
    @resilient.job("a")
    async def a(job: Job, how: str) -> None:
        raise Retry("later") if how == "retry" else RuntimeError("password=hunter2")

    with pytest.raises(RuntimeError, match="hunter2"):
        await a.enqueue(how="raise")
    with pytest.raises(Retry):
        await a.enqueue(how="retry")
    assert [line["reason"] for line in log.of("job.failed")] == ["RuntimeError: password=[REDACTED]", "later"]


async def test_what_is_wrong_is_refused_as_ever(resilient: Rowlock) -> None:
    @resilient.job("a")
    async def a(job: Job, n: int) -> None: ...

    with pytest.raises(UnknownJobType):
        await resilient.enqueue("b")
    with pytest.raises(BadPayload):
        await a.enqueue(n="x")


async def test_a_handlers_transaction_keeps_its_writes(resilient: Rowlock, rig: Rig, store: Store) -> None:
    await rig.make_ledger(store)

    @resilient.job("a")
    async def a(job: Job) -> None:
        async with job.transaction() as tx:
            await rig.write_ledger(tx, "written")

    await a.enqueue()
    async with store.transaction() as transaction:
        assert await rig.read_ledger(transaction) == ["written"]


async def test_a_job_enqueued_on_a_callers_connection_runs_too(resilient: Rowlock) -> None:
    ran = []
    resilient.job("a")(lambda job: ran.append(job.id))

    def synchronous() -> str:
        return resilient.blocking.enqueue("a", connection=object()).job_id

    assert ran == [await asyncio.to_thread(synchronous)]
