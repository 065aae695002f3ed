"""The log records the life of every job: claimed, started, finished, retried, failed, rescued, released."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

import pytest

from conformance.builders import BEN, put_and_take
from engine.conftest import MakeApp
from engine.running import Log, drain, soon, working
from rowlock import Backoff, FakeClock, Job, Permanent, Retry, Rowlock, Snooze
from rowlock.observe import logs
from rowlock.storage.contract import Store


async def test_a_job_that_succeeds_is_claimed_started_and_succeeded_in_this_order(app: Rowlock, log: Log) -> None:
    @app.job("greet")
    async def greet(job: Job) -> None: ...

    job_id = (await greet.enqueue()).job_id
    await drain(app)
    life = [line for line in log.lines if job_id in line.get("jobs", [])]
    assert [line["event"] for line in life] == ["job.claimed", "job.started", "job.succeeded"]
    claimed, started, succeeded = life
    assert (claimed["queue"], claimed["count"]) == ("default", 1)
    assert started["queue"] == "default"
    assert claimed["types"] == started["types"] == {"greet": 1}
    assert succeeded["types"] == {"greet": 1}
    assert len({line["worker"] for line in life}) == 1
    for line in life:
        assert line["level"] == "info"
        assert datetime.fromisoformat(line["timestamp"]).tzinfo is not None


async def test_each_other_end_is_a_line_with_id_type_and_reason(app: Rowlock, log: Log) -> None:
    @app.job("a")
    async def a(job: Job, how: str) -> None:
        match how:
            case "retried":
                raise Retry("the other side is busy", after=30)
            case "failed":
                raise Permanent("no such customer")
            case "released":
                raise Snooze(60, "outside office hours")

    ids = {how: (await a.enqueue(how=how)).job_id for how in ("retried", "failed", "released")}
    await drain(app)
    (retried,), (failed,), (released,) = (log.of(f"job.{how}") for how in ids)
    assert (retried["job"], retried["type"]) == (ids["retried"], "a")
    assert (retried["reason"], retried["again_in_seconds"]) == ("the other side is busy", 30)
    assert (failed["job"], failed["type"], failed["reason"]) == (ids["failed"], "a", "no such customer")
    assert (released["job"], released["reason"]) == (ids["released"], "outside office hours")
    assert [line["level"] for line in (retried, failed, released)] == ["warning", "error", "info"]


async def test_a_rescue_is_a_line_with_the_owner_and_a_reason(
    app: Rowlock, store: Store, clock: FakeClock, log: Log
) -> None:
    app.job("a")(lambda job: None)
    lost = await put_and_take(store, owner=BEN, type="a", payload="{}")
    clock.advance(31)
    await drain(app)
    (line,) = log.of("job.rescued")
    assert (line["job"], line["type"], line["queue"], line["owner"]) == (lost.id, "a", "default", BEN)
    assert (line["attempt"], line["status"], line["level"]) == (1, "queued", "warning")
    assert "visibility timeout" in line["reason"]


async def test_a_cancellation_is_a_line(app: Rowlock, log: Log) -> None:
    entered = asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> None:
        entered.set()
        await asyncio.Event().wait()

    async with working(app):
        await soon(app.store.next("hint of queue"))
        job_id = (await a.enqueue()).job_id
        await soon(entered.wait())
        settled = app.store.next("settle")
        await app.cancel(job_id)
        await soon(settled)
    (line,) = log.of("job.cancelled")
    assert (line["job"], line["reason"]) == (job_id, "JobCancelled: cancelled while it ran")


async def test_what_is_given_back_at_a_stop_says_why(make_app: MakeApp, log: Log) -> None:
    app = await make_app(concurrency=1, grace_seconds=0.02)
    entered = asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> None:
        entered.set()
        await asyncio.Event().wait()

    receipts = await app.enqueue_many([("a", {})] * 2)
    async with working(app):
        await soon(entered.wait())
    released = log.of("job.released")
    assert {job_id for line in released for job_id in line["jobs"]} == {receipt.job_id for receipt in receipts}
    for line in released:
        assert line["reason"]


async def test_jobs_that_end_together_share_a_line(app: Rowlock, log: Log) -> None:
    @app.job("a")
    async def a(job: Job) -> None: ...

    receipts = await app.enqueue_many([("a", {})] * 200)
    await drain(app)
    for event in ("job.claimed", "job.started", "job.succeeded"):
        told = [job_id for line in log.of(event) for job_id in line["jobs"]]
        assert sorted(told) == sorted(receipt.job_id for receipt in receipts)
        assert sum(line["count"] for line in log.of(event)) == 200
    assert len(log.lines) < 100


async def test_a_job_type_may_have_any_name(app: Rowlock, log: Log) -> None:
    app.job("refresh.token")(lambda job: None)
    await app.enqueue("refresh.token")
    await drain(app)
    (line,) = log.of("job.succeeded")
    assert line["types"] == {"refresh.token": 1}


@pytest.mark.parametrize("level", ["debug", "warning"])
async def test_the_level_is_a_setting(app: Rowlock, level: str) -> None:
    from rowlock.observe import logs

    log = Log()
    logs.configure(level, "json", stream=log.stream)

    @app.job("a")
    async def a(job: Job) -> None:
        raise Retry("again")

    await a.enqueue()
    await drain(app)
    assert log.of("job.retried") != []
    assert (log.of("job.claimed") != []) == (level == "debug")


async def test_a_failed_attempt_is_logged_with_its_traceback_once_and_redacted(app: Rowlock, log: Log) -> None:
    @app.job("a", retry=Backoff(max_attempts=2, base_seconds=0))
    async def a(job: Job) -> None:
        raise RuntimeError("password=c4n4ry-S3CRET")

    await a.enqueue()
    await drain(app)
    (retried,), (failed,) = log.of("job.retried"), log.of("job.failed")
    for line in (retried, failed):
        assert line["exception"].startswith("Traceback (most recent call last):")
        assert "RuntimeError: password=[REDACTED]" in line["exception"]
    assert len([line for line in log.lines if "Traceback" in str(line)]) == 2
    assert "c4n4ry" not in log.stream.getvalue()


async def test_lines_of_the_standard_library_tell_which_job_they_are_about(app: Rowlock, log: Log) -> None:
    mine = logging.getLogger("shop.mail")
    logs.bridge()

    @app.job("async")
    async def asynchronous(job: Job) -> None:
        await asyncio.sleep(0)
        mine.info("sending to %s", "Ann")

    @app.job("plain")
    def plain(job: Job) -> None:
        try:
            raise OSError("token=c4n4ry-S3CRET")
        except OSError:
            mine.exception("not sent")

    @app.job("many", batch=10)
    async def many(jobs: list[Job]) -> None:
        mine.warning("a batch")

    ids = {handler.name: (await app.enqueue(handler.name)).job_id for handler in (asynchronous, plain, many)}
    await drain(app)
    mine.info("about no job")
    lines = {line["event"]: line for line in log.lines if line.get("logger") == "shop.mail"}
    assert [line["level"] for line in lines.values()].count("info") == 2
    sent, not_sent, batch = lines["sending to Ann"], lines["not sent"], lines["a batch"]
    assert (sent["job"], sent["type"], sent["level"]) == (ids["async"], "async", "info")
    assert (not_sent["job"], not_sent["type"], not_sent["level"]) == (ids["plain"], "plain", "error")
    assert "OSError: token=[REDACTED]" in not_sent["exception"]
    assert (batch["jobs"], batch["type"], batch["level"]) == ([ids["many"]], "many", "warning")
    assert "job" not in lines["about no job"]


async def test_the_root_logger_of_a_users_own_process_is_left_alone(app: Rowlock) -> None:
    before = (list(logging.getLogger().handlers), logging.getLogger().level)
    app.job("a")(lambda job: None)
    await app.enqueue("a")
    await drain(app)
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == before
