"""When two jobs are the same, and what happens then."""

from __future__ import annotations

import asyncio

import pytest

from engine.conftest import MakeApp
from engine.running import done, drain
from rowlock import DuplicateJob, FakeClock, Job, JobNotRetryable, Permanent, Receipt, Rowlock, Status, Unique


async def nothing(job: Job) -> None: ...


async def test_two_equal_jobs_are_two_jobs_unless_said_otherwise(app: Rowlock) -> None:
    app.job("a")(nothing)
    first, second = await app.enqueue("a", {"x": 1}), await app.enqueue("a", {"x": 1})
    assert first.created
    assert second.created
    assert first.job_id != second.job_id


async def test_forever_means_once_ever(app: Rowlock, clock: FakeClock) -> None:
    app.job("a", unique=Unique.forever())(nothing)
    first = await app.enqueue("a", {"x": 1})
    await drain(app)
    clock.advance(days=3650)
    with pytest.raises(DuplicateJob) as refused:
        await app.enqueue("a", {"x": 1})
    assert refused.value.existing_job_id == first.job_id
    assert first.job_id in str(refused.value)
    assert refused.value.code == "duplicate_job"
    assert len((await app.jobs()).jobs) == 1


async def test_while_active_frees_the_key_when_the_job_is_over(app: Rowlock) -> None:
    @app.job("a", unique=Unique.while_active())
    async def a(job: Job, fail: bool = False) -> None:
        if fail:
            raise Permanent("no")

    for payload in ({}, {"fail": True}):
        first = await app.enqueue("a", payload)
        with pytest.raises(DuplicateJob) as refused:
            await app.enqueue("a", payload)
        assert refused.value.existing_job_id == first.job_id
        await drain(app)
        assert (await app.enqueue("a", payload)).created
        await drain(app)


async def test_while_active_holds_while_the_job_runs_and_waits_for_its_retry(app: Rowlock, clock: FakeClock) -> None:
    seen: list[Receipt] = []
    again = Unique.while_active(on_conflict="return_existing")

    @app.job("a", unique=again)
    async def a(job: Job) -> None:
        seen.append(await app.enqueue("a"))
        if job.attempt == 1:
            raise RuntimeError("again")

    first = await app.enqueue("a")
    await drain(app)
    assert await app.enqueue("a") == Receipt(first.job_id, False)
    clock.advance(2)
    assert (await done(app, first.job_id)).status is Status.SUCCEEDED
    assert seen == [Receipt(first.job_id, False)] * 2


async def test_a_window_ends_by_the_stores_clock(app: Rowlock, clock: FakeClock) -> None:
    app.job("a", unique=Unique.window(300))(nothing)
    first = await app.enqueue("a")
    await drain(app)
    clock.advance(299)
    with pytest.raises(DuplicateJob) as refused:
        await app.enqueue("a")
    assert refused.value.existing_job_id == first.job_id
    clock.advance(2)
    assert (await app.enqueue("a")).created


async def test_a_duplicate_may_give_the_job_that_is_there(app: Rowlock) -> None:
    app.job("a", unique=Unique.forever(on_conflict="return_existing"))(nothing)
    first = await app.enqueue("a", {"x": 1})
    assert await app.enqueue("a", {"x": 1}) == Receipt(first.job_id, False)
    assert (await app.enqueue("a", {"x": 2})).created


async def test_the_order_of_keys_does_not_matter_but_types_and_values_do(app: Rowlock) -> None:
    app.job("a", unique=Unique.forever())(nothing)
    app.job("b", unique=Unique.forever())(nothing)
    await app.enqueue("a", {"x": 1, "y": {"p": [1, 2], "q": None}})
    with pytest.raises(DuplicateJob):
        await app.enqueue("a", {"y": {"q": None, "p": [1, 2]}, "x": 1})
    for payload in ({"x": 1, "y": {"p": [2, 1], "q": None}}, {"x": "1", "y": {"p": [1, 2], "q": None}}, {"x": 1}):
        assert (await app.enqueue("a", payload)).created
    assert (await app.enqueue("b", {"x": 1, "y": {"p": [1, 2], "q": None}})).created


async def test_a_call_may_say_when_it_is_a_duplicate(app: Rowlock) -> None:
    app.job("a")(nothing)
    app.job("b")(nothing)
    key = Unique.forever(key="payment_sync_7")
    first = await app.enqueue("a", {"x": 1}, unique=key)
    for again in (("a", {"x": 2}), ("b", {})):
        with pytest.raises(DuplicateJob) as refused:
            await app.enqueue(*again, unique=key)
        assert refused.value.existing_job_id == first.job_id
    assert (await app.enqueue("a", {"x": 1})).created


async def test_of_many_producers_at_once_one_wins(make_app: MakeApp) -> None:
    apps = [await make_app() for _ in range(3)]
    for app in apps:
        app.job("a", unique=Unique.forever(on_conflict="return_existing"))(nothing)
    receipts = await asyncio.gather(*(app.enqueue("a", {"x": 1}) for app in apps for _ in range(10)))
    assert sum(receipt.created for receipt in receipts) == 1
    assert len({receipt.job_id for receipt in receipts}) == 1


async def test_a_job_whose_key_another_took_is_not_retried(app: Rowlock) -> None:
    @app.job("a", unique=Unique.while_active())
    async def a(job: Job) -> None:
        raise Permanent("no")

    first = await a.enqueue()
    await drain(app)
    await a.enqueue()
    with pytest.raises(JobNotRetryable, match="another job holds its unique key"):
        await app.retry(first.job_id)
