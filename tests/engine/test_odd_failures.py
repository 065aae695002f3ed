"""Unusual failures: they end one attempt, with a reason, and never the worker."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import datetime

import pytest

from engine.running import done, drain, record, waits
from rowlock import Backoff, FakeClock, Job, RateLimited, Retry, Rowlock, Snooze, Status


class Broken(Exception):
    pass


async def test_a_cancellation_from_within_is_a_failed_attempt_like_any_other(app: Rowlock, clock: FakeClock) -> None:
    @app.job("a")
    async def a(job: Job) -> None:
        raise asyncio.CancelledError

    @app.job("b")
    async def b(job: Job) -> str:
        return "unharmed"

    first, second = await a.enqueue(), await b.enqueue()
    after = await done(app, first.job_id)
    assert waits(after, clock) == 2
    assert "cancelled from within" in (after.error or "")
    assert (await record(app, second.job_id)).result == '"unharmed"'


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
async def test_an_exception_that_ends_programs_ends_the_attempt_only(
    app: Rowlock, clock: FakeClock, error: BaseException
) -> None:
    @app.job("a")
    def a(job: Job) -> None:
        raise error

    after = await done(app, (await a.enqueue()).job_id)
    assert waits(after, clock) == 2
    assert type(error).__name__ in (after.error or "")


@pytest.mark.parametrize("message", ["x" * 100_000, "nul \x00 inside", "a lone \ud800 surrogate", ""])
@pytest.mark.every_store
async def test_any_message_can_be_recorded(app: Rowlock, message: str) -> None:
    @app.job("a")
    async def a(job: Job) -> None:
        raise Broken(message)

    after = await done(app, (await a.enqueue()).job_id)
    assert (after.error or "").startswith("Broken")
    assert len(after.error or "") <= 2_000


async def test_an_odd_choice_of_a_handler_harms_itself_only(app: Rowlock) -> None:
    app.limit("api", concurrency=9)
    odd: list[Callable[[], BaseException]] = [
        lambda: Retry(after=-5),
        lambda: Retry(after=math.inf),
        lambda: Retry(after=math.nan),
        lambda: Retry(after=1e300),
        lambda: Retry(after="soon"),
        lambda: Snooze(math.nan),
        lambda: Snooze(None),
        lambda: RateLimited("api", seconds=math.inf),
        lambda: RateLimited("nul\x00", seconds=5),
        lambda: RateLimited("x" * 5_000, seconds=5),
        lambda: RateLimited(None, seconds=5),
        lambda: RateLimited("api", until=datetime(2030, 1, 1)),
    ]

    @app.job("odd", retry=Backoff(max_attempts=2))
    async def choose(job: Job, which: int) -> None:
        raise odd[which]()

    @app.job("fine")
    async def fine(job: Job) -> str:
        return "unharmed"

    receipts = [await choose.enqueue(which=which) for which in range(len(odd))]
    good = await fine.enqueue()
    await drain(app)
    assert (await record(app, good.job_id)).result == '"unharmed"'
    for receipt in receipts:
        after = await record(app, receipt.job_id)
        assert after.status in (Status.QUEUED, Status.FAILED)
        assert after.error


async def test_an_exception_whose_message_cannot_be_made_is_still_recorded(app: Rowlock, clock: FakeClock) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    @app.job("a")
    async def a(job: Job) -> None:
        raise Unspeakable

    after = await done(app, (await a.enqueue()).job_id)
    assert waits(after, clock) == 2
    assert "Unspeakable" in (after.error or "")
