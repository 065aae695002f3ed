"""Exceptions: when a job is retried, when it fails permanently, and what its record contains."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.builders import near
from engine.running import done, drain, record, waits
from rowlock import Backoff, FakeClock, Job, Permanent, Retry, Rowlock, Snooze, Status


class Refused(Exception):
    """An exception with a response and a status, as HTTP clients raise."""

    def __init__(self, status: int) -> None:
        super().__init__(f"answered {status}")
        self.response = type("Response", (), {"status_code": status})()


class Broken(Exception):
    pass


async def test_the_default_backoff_is_2_4_8_16_seconds_and_the_fifth_failure_is_the_last(
    app: Rowlock, clock: FakeClock
) -> None:
    @app.job("a")
    async def a(job: Job) -> None:
        raise RuntimeError(f"attempt {job.attempt} broke")

    job_id = (await a.enqueue()).job_id
    for attempt, seconds in [(1, 2), (2, 4), (3, 8), (4, 16)]:
        after = await done(app, job_id)
        assert (waits(after, clock), after.attempts) == (seconds, attempt)
        assert after.error == f"RuntimeError: attempt {attempt} broke"
        clock.advance(seconds - 0.1)
        assert (await done(app, job_id)).attempts == attempt, "it ran before its time"
        clock.advance(0.1)
    after = await done(app, job_id)
    assert (after.status, after.attempts) == (Status.FAILED, 5)
    assert after.error == "RuntimeError: attempt 5 broke (attempt 5 of 5, the last)"
    assert after.finished_at == clock.now()


async def test_a_retry_comes_up_to_a_tenth_before_its_time(
    app: Rowlock, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job("a")
    async def a(job: Job) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("rowlock.jobs.policy.chance", lambda: 1.0)
    after = await done(app, (await a.enqueue()).job_id)
    assert waits(after, clock) == pytest.approx(1.8)


async def test_each_type_has_its_own_retry_policy(app: Rowlock, clock: FakeClock) -> None:
    policies = {
        "sync": (Backoff(max_attempts=5, base_seconds=60, factor=2, max_seconds=3600), [120, 240, 480, 960]),
        "steep": (Backoff(max_attempts=9, base_seconds=1, factor=10, max_seconds=60), [10, 60, 60]),
        "flat": (Backoff(max_attempts=9, base_seconds=5, factor=1, max_seconds=60), [5, 5]),
        "once": (Backoff(max_attempts=1), []),
    }

    def broken(job: Job) -> None:
        raise RuntimeError("no")

    for name, (policy, _) in policies.items():
        app.job(name, queue=name, retry=policy)(broken)
    for name, (_, expected) in policies.items():
        job_id = (await app.enqueue(name)).job_id
        seen = []
        for _ in expected:
            await drain(app, name)
            seen.append(waits(await record(app, job_id), clock))
            clock.advance(seen[-1])
        assert seen == expected
        await app.cancel(job_id)
    assert (await done(app, (await app.enqueue("once")).job_id)).status is Status.FAILED


async def test_a_job_that_succeeds_on_a_later_attempt_succeeds(app: Rowlock, clock: FakeClock) -> None:
    @app.job("a")
    def a(job: Job) -> int:
        if job.attempt < 3:
            raise OSError("the network is down")
        return job.attempt

    job_id = (await a.enqueue()).job_id
    for _ in range(3):
        await drain(app)
        clock.advance(60)
    after = await record(app, job_id)
    assert (after.status, after.result, after.attempts) == (Status.SUCCEEDED, "3", 3)


async def test_max_attempts_of_one_job_replace_those_of_its_type(app: Rowlock) -> None:
    @app.job("a", retry=Backoff(max_attempts=9))
    async def a(job: Job) -> None:
        raise RuntimeError("no")

    after = await done(app, (await app.enqueue("a", max_attempts=1)).job_id)
    assert (after.status, after.error) == (Status.FAILED, "RuntimeError: no (attempt 1 of 1, the last)")


async def test_a_handler_chooses_when_to_be_tried_again(app: Rowlock, clock: FakeClock) -> None:
    @app.job("a", retry=Backoff(max_attempts=3))
    async def a(job: Job) -> None:
        raise Retry("not ready", after=500) if job.attempt == 1 else Retry("still not")

    job_id = (await a.enqueue()).job_id
    after = await done(app, job_id)
    assert (waits(after, clock), after.attempts, after.error) == (500, 1, "not ready")
    clock.advance(500)
    after = await done(app, job_id)
    assert (waits(after, clock), after.attempts) == (4, 2), "without a time of its own: the type's backoff"
    clock.advance(4)
    after = await done(app, job_id)
    assert (after.status, after.error) == (Status.FAILED, "still not (attempt 3 of 3, the last)")


async def test_a_retry_at_once_runs_within_the_same_drain(app: Rowlock) -> None:
    @app.job("a")
    async def a(job: Job) -> int:
        if job.attempt < 5:
            raise Retry(after=0)
        return job.attempt

    after = await done(app, (await a.enqueue()).job_id)
    assert (after.status, after.result) == (Status.SUCCEEDED, "5")


async def test_a_snoozed_job_gets_its_attempt_back(app: Rowlock, clock: FakeClock) -> None:
    snoozes = 7  # more than its attempts

    @app.job("a", retry=Backoff(max_attempts=2))
    async def a(job: Job) -> int:
        nonlocal snoozes
        if snoozes:
            snoozes -= 1
            raise Snooze(30, "outside office hours")
        return job.attempt

    job_id = (await a.enqueue()).job_id
    while snoozes:
        after = await done(app, job_id)
        assert (waits(after, clock), after.attempts, after.error) == (30, 0, "outside office hours")
        clock.advance(30)
    after = await done(app, job_id)
    assert (after.status, after.result, after.attempts) == (Status.SUCCEEDED, "1", 1)


async def test_errors_that_cannot_pass_are_dead_at_once(app: Rowlock) -> None:
    errors: dict[str, BaseException] = {
        "chosen": Permanent("no such customer"),
        "missing file": FileNotFoundError(2, "No such file", "/tmp/gone.xlsx"),
        "unauthorized": Refused(401),
        "forbidden": Refused(403),
        "scopes": RuntimeError("hubspot: MISSING_SCOPES crm.objects"),
        "declared": Broken("as declared"),
    }

    @app.job("a", permanent=(Broken,))
    async def a(job: Job, which: str) -> None:
        raise errors[which]

    receipts = {which: await a.enqueue(which=which) for which in errors}
    await drain(app)
    for which, receipt in receipts.items():
        after = await record(app, receipt.job_id)
        assert (after.status, after.attempts) == (Status.FAILED, 1), which
        assert str(errors[which]) in (after.error or "")
    assert (await record(app, receipts["chosen"].job_id)).error == "no such customer"


@pytest.mark.parametrize("error", [Refused(429), Refused(500), Broken("not declared"), TimeoutError()], ids=repr)
async def test_errors_that_may_pass_are_tried_again(app: Rowlock, clock: FakeClock, error: Exception) -> None:
    @app.job("a")
    def a(job: Job) -> None:
        raise error

    assert waits(await done(app, (await a.enqueue()).job_id), clock) == 2


async def test_a_waiting_retry_is_available_when_its_record_says(app: Rowlock, clock: FakeClock) -> None:
    ran: list[Any] = []

    @app.job("a")
    async def a(job: Job) -> None:
        ran.append(clock.now())
        raise RuntimeError("no")

    job_id = (await a.enqueue()).job_id
    after = await done(app, job_id)
    clock.advance((after.available_at - clock.now()).total_seconds())
    await drain(app)
    assert len(ran) == 2
    assert near(ran[1], after.available_at)
