"""Enqueue: accepted jobs, their order, and refusals, which leave nothing behind."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from engine.conftest import MakeApp
from engine.running import drain, record
from rowlock import (
    BadPayload,
    DuplicateJob,
    FakeClock,
    Job,
    Rowlock,
    StoreUnavailable,
    Unique,
)
from rowlock.storage.contract import Store

MEGABYTE = 1_048_576


async def test_many_are_recorded_all_or_none(open_app: Rowlock) -> None:
    held = await open_app.enqueue("once", {"x": 1})
    with pytest.raises(DuplicateJob) as refused:
        await open_app.enqueue_many([("a", {}), ("once", {"x": 2}), ("once", {"x": 1}), ("a", {})])
    assert refused.value.existing_job_id == held.job_id
    with pytest.raises(BadPayload):
        await open_app.enqueue_many([("a", {}), ("a", {"x": {1}})])
    assert [job.id for job in (await open_app.jobs()).jobs] == [held.job_id]
    receipts = await open_app.enqueue_many([("a", {"n": n}) for n in range(5)], priority=7, company_id="acme")
    assert [job.id for job in reversed((await open_app.jobs(type="a")).jobs)] == [r.job_id for r in receipts]
    assert {(job.priority, job.company_id) for job in (await open_app.jobs(type="a")).jobs} == {(7, "acme")}
    assert await open_app.enqueue_many([]) == []


@pytest.mark.every_store
async def test_a_number_too_large_for_one_statement_is_still_all_or_none(make_app: MakeApp) -> None:
    app = await make_app(enqueue_max=10)
    app.job("a")(lambda job: None)
    app.job("once", unique=Unique.forever())(lambda job: None)
    await app.enqueue("once")
    for last in (("once", {}), ("a", {"x": {1}})):
        with pytest.raises((DuplicateJob, BadPayload)):
            await app.enqueue_many([*[("a", {})] * 34, last])
    assert await app.store.depth("default", 100) == 1
    receipts = await app.enqueue_many(("a", {"n": n}) for n in range(35))
    assert len({receipt.job_id for receipt in receipts}) == 35
    assert await app.store.depth("default", 100) == 36


@pytest.mark.every_store
async def test_calls_that_come_together_share_a_commit(open_app: Rowlock) -> None:
    await open_app.enqueue("a")
    before = sum(open_app.store.calls.values())
    receipts = await asyncio.gather(*(open_app.enqueue("a", {"n": n}) for n in range(500)))
    assert len({receipt.job_id for receipt in receipts}) == 500
    assert sum(open_app.store.calls.values()) - before <= 50, "ten to a commit, at the very least"
    assert await open_app.store.depth("default", 1_000) == 501


@pytest.mark.every_store
async def test_a_duplicate_among_them_does_not_harm_the_others(open_app: Rowlock) -> None:
    held = await open_app.enqueue("once", {"x": 0})
    outcomes = await asyncio.gather(
        *(open_app.enqueue("once", {"x": n % 10}) for n in range(30)), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, DuplicateJob)]
    created = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert (len(created), len(refused)) == (9, 21)
    assert {error.existing_job_id for error in refused} == {held.job_id} | {receipt.job_id for receipt in created}


async def test_a_store_that_is_away_is_told_to_every_caller(open_app: Rowlock) -> None:
    open_app.store.refuse("enqueue", 3)
    outcomes = await asyncio.gather(*(open_app.enqueue("a") for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    open_app.store.mend("enqueue")
    assert (await open_app.enqueue("a")).created


async def test_delays_and_moments_are_kept(app: Rowlock, clock: FakeClock) -> None:
    ran: list[str] = []

    @app.job("a")
    async def a(job: Job, name: str) -> None:
        ran.append(name)

    await app.enqueue("a", {"name": "in 20 s"}, delay_seconds=20)
    await app.enqueue("a", {"name": "at +10 s"}, at=clock.now() + timedelta(seconds=10))
    await app.enqueue("a", {"name": "in the past"}, at=clock.now() - timedelta(days=1))
    await drain(app)
    assert ran == ["in the past"]
    clock.advance(10)
    await drain(app)
    clock.advance(10)
    await drain(app)
    assert ran == ["in the past", "at +10 s", "in 20 s"]


async def test_lower_priorities_run_first_then_first_come_first_served(make_app: MakeApp) -> None:
    app = await make_app(concurrency=1)
    ran: list[str] = []

    @app.job("normal")
    async def normal(job: Job, name: str) -> None:
        ran.append(name)

    app.job("urgent", priority=1)(normal.function)
    await app.enqueue("normal", {"name": "3"})
    await app.enqueue("normal", {"name": "5"}, priority=200)
    await app.enqueue("normal", {"name": "4"})
    await app.enqueue("urgent", {"name": "2"})
    await app.enqueue("normal", {"name": "1"}, priority=-5)
    await drain(app)
    assert ran == ["1", "2", "3", "4", "5"]


async def test_the_company_is_taken_from_the_payload_unless_given(open_app: Rowlock, store: Store) -> None:
    for payload, given, expected in [
        ({"companyId": "acme"}, None, "acme"),
        ({"company_id": "blue"}, None, "blue"),
        ({"companyId": "acme"}, "cord", "cord"),
        ({"companyId": ["no", "text"]}, None, None),
        ({}, None, None),
    ]:
        receipt = await open_app.enqueue("a", payload, company_id=given)
        assert (await record(open_app, receipt.job_id)).company_id == expected
