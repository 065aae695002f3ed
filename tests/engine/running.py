"""Helpers that run a worker in a test and wait, with a time limit, for what it does."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from engine.watched import ALWAYS, WatchedStore
from rowlock import FakeClock, JobRecord, Rowlock, Status
from rowlock.storage.contract import Store
from rowlock.storage.records import Claimed

T = TypeVar("T")

SECONDS = 60.0
"""Longer than anything here takes on a busy machine; after that the test fails instead of hanging."""


async def soon(waiting: Awaitable[T], seconds: float = SECONDS) -> T:
    """Await `waiting`, with a time limit."""
    async with asyncio.timeout(seconds):
        return await waiting


async def turns() -> None:
    """Let the event loop run everything that does not wait for I/O or time."""
    for _ in range(100):
        await asyncio.sleep(0)


async def drain(app: Rowlock, *queues: str) -> None:
    """Run a worker until no job is ready."""
    if isinstance(app.store, WatchedStore):
        app.store.deaf = True  # draining needs no hints, and their connection takes longer to open than all the rest
    await soon(app.work(*queues, drain=True))


async def take_over(app: Rowlock, store: Store, clock: FakeClock, owner: str) -> Claimed:
    """Let another worker claim the job that this one runs, as after a pause of its machine."""
    app.store.refuse("beat", ALWAYS)
    with app.store.stalled("claim"), app.store.stalled("rescue"):
        await soon(app.store.quiet())  # let calls end that the worker has already begun
        clock.advance(31)
        await store.rescue(10, {}, str)
        (claimed,) = await store.claim("default", owner, 1)
        return claimed


@asynccontextmanager
async def working(app: Rowlock, *queues: str) -> AsyncIterator[asyncio.Event]:
    """Run a worker until the end of the block, or until the yielded event is set."""
    app.store.deaf = False
    stop = asyncio.Event()
    worker = asyncio.create_task(app.work(*queues, stop=stop))
    try:
        yield stop
    finally:
        stop.set()
        await soon(worker)


async def done(app: Rowlock, job_id: str) -> JobRecord:
    """Drain the queue and return the record of a job."""
    await drain(app)
    return await record(app, job_id)


async def record(app: Rowlock, job_id: str) -> JobRecord:
    found = await app.get(job_id)
    assert found is not None
    return found


def waits(after: JobRecord, clock: FakeClock) -> float:
    """Return the seconds until a job is available again."""
    assert after.status is Status.QUEUED
    return round((after.available_at - clock.now()).total_seconds(), 3)


class Log:
    """The log, parsed from JSON lines."""

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
