"""Short ways to run a worker in a test and to wait for what it does, never for long."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from engine.watched import ALWAYS, WatchedStore
from rowlock import FakeClock, JobRecord, Rowlock, Status
from rowlock.storage.base import Store
from rowlock.storage.records import Claimed

T = TypeVar("T")

SECONDS = 10.0
"""Longer than anything here takes, on a busy machine; then the test fails instead of hanging."""


async def soon(waiting: Awaitable[T], seconds: float = SECONDS) -> T:
    """Wait for it, but not for ever."""
    async with asyncio.timeout(seconds):
        return await waiting


async def drain(app: Rowlock, *queues: str) -> None:
    """Work until nothing is ready."""
    if isinstance(app.store, WatchedStore):
        app.store.deaf = True  # draining needs no hints, and the connection for them takes longer than all the rest
    await soon(app.work(*queues, drain=True))


async def take_over(app: Rowlock, store: Store, clock: FakeClock, owner: str) -> Claimed:
    """Another worker gets the job that this one runs, as when its machine stood still for a while."""
    app.store.refuse("beat", ALWAYS)
    with app.store.stalled("claim"), app.store.stalled("rescue"):
        while +app.store.under_way:  # nothing that the worker began before
            await asyncio.sleep(0.001)
        clock.advance(31)
        await store.rescue(10, {}, str)
        (claimed,) = await store.claim("default", owner, 1)
        return claimed


@asynccontextmanager
async def working(app: Rowlock, *queues: str) -> AsyncIterator[asyncio.Event]:
    """A worker that runs until the end of the block, or until the event that it gives is set."""
    app.store.deaf = False
    stop = asyncio.Event()
    worker = asyncio.create_task(app.work(*queues, stop=stop))
    try:
        yield stop
    finally:
        stop.set()
        await soon(worker)


async def done(app: Rowlock, job_id: str) -> JobRecord:
    """The record of a job, run by draining."""
    await drain(app)
    return await record(app, job_id)


async def record(app: Rowlock, job_id: str) -> JobRecord:
    found = await app.get(job_id)
    assert found is not None
    return found


def waits(after: JobRecord, clock: FakeClock) -> float:
    """In how many seconds a job is available again."""
    assert after.status is Status.QUEUED
    return round((after.available_at - clock.now()).total_seconds(), 3)


class Log:
    """What was logged, as JSON lines."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.split("\n") if line]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]
