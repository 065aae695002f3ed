"""`rowlock.testing`: the clock, `drain` and the assertions."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import rowlock.testing
from rowlock import Backoff, Job, Rowlock, Snooze, Status
from rowlock.testing import FakeClock, JobsFailed, assert_enqueued, assert_not_enqueued, drain


def make_app(folder: Path) -> Rowlock:
    app = Rowlock(f"sqlite:///{folder}/jobs.db", clock=FakeClock())

    @app.job("echo")
    async def echo(job: Job, text: str = "", options: dict[str, Any] | None = None) -> dict[str, str]:
        return {"text": text}

    @app.job("break", retry=Backoff(max_attempts=2, base_seconds=10, factor=1))
    async def break_(job: Job) -> None:
        raise RuntimeError("as declared")

    @app.job("later")
    async def later(job: Job) -> None:
        if job.attempt == 1 and job.lease == 1:
            raise Snooze(60)

    @app.job("chain", queue="second")
    async def chain(job: Job, left: int) -> None:
        if left:
            await app.enqueue("chain", {"left": left - 1})

    return app


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Rowlock]:
    made = make_app(tmp_path)
    async with made:
        await made.migrate()
        yield made


def clock(app: Rowlock) -> FakeClock:
    assert isinstance(app.clock, FakeClock)
    return app.clock


async def test_drain_returns_the_jobs_that_ran_oldest_first(app: Rowlock) -> None:
    ids = [(await app.enqueue("echo", {"text": str(number)})).job_id for number in range(3)]
    ran = await drain(app)
    assert [job.id for job in ran] == ids
    assert {job.status for job in ran} == {Status.SUCCEEDED}
    assert [job.result for job in ran] == [f'{{"text":"{number}"}}' for number in range(3)]
    assert await drain(app) == []


async def test_drain_runs_what_handlers_enqueue(app: Rowlock) -> None:
    await app.enqueue("chain", {"left": 3})
    assert [job.type for job in await drain(app)] == ["chain"] * 4


async def test_drain_works_on_the_named_queues_only(app: Rowlock) -> None:
    await app.enqueue("chain", {"left": 0})
    await app.enqueue("echo")
    assert [job.queue for job in await drain(app, "second")] == ["second"]
    assert_enqueued(app, "echo")


async def test_a_delayed_job_runs_once_the_clock_has_moved_past_its_time(app: Rowlock) -> None:
    await app.enqueue("echo", delay_seconds=60)
    clock(app).advance(59)
    assert await drain(app) == []
    clock(app).advance(1)
    assert [job.type for job in await drain(app)] == ["echo"]


async def test_a_failing_attempt_cannot_go_unseen(app: Rowlock) -> None:
    receipt = await app.enqueue("break")
    await app.enqueue("echo")
    with pytest.raises(JobsFailed, match=r"1 of the jobs failed:\n  break .*, attempt 1/2: .*as declared") as first:
        await drain(app)
    assert [job.status for job in first.value.jobs] == [Status.QUEUED]
    clock(app).advance(10)
    with pytest.raises(JobsFailed, match="attempt 2/2") as last:
        await drain(app)
    assert [(job.id, job.status) for job in last.value.jobs] == [(receipt.job_id, Status.FAILED)]


async def test_expected_failures_are_returned(app: Rowlock) -> None:
    await app.enqueue("break", max_attempts=1)
    [failed] = await drain(app, raise_failures=False)
    assert failed.status is Status.FAILED
    assert failed.error is not None
    assert "as declared" in failed.error


async def test_a_snoozed_job_did_not_fail(app: Rowlock) -> None:
    await app.enqueue("later")
    [snoozed] = await drain(app)
    assert snoozed.status is Status.QUEUED
    clock(app).advance(60)
    [done] = await drain(app)
    assert done.status is Status.SUCCEEDED


async def test_a_job_that_failed_before_is_not_reported_again(app: Rowlock) -> None:
    await app.enqueue("break", max_attempts=1)
    await drain(app, raise_failures=False)
    await app.enqueue("echo")
    assert [job.type for job in await drain(app)] == ["echo"]


async def test_assert_enqueued_matches_a_part_of_the_payload_at_any_depth(app: Rowlock) -> None:
    await app.enqueue("echo", {"text": "a", "options": {"bold": True, "size": {"x": 1, "y": 2}}})
    assert_enqueued(app, "echo")
    assert_enqueued(app, "echo", {"text": "a"})
    [found] = assert_enqueued(app, "echo", {"options": {"size": {"y": 2}}}, queue="default", count=1)
    assert found.type == "echo"
    assert_not_enqueued(app, "echo", {"text": "b"})
    assert_not_enqueued(app, "echo", {"options": {"size": {"y": 3}}})
    assert_not_enqueued(app, "echo", {"text": {"nested": 1}})
    assert_not_enqueued(app, "echo", queue="second")


async def test_delayed_jobs_count_as_enqueued_and_finished_ones_when_asked_for(app: Rowlock) -> None:
    await app.enqueue("echo", delay_seconds=3_600)
    assert_enqueued(app, "echo")
    clock(app).advance(hours=1)
    await drain(app)
    assert_not_enqueued(app, "echo")
    assert_enqueued(app, "echo", status="succeeded")
    assert_enqueued(app, "echo", status=None)


async def test_the_message_says_what_was_expected_and_what_is_there(app: Rowlock) -> None:
    with pytest.raises(AssertionError, match=r"expected at least 1 queued job .*'echo', found 0\nthe store holds no"):
        assert_enqueued(app, "echo")
    await app.enqueue("chain", {"left": 0})
    with pytest.raises(AssertionError, match=r"jobs of other types:\n  1 × 'chain'"):
        assert_enqueued(app, "echo")
    for number in range(12):
        await app.enqueue("echo", {"text": str(number), "options": {"token": "hunter2"}})
    with pytest.raises(AssertionError) as raised:
        assert_enqueued(app, "echo", {"text": "none"}, queue="default", count=2)
    message = str(raised.value)
    assert message.startswith("expected 2 queued job of type 'echo' on queue 'default' with {'text': 'none'}, found 0")
    assert "queued on 'default': {'text': '0', 'options': {'token': '[REDACTED]'}}" in message
    assert "… and 2 more" in message
    assert "hunter2" not in message


async def test_a_wrong_count_is_an_error_either_way(app: Rowlock) -> None:
    await app.enqueue("echo")
    await app.enqueue("echo")
    assert_enqueued(app, "echo", count=2)
    for count in (0, 1, 3):
        with pytest.raises(AssertionError, match=f"expected {count} queued job of type 'echo', found 2"):
            assert_enqueued(app, "echo", count=count)
    with pytest.raises(AssertionError, match="expected no queued job of type 'echo', found 2"):
        assert_not_enqueued(app, "echo")


def test_the_assertions_work_in_plain_tests(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    try:
        app.blocking.migrate()
        assert_not_enqueued(app, "echo")
        app.blocking.enqueue("echo", {"text": "plain"})
        assert_enqueued(app, "echo", {"text": "plain"})
    finally:
        app.blocking.close()


async def test_an_unknown_status_is_refused(app: Rowlock) -> None:
    await app.enqueue("echo")
    with pytest.raises(ValueError, match="'done' is not a valid Status"):
        assert_enqueued(app, "echo", status="done")


async def test_draining_without_handlers_for_any_queue_is_harmless(tmp_path: Path) -> None:
    async with Rowlock(f"sqlite:///{tmp_path}/empty.db") as empty:
        await empty.migrate()
        assert await drain(empty) == []


async def test_the_example_in_the_documentation_works(tmp_path: Path) -> None:
    assert rowlock.testing.__doc__ is not None
    example = textwrap.dedent(rowlock.testing.__doc__.split("\n\n", 1)[1])
    names: dict[str, Any] = {"asynccontextmanager": asynccontextmanager}
    exec(example.replace("@pytest.fixture", "@asynccontextmanager"), names)
    async with names["app"](tmp_path) as app:
        await names["test_a_greeting_is_followed_by_a_reminder"](app)
