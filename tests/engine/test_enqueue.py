"""Enqueueing: what is taken, in which order it runs, and what a refusal leaves behind: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from engine.conftest import MakeApp
from engine.running import drain, record
from rowlock import (
    BadPayload,
    DuplicateJob,
    FakeClock,
    Job,
    PayloadTooLarge,
    QueueFull,
    Rowlock,
    SettingsError,
    StoreUnavailable,
    Unique,
)
from rowlock.storage.base import Store

MEGABYTE = 1_048_576


@pytest.fixture
async def open_app(app: Rowlock) -> Rowlock:
    """An application with a type that takes anything."""
    app.job("a")(lambda job: None)
    app.job("once", unique=Unique.forever())(lambda job: None)
    return app


async def test_a_payload_of_one_megabyte_is_taken_and_one_byte_more_is_not(open_app: Rowlock) -> None:
    frame = len('{"x":""}')
    fits = await open_app.enqueue("a", {"x": "a" * (MEGABYTE - frame)})
    assert len((await record(open_app, fits.job_id)).payload) >= MEGABYTE
    with pytest.raises(PayloadTooLarge, match="1,048,577 bytes, the limit is 1,048,576"):
        await open_app.enqueue("a", {"x": "a" * (MEGABYTE - frame + 1)})
    with pytest.raises(PayloadTooLarge):
        await open_app.enqueue("a", {"x": "ä" * (MEGABYTE // 2)})
    assert len((await open_app.jobs()).jobs) == 1


async def test_what_json_cannot_say_is_refused(open_app: Rowlock) -> None:
    not_json: list[Any] = [
        {"x": float("nan")},
        {"x": [float("inf")]},
        {"x": datetime(2030, 1, 1, tzinfo=UTC)},
        {"x": date(2030, 1, 1)},
        {"x": {1: "a"}},
        {"x": {1, 2}},
        {"x": b"bytes"},
        {"x": 2**64},
        {"x": "a lone \ud800 surrogate"},
        [1],
        "text",
        7,
    ]
    for payload in not_json:
        with pytest.raises(BadPayload, match="a: "):
            await open_app.enqueue("a", payload)
        with pytest.raises(BadPayload, match="a: "):
            await open_app.enqueue_many([("a", {}), ("a", payload)])
    assert (await open_app.jobs()).jobs == []


async def test_what_is_empty_but_no_object_is_refused_too(open_app: Rowlock) -> None:
    empty: list[Any] = [[], "", 0, False]
    for payload in empty:
        with pytest.raises(BadPayload, match="a: "):
            await open_app.enqueue("a", payload)


async def test_every_string_and_number_of_json_comes_back_as_it_was(app: Rowlock) -> None:
    seen = []

    @app.job("a")
    async def a(job: Job) -> None:
        seen.append(job.payload)

    payload = {"": "", "nul": "a\x00b", "✓": "🚣\u2028\\\"'", "n": [0, -1, 2**63 - 1, 1e-300, 0.1, True, None, {}]}
    await app.enqueue("a", payload)
    await app.enqueue("a")
    await drain(app)
    assert seen == [payload, {}]


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


async def test_calls_that_come_together_share_a_commit(open_app: Rowlock) -> None:
    await open_app.enqueue("a")
    before = sum(open_app.store.calls.values())
    receipts = await asyncio.gather(*(open_app.enqueue("a", {"n": n}) for n in range(500)))
    assert len({receipt.job_id for receipt in receipts}) == 500
    assert sum(open_app.store.calls.values()) - before <= 5
    assert await open_app.store.depth("default", 1_000) == 501


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


async def test_a_full_queue_takes_no_more(make_app: MakeApp) -> None:
    app = await make_app(queue_size_max=5)
    app.queue("small", size_max=2)
    app.job("a")(lambda job: None)
    await app.enqueue_many([("a", {})] * 4)
    with pytest.raises(QueueFull, match=r"may hold 5.*ROWLOCK_QUEUE_SIZE_MAX"):
        await app.enqueue_many([("a", {})] * 2)
    await app.enqueue("a", delay_seconds=60)
    with pytest.raises(QueueFull):
        await app.enqueue("a")
    await app.enqueue_many([("a", {})] * 2, queue="small")
    with pytest.raises(QueueFull, match="'small'"):
        await app.enqueue("a", queue="small")
    await drain(app)
    assert (await app.enqueue("a")).created


async def test_a_full_queue_takes_no_more_of_calls_that_come_together(make_app: MakeApp) -> None:
    app = await make_app(queue_size_max=5)
    app.job("a")(lambda job: None)
    outcomes = await asyncio.gather(*(app.enqueue("a") for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(outcome, QueueFull) for outcome in outcomes) == 15
    assert await app.store.depth("default", 100) == 5


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


async def test_options_out_of_their_limits_are_refused_by_name(open_app: Rowlock) -> None:
    wrong: list[dict[str, Any]] = [
        {"priority": 32_768},
        {"priority": -32_769},
        {"delay_seconds": -1},
        {"delay_seconds": float("nan")},
        {"delay_seconds": 1e12},
        {"at": datetime(2030, 1, 1)},
        {"max_attempts": 0},
        {"max_attempts": 1_001},
        {"queue": ""},
        {"queue": "x" * 201},
        {"queue": "line\nbreak"},
        {"company_id": "x" * 201},
        {"limit_key": "x" * 201},
        {"unique": Unique.forever(key="x" * 201)},
    ]
    for options in wrong:
        (name,) = options
        with pytest.raises((BadPayload, SettingsError), match=name):
            await open_app.enqueue("a", {}, **options)
    with pytest.raises(TypeError, match="wrong"):
        await open_app.enqueue_many([("a", {})], wrong=1)
    assert (await open_app.jobs()).jobs == []


async def test_names_and_keys_from_payloads_have_the_same_limits(make_app: MakeApp) -> None:
    app = await make_app(allow_unknown_types=True)
    app.limit("per", concurrency=1)
    app.job("limited", limit="per", limit_by="who")(lambda job: None)
    for bad in ("", "x" * 201, "nul\x00"):
        with pytest.raises((BadPayload, SettingsError)):
            await app.enqueue(bad)
    for who in ("x" * 5_000, "nul\x00"):
        with pytest.raises((BadPayload, SettingsError), match="limit"):
            await app.enqueue("limited", {"who": who})
        with contextlib.suppress(BadPayload, SettingsError):  # or taken, without a company
            receipt = await app.enqueue("any", {"companyId": who})
            assert (await record(app, receipt.job_id)).company_id is None


async def test_json_means_the_same_with_and_without_a_null_beside_it(open_app: Rowlock) -> None:
    async def verdict(payload: dict[str, Any]) -> type[BaseException] | None:
        try:
            await open_app.enqueue("a", payload)
        except BadPayload as error:
            return type(error)
        return None

    key = uuid.uuid4()
    assert await verdict({"x": key}) == await verdict({"x": key, "y": None})
