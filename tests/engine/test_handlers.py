"""Handlers: their arguments, and how their return values are recorded."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import Any

import pytest

from engine.conftest import MakeApp
from engine.running import done, drain, record
from rowlock import Job, Rowlock, SettingsError, Status

RESULTS: list[tuple[Any, str | None]] = [
    (None, None),
    ({"sent": 2, "to": ["a", "b"]}, '{"sent":2,"to":["a","b"]}'),
    ([1, None, 2.5], "[1,null,2.5]"),
    ("ok ✓", '"ok ✓"'),
    (0, "0"),
    (False, "false"),
    ({}, "{}"),
    ("", '""'),
    ("nul \x00 inside", '"nul \\u0000 inside"'),
]
NOT_JSON = [object(), {"when": {1, 2}}, {1: "a"}, float("nan"), 2**70]


async def test_what_a_handler_returns_is_the_jobs_result(app: Rowlock) -> None:
    @app.job("async")
    async def in_loop(job: Job, which: int) -> Any:
        return RESULTS[which][0]

    @app.job("plain")
    def in_thread(job: Job, which: int) -> Any:
        return RESULTS[which][0]

    for kind in ("async", "plain"):
        receipts = await app.enqueue_many((kind, {"which": which}) for which in range(len(RESULTS)))
        await drain(app)
        for receipt, (_, text) in zip(receipts, RESULTS, strict=True):
            after = await record(app, receipt.job_id)
            assert (after.status, after.result, after.error) == (Status.SUCCEEDED, text, None)


async def test_async_handlers_run_in_the_loop_and_plain_ones_in_threads(app: Rowlock) -> None:
    threads: dict[str, threading.Thread] = {}

    @app.job("async")
    async def in_loop(job: Job) -> None:
        threads["async"] = threading.current_thread()
        await asyncio.sleep(0)

    @app.job("plain")
    def in_thread(job: Job) -> None:
        threads["plain"] = threading.current_thread()

    await in_loop.enqueue()
    await in_thread.enqueue()
    await drain(app)
    assert threads["async"] is threading.current_thread()
    assert threads["plain"] is not threading.current_thread()


async def test_a_handler_knows_its_job(app: Rowlock) -> None:
    seen: list[Job] = []

    @app.job("a", queue="side")
    async def a(job: Job) -> None:
        seen.append(job)

    receipt = await app.enqueue("a", {"x": [1, {"y": None}]}, company_id="acme", max_attempts=3)
    await drain(app)
    (job,) = seen
    assert (job.id, job.type, job.queue, job.company_id) == (receipt.job_id, "a", "side", "acme")
    assert (job.attempt, job.max_attempts, job.lease) == (1, 3, 1)
    assert job.payload == {"x": [1, {"y": None}]}
    assert job.cancelled is False
    assert receipt.job_id in repr(job)


async def test_the_idempotency_key_stays_and_the_lease_grows_over_attempts(app: Rowlock) -> None:
    seen = []

    @app.job("a")
    async def a(job: Job) -> None:
        seen.append((job.idempotency_key, job.attempt, job.lease))

    receipt = await a.enqueue()
    await app.store.claim("default", receipt.job_id, 1)  # another worker, which dies
    await app.store.retire(receipt.job_id)
    app.clock.advance(31)
    await drain(app)
    assert seen == [(receipt.job_id, 2, 2)]


async def test_a_result_that_json_cannot_say_is_a_failure_with_a_reason(app: Rowlock) -> None:
    @app.job("a")
    async def a(job: Job, which: int) -> Any:
        return NOT_JSON[which]

    receipts = await app.enqueue_many(("a", {"which": which}) for which in range(len(NOT_JSON)))
    await drain(app)
    for receipt in receipts:
        after = await record(app, receipt.job_id)
        assert after.status is Status.FAILED
        assert "result of a: not JSON" in (after.error or "")


async def test_a_result_larger_than_a_payload_may_be_is_a_failure_with_a_reason(make_app: MakeApp) -> None:
    app = await make_app(payload_bytes_max=1_000)

    @app.job("a")
    async def a(job: Job, letters: int) -> str:
        return "x" * letters

    fits, exceeds = await a.enqueue(letters=998), await a.enqueue(letters=999)
    assert (await done(app, fits.job_id)).status is Status.SUCCEEDED
    after = await record(app, exceeds.job_id)
    assert after.status is Status.FAILED
    assert after.error is not None
    assert "1,001 bytes, the limit is 1,000" in after.error


async def test_one_failure_does_not_touch_its_neighbours(app: Rowlock) -> None:
    @app.job("a")
    async def a(job: Job, number: int) -> int:
        if number % 3 == 0:
            raise RuntimeError(f"no {number}")
        return number

    receipts = [await a.enqueue(number=number) for number in range(10)]
    await drain(app)
    for number, receipt in enumerate(receipts):
        after = await record(app, receipt.job_id)
        if number % 3:
            assert (after.status, after.result) == (Status.SUCCEEDED, str(number))
        else:
            assert (after.status, after.error) == (Status.QUEUED, f"RuntimeError: no {number}")


async def test_methods_and_wrapped_functions_are_handlers(app: Rowlock) -> None:
    class Mailer:
        async def send(self, job: Job, to: str) -> str:
            return f"sent to {to}"

    async def add(job: Job, one: int, two: int) -> int:
        return one + two

    @functools.wraps(add)
    async def wrapped(*args: Any, **kwargs: Any) -> int:
        return 10 * await add(*args, **kwargs)

    app.job("method")(Mailer().send)
    app.job("wrapped")(wrapped)
    method = await app.enqueue("method", {"to": "Ann"})
    around = await app.enqueue("wrapped", {"one": 1, "two": 2})
    await drain(app)
    assert [(await record(app, receipt.job_id)).result for receipt in (method, around)] == ['"sent to Ann"', "30"]


async def test_a_partial_function_is_a_handler(app: Rowlock) -> None:
    async def add(job: Job, one: int, two: int) -> int:
        return one + two

    app.job("partial")(functools.partial(add, two=2))
    assert (await done(app, (await app.enqueue("partial", {"one": 1})).job_id)).result == "3"


async def test_a_plain_function_that_gives_a_coroutine_is_awaited(app: Rowlock) -> None:
    async def add(job: Job, one: int) -> int:
        return one + 1

    def logged(job: Job, one: int) -> Any:
        return add(job, one)

    app.job("a")(logged)
    assert (await done(app, (await app.enqueue("a", {"one": 1})).job_id)).result == "2"


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_handler_sees_no_context_of_the_one_before_it(make_app: MakeApp, plain: bool) -> None:
    app = await make_app(concurrency=1)
    name = contextvars.ContextVar("name", default="nobody")
    seen = []

    def remember(job: Job) -> None:
        seen.append(name.get())
        name.set("somebody")

    async def remember_in_loop(job: Job) -> None:
        remember(job)

    app.job("a")(remember if plain else remember_in_loop)
    await app.enqueue("a")
    await app.enqueue("a")
    await drain(app)
    assert seen == ["nobody", "nobody"]


async def test_a_handler_without_a_parameter_for_its_job_is_refused(app: Rowlock) -> None:
    with pytest.raises(SettingsError, match="first parameter must be the job"):
        app.job("a")(lambda: None)
