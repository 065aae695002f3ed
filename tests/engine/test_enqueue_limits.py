"""The limits of enqueue, each tested from both sides."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from datetime import UTC, date, datetime
from typing import Any

import pytest

from engine.conftest import MakeApp
from engine.running import drain, record, soon
from rowlock import (
    BadPayload,
    Job,
    PayloadTooLarge,
    QueueFull,
    Rowlock,
    SettingsError,
    Unique,
)

MEGABYTE = 1_048_576


@pytest.mark.every_store
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


@pytest.mark.every_store
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


async def test_a_full_queue_takes_no_more(make_app: MakeApp) -> None:
    app = await make_app(queue_size_max=5)
    app.queue("small", size_max=2)
    app.job("a")(lambda job: None)
    await app.enqueue_many([("a", {})] * 4)
    with pytest.raises(QueueFull, match=r"limit: 5\).*ROWLOCK_QUEUE_SIZE_MAX"):
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
    taken = sum(not isinstance(outcome, QueueFull) for outcome in outcomes)
    assert 0 < taken <= 5  # fewer if a call in progress was counted twice; never more
    assert await app.store.depth("default", 100) == taken


@pytest.mark.every_store
async def test_a_job_that_arrives_while_the_queue_is_counted_is_not_overlooked(make_app: MakeApp) -> None:
    app = await make_app(queue_size_max=2)
    app.job("a")(lambda job: None)
    await app.enqueue("a")
    with app.store.held("depth"):
        with app.store.stalled("enqueue"):
            stalled = app.store.next("enqueue stalled")
            second = asyncio.create_task(app.enqueue("a"))
            await soon(stalled)
            counted = app.store.next("depth")
            third = asyncio.create_task(app.enqueue("a"))
            await soon(counted)  # the depth does not include the second, which is still in progress
        await soon(second)
    with pytest.raises(QueueFull):
        await soon(third)
    assert await app.store.depth("default", 10) == 2


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
        with contextlib.suppress(BadPayload, SettingsError):  # or accepted, without a company
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
