"""The supervisor: settlements for a worker process that died or that it kills."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.builders import new_jobs, put_many
from conformance.stores import Rig
from engine.running import Log, record, waits
from engine.sabotage import POISON, refusing_values
from rowlock import FakeClock, Rowlock, Status
from rowlock.errors import StoreUnavailable
from rowlock.ids import uuid7
from rowlock.jobs.outcome import _ERROR_REFUSED
from rowlock.jobs.worker.started_jobs import Slots, Started
from rowlock.jobs.worker.supervisor import Child, Supervisor
from rowlock.observe import logs
from rowlock.settings import load
from rowlock.storage.contract import Store
from rowlock.storage.records import Claimed, Failed, Outcome, Settlement, Worker
from rowlock.storage.reliability import FailureFilter


@pytest.fixture
async def app(rig: Rig, store: Store, clock: FakeClock) -> AsyncIterator[Rowlock]:
    """An application whose store is not watched: a supervisor asks the store for held leases."""
    async with Rowlock(settings=load(database_url=rig.url, connections=2), clock=clock) as app:
        yield app


def supervisor(app: Rowlock) -> Supervisor:
    return Supervisor(app.engine, "none:app", ["default"], logs.get(), processes=1)


def child(returncode: int | None = -9) -> Child:
    """A stand-in for a worker process (default: ended by SIGKILL), with room for ten jobs."""
    process: Any = SimpleNamespace(pid=1, returncode=returncode, stdin=None, send_signal=lambda number: None)
    return Child(Worker(uuid7(), "here:1", ("default",)), process, Slots.private(10), -1)


async def claimed_by(store: Store, one: Child, limit: int = 10) -> list[Claimed]:
    await store.beat([one.record])
    return await store.claim("default", one.record.id, limit)


@pytest.mark.every_store
async def test_a_value_that_the_store_refuses_costs_no_other_job_its_failure_record(
    app: Rowlock, store: Store, rig: Rig, log: Log
) -> None:
    one = child()
    await put_many(store, 3)
    claims = await claimed_by(store, one)
    ends = [
        Settlement(
            job.id,
            job.lease,
            Outcome.CRASH,
            error=error,
            type=job.type,
            queue="default",
            failure=Failed(uuid7(), '{"kept": true}', None),
        )
        for job, error in zip(claims, ("died", POISON, "died"), strict=True)
    ]
    with refusing_values(rig):
        await supervisor(app)._settle(one, ends)
    after = [await record(app, job.id) for job in claims]
    assert [(job.status, job.attempts, job.deaths) for job in after] == [(Status.QUEUED, 1, 1)] * 3
    assert [job.error for job in after] == ["died", _ERROR_REFUSED, "died"]
    failures = {f.job_id: f.payload for f in (await store.failures(FailureFilter(), 10)).failures}
    assert failures[claims[0].id] == failures[claims[2].id] == '{"kept": true}'
    assert [line["job"] for line in log.of("settle.refused")] == [claims[1].id]


async def test_a_job_of_a_type_that_the_supervisor_does_not_know_has_a_deadline_too(
    app: Rowlock, store: Store, clock: FakeClock
) -> None:
    one = child()
    await store.enqueue(new_jobs(1, type="deployed.later"))
    (job,) = await claimed_by(store, one)
    now = time.monotonic()
    await supervisor(app)._condemn(one, [Started(job.id, job.lease, now - 5, now - 3)])
    assert one.condemned == {job.id}
    after = await record(app, job.id)
    assert (after.attempts, waits(after, clock)) == (1, 2.0), "the default backoff"
    assert after.error == "DeadlineExceeded: the handler ran past its deadline of 2 s"


async def test_a_deadline_that_cannot_be_settled_is_tried_again(
    app: Rowlock, store: Store, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = child()
    await put_many(store, 1)
    (job,) = await claimed_by(store, one)
    now, late = time.monotonic(), supervisor(app)

    async def away(*_: object) -> None:
        raise StoreUnavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "settle", away)
        await late._condemn(one, [Started(job.id, job.lease, now - 5, now - 3)])
    assert one.condemned == set()
    assert len(log.of("deadline.delayed")) == 1
    await late._condemn(one, [Started(job.id, job.lease, now - 5, now - 3)])
    assert one.condemned == {job.id}
