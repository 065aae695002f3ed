"""Failure records: written with the settlement, without secrets, resolved by a retry."""

from __future__ import annotations

from typing import Any

import pytest

from engine.conftest import MakeApp
from engine.running import drain
from rowlock import Backoff, FakeClock, Job, JobNotFound, JobNotRetryable, Permanent, Retry, Rowlock, Snooze, Status
from rowlock.jobs.payload import loads
from rowlock.storage.reliability import FailureRecord

CANARY = "hunter2-CANARY"


async def all_failures(app: Rowlock, **where: Any) -> list[FailureRecord]:
    """Return all failures, oldest first."""
    return (await app.failures(limit=1_000, **where)).failures[::-1]


async def test_every_failed_attempt_is_recorded_and_the_last_is_marked(app: Rowlock, clock: FakeClock) -> None:
    @app.job("flaky", retry=Backoff(max_attempts=3, base_seconds=0))
    async def flaky(job: Job, companyId: str) -> None:
        raise ValueError(f"attempt {job.attempt} broke")

    job_id = (await app.enqueue("flaky", {"companyId": "acme"})).job_id
    await drain(app)
    found = await all_failures(app)
    assert [(f.attempts, f.is_final_attempt) for f in found] == [(1, False), (2, False), (3, True)]
    last = found[-1]
    assert (last.job_id, last.job_name, last.queue_name, last.company_id) == (job_id, "flaky", "default", "acme")
    assert (last.max_attempts, last.first_failed_at, last.resolved_at) == (3, clock.now(), None)
    assert last.failed_reason.startswith("ValueError: attempt 3 broke")
    assert "in flaky" in (last.stack_trace or "")
    assert loads(last.payload) == {"companyId": "acme"}


async def test_what_is_no_failure_is_not_recorded(app: Rowlock) -> None:
    @app.job("fine")
    async def fine(job: Job) -> None: ...

    @app.job("later")
    async def later(job: Job) -> None:
        raise Snooze(60)

    await app.enqueue("fine")
    await app.enqueue("later")
    await drain(app)
    assert await all_failures(app) == []


async def test_a_chosen_retry_counts_as_a_failed_attempt(app: Rowlock) -> None:
    @app.job("again")
    async def again(job: Job) -> None:
        raise Retry(after=600)

    await app.enqueue("again")
    await drain(app)
    (failure,) = await all_failures(app)
    assert not failure.is_final_attempt


async def test_a_payload_and_a_stack_are_kept_without_their_secrets(app: Rowlock) -> None:
    @app.job("leaky")
    async def leaky(job: Job, **fields: Any) -> None:
        raise Permanent(f"could not reach https://user:{CANARY}@example.org with token={CANARY}")

    await app.enqueue(
        "leaky",
        {
            "apiKey": CANARY,
            "nested": [{"Authorization": f"Bearer {CANARY}"}, {"list": [f"password={CANARY}"]}],
            "url": f"postgresql://me:{CANARY}@db/x",
            "plain": "stays",
        },
    )
    await drain(app)
    (failure,) = await all_failures(app)
    assert CANARY not in repr(failure)
    assert loads(failure.payload)["plain"] == "stays"


async def test_a_long_reason_and_a_deep_stack_are_cut(app: Rowlock) -> None:
    def deep(levels: int) -> None:
        if levels == 0:
            raise Permanent("x" * 10_000)
        deep(levels - 1)

    @app.job("deep")
    async def deeply(job: Job) -> None:
        deep(200)

    await app.enqueue("deep")
    await drain(app)
    (failure,) = await all_failures(app)
    assert len(failure.failed_reason) == 2_000
    assert failure.stack_trace is not None
    assert len(failure.stack_trace) <= 4_000


async def test_a_long_reason_is_cut_together_with_what_is_appended(app: Rowlock) -> None:
    @app.job("long", retry=Backoff(max_attempts=1))
    async def long(job: Job) -> None:
        raise ValueError("x" * 10_000)

    await app.enqueue("long")
    await drain(app)
    (failure,) = await all_failures(app)
    assert len(failure.failed_reason) == 2_000
    assert failure.failed_reason.endswith("x (attempt 1 of 1, the last)")


async def test_a_retry_by_failure_queues_the_job_and_resolves_all_its_failures(app: Rowlock, clock: FakeClock) -> None:
    broken = True

    @app.job("fixable", retry=Backoff(max_attempts=2, base_seconds=0))
    async def fixable(job: Job) -> None:
        if broken:
            raise ValueError("not yet")

    job_id = (await app.enqueue("fixable")).job_id
    other = (await app.enqueue("fixable")).job_id
    await drain(app)
    (_, last) = await all_failures(app, job_id=job_id)
    clock.advance(60)
    broken = False
    assert await app.retry_failure(last.id) == job_id
    await drain(app)
    record = await app.get(job_id)
    assert record is not None
    assert record.status is Status.SUCCEEDED
    assert [f.resolved_at is None for f in await all_failures(app, job_id=job_id)] == [False, False]
    assert {f.job_id for f in await all_failures(app, unresolved=True)} == {other}
    with pytest.raises(JobNotRetryable):
        await app.retry_failure(last.id)
    with pytest.raises(JobNotFound):
        await app.retry_failure("nobody")


@pytest.mark.every_store
async def test_a_settlement_whose_answer_was_lost_leaves_one_failure(app: Rowlock) -> None:
    """A settlement is one transaction: when repeated, it finds the job settled and the failure recorded."""

    @app.job("fails")
    async def fails(job: Job) -> None:
        raise Permanent("no")

    job_id = (await app.enqueue("fails")).job_id
    app.store.lose_reply("settle")
    await drain(app)
    assert len(await all_failures(app, job_id=job_id)) == 1


async def test_failures_are_listed_by_company_and_name(app: Rowlock) -> None:
    @app.job("a")
    async def a(job: Job, companyId: str) -> None:
        raise Permanent("no")

    @app.job("b")
    async def b(job: Job, companyId: str) -> None:
        raise Permanent("no")

    for name in "ab":
        for company in ("acme", "other"):
            await app.enqueue(name, {"companyId": company})
    await drain(app)
    found = await all_failures(app, company_id="acme", job_name="b")
    assert [(f.job_name, f.company_id) for f in found] == [("b", "acme")]
    assert len(await all_failures(app, final=True)) == 4


@pytest.mark.every_store
async def test_a_storm_costs_few_records_and_every_job_that_died_can_be_retried(make_app: MakeApp) -> None:
    app = await make_app(failures_per_minute=5)

    @app.job("call", retry=Backoff(max_attempts=3, base_seconds=0))
    async def call(job: Job, number: int) -> None:
        raise ConnectionError(f"no answer to request {number} within 3.{number} s")

    await app.enqueue_many([("call", {"number": number}) for number in range(40)])
    await drain(app)

    found = await all_failures(app)
    earlier, last = [f for f in found if not f.is_final_attempt], [f for f in found if f.is_final_attempt]
    assert len(earlier) <= 5 + 2, "and a storm may begin in one minute and end in the next"
    assert sum(f.occurrences for f in earlier) == 80
    assert [f.occurrences for f in last] == [1] * 40
    assert sum(a.failures for a in await app.store.activity(3600)) == 120

    died = last[7]
    assert await app.retry_failure(died.id) == died.job_id
    resolved = [f.job_id for f in await all_failures(app, final=True) if f.resolved_at is not None]
    assert resolved == [died.job_id]
