"""Payloads checked against signatures: refused by enqueue, failed at once if they arrive another way."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, Field, HttpUrl

from conformance.builders import put
from engine.conftest import MakeApp
from engine.running import Log, done, drain, record, waits
from rowlock import BadPayload, FakeClock, Job, Rowlock, SettingsError, Status, UnknownJobType
from rowlock.storage.contract import Store

CANARY = "hunter2-canary"


class Colour(StrEnum):
    RED = "red"


class Address(BaseModel):
    street: str
    number: int = Field(ge=1)


async def test_a_bad_payload_is_refused_and_its_fields_named_but_never_its_values(app: Rowlock) -> None:
    @app.job("send")
    async def send(job: Job, to: str, count: int, address: Address) -> None: ...

    with pytest.raises(BadPayload) as refused:
        await send.enqueue(count=CANARY, address={"street": [CANARY], "number": 0}, surplus=CANARY)
    message = str(refused.value)
    for name in ("send", "to", "count", "address.street", "address.number", "surplus"):
        assert name in message
    assert CANARY not in message
    assert (await app.jobs()).jobs == []


async def test_a_validator_of_the_users_own_does_not_give_values_away(app: Rowlock) -> None:
    def refuse(value: str) -> str:
        raise ValueError(f"{value} is taken")

    class Card(BaseModel):
        kind: Literal["card"]

    class Cash(BaseModel):
        kind: Literal["cash"]

    @app.job("send")
    async def send(
        job: Job, name: Annotated[str, AfterValidator(refuse)], how: Annotated[Card | Cash, Field(discriminator="kind")]
    ) -> None: ...

    with pytest.raises(BadPayload) as refused:
        await send.enqueue(name=CANARY, how={"kind": CANARY})
    assert "name" in str(refused.value)
    assert "how" in str(refused.value)
    assert CANARY not in str(refused.value)


async def test_a_bad_payload_that_comes_another_way_is_dead_at_once_with_a_reason(app: Rowlock, store: Store) -> None:
    ran = []

    @app.job("send")
    async def send(job: Job, count: int) -> None:
        ran.append(job.id)

    job_id = await put(store, type="send", payload=f'{{"count": "{CANARY}"}}')
    after = await done(app, job_id)
    assert (after.status, after.attempts) == (Status.FAILED, 1)
    assert after.error is not None
    assert after.error.startswith("BadPayload: send: count: ")
    assert CANARY not in after.error
    assert ran == []


@pytest.mark.every_store
async def test_a_job_of_an_unknown_type_waits_for_a_worker_that_has_its_handler(
    make_app: MakeApp, clock: FakeClock, log: Log
) -> None:
    old, new = await make_app(allow_unknown_types=True), await make_app()

    @new.job("added")
    async def added(job: Job) -> int:
        return job.attempt

    receipts = [await old.enqueue("added") for _ in range(3)]
    delays = (1, 2, 4, 8, 16, 32, 60, 60)
    for expected_seconds in delays:
        after = await done(old, receipts[0].job_id)
        assert (after.attempts, waits(after, clock)) == (0, expected_seconds)
        assert after.error is not None
        assert "no handler for job type 'added'" in after.error
        clock.advance(expected_seconds)
    assert len(log.of("job.type_unknown")) == len(delays), "one line per type in each worker, not per job"
    await drain(new)
    for receipt in receipts:
        after = await record(new, receipt.job_id)
        assert (after.status, after.result, after.error) == (Status.SUCCEEDED, "1", None)


@pytest.mark.every_store
async def test_a_long_row_of_unknown_types_does_not_keep_known_ones_waiting(make_app: MakeApp) -> None:
    worker = await make_app(allow_unknown_types=True, concurrency=1)
    worker.job("known")(lambda job: None)
    await worker.enqueue_many([("added", {})] * 400)
    job_id = (await worker.enqueue("known")).job_id
    assert (await done(worker, job_id)).status is Status.SUCCEEDED
    assert worker.store.calls["claim"] <= 40, "claims grow with what is released at once"


async def test_an_alias_runs_jobs_of_the_old_name(make_app: MakeApp) -> None:
    old, new = await make_app(allow_unknown_types=True), await make_app()

    @new.job("mail.send")
    async def send(job: Job, to: str) -> str:
        return to

    new.alias("sendMail", "mail.send")
    job_id = (await old.enqueue("sendMail", {"to": "ann"})).job_id
    after = await done(new, job_id)
    assert (after.status, after.type, after.result) == (Status.SUCCEEDED, "sendMail", '"ann"')
    with pytest.raises(SettingsError, match="registered twice"):
        new.alias("sendMail", "mail.send")
    with pytest.raises(UnknownJobType, match=r"did you mean 'mail\.send'"):
        new.alias("other", "mail.sned")


async def test_one_bad_job_does_not_harm_the_good_ones_around_it(app: Rowlock, store: Store) -> None:
    @app.job("send")
    async def send(job: Job, count: int) -> int:
        return count

    good = [await send.enqueue(count=1)]
    bad = await put(store, type="send", payload="{}")
    unknown = await put(store, type="other")
    good.append(await send.enqueue(count=2))
    await drain(app)
    assert [(await record(app, receipt.job_id)).result for receipt in good] == ["1", "2"]
    assert [(await record(app, job_id)).status for job_id in (bad, unknown)] == [Status.FAILED, Status.QUEUED]


async def test_arguments_arrive_as_the_types_of_the_signature(app: Rowlock) -> None:
    given: dict[str, Any] = {}

    @app.job("send")
    async def send(
        job: Job,
        address: Address,
        when: datetime,
        price: Decimal,
        key: UUID,
        colour: Colour,
        link: HttpUrl,
        tags: set[str],
        size: Literal["s", "m"] = "s",
        note: str | None = None,
        *,
        times: Annotated[int, Field(ge=1)] = 3,
        anything=None,  # without annotation: any JSON value
    ) -> None:
        given.update({name: value for name, value in locals().items() if name not in ("job", "given")})

    await app.enqueue(
        "send",
        {
            "address": {"street": "High Street", "number": 7},
            "when": "2030-01-01T00:00:00Z",
            "price": "12.30",
            "key": "01a1e130-7798-7000-8ac7-3b451a9d5699",
            "colour": "red",
            "link": "https://example.com/",
            "tags": ["a", "b", "a"],
            "anything": {"x": [1, None]},
        },
    )
    await drain(app)
    assert given == {
        "address": Address(street="High Street", number=7),
        "when": datetime(2030, 1, 1, tzinfo=UTC),
        "price": Decimal("12.30"),
        "key": UUID("01a1e130-7798-7000-8ac7-3b451a9d5699"),
        "colour": Colour.RED,
        "link": HttpUrl("https://example.com/"),
        "tags": {"a", "b"},
        "size": "s",
        "note": None,
        "times": 3,
        "anything": {"x": [1, None]},
    }


async def test_a_handler_with_open_fields_takes_any(app: Rowlock) -> None:
    given: dict[str, Any] = {}

    @app.job("send")
    async def send(job: Job, to: str, **others: Any) -> None:
        given.update(others, to=to)

    await send.enqueue(to="Ann", a=1, b={"c": None})
    await drain(app)
    assert given == {"to": "Ann", "a": 1, "b": {"c": None}}
    with pytest.raises(BadPayload, match="to"):
        await send.enqueue(a=1)


async def test_a_handler_that_takes_the_job_alone_takes_any_payload(app: Rowlock) -> None:
    given = []

    @app.job("send")
    def send(job: Job) -> None:
        given.append(job.payload)

    await send.enqueue()
    await send.enqueue(any={"thing": [1]})
    await drain(app)
    assert given == [{}, {"any": {"thing": [1]}}]


async def test_a_field_named_like_the_first_parameter_is_refused(app: Rowlock) -> None:
    @app.job("send")
    async def send(job: Job, **others: Any) -> None: ...

    with pytest.raises(BadPayload, match="job"):
        await app.enqueue("send", {"job": 1})
