"""The newest enqueued value wins: an enqueue that returns an older job makes that job write the new value."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.running import drain, record, soon, working
from engine.watched import ALWAYS
from rowlock import Call, Calls, Integration, Permanent, RateLimit, Status, Update
from rowlock.storage.records import Receipt
from sync.conftest import MakeHub
from sync.service import Asked, Reply, Service

FAST = [RateLimit(1_000)]


class Contacts:
    """What the service has in the end, and each value that was written."""

    def __init__(self, service: Service) -> None:
        self.tiers: dict[str, Any] = {}
        self.written: list[Any] = []
        service.answer = self.answer

    def answer(self, asked: Asked) -> Reply:
        for email, tier in asked.json.items():
            self.tiers[email] = tier
            self.written.append(tier)
        return Reply()


def declare(hub: Integration) -> None:
    """`tier` has a key for each value, `set` one for each contact, and so has `batch`."""

    async def write(call: Call, email: str, tier: str) -> Any:
        fresh = call.fresh({"tier": tier})
        if not fresh:
            return "superseded"
        await call.put("/contacts", {email: tier})
        return tier

    hub.operation("tier", key="tier_{email}_{tier}", about="{email}")(write)
    hub.operation("set", key="set_{email}", about="{email}")(write)

    @hub.operation("batch", key="batch_{email}", about="{email}", batch=10)
    async def batch(calls: Calls, updates: list[Update]) -> None:
        await calls.put("/contacts", {update.subject: update.properties["tier"] for update in updates})


async def ask(hub: Integration, tier: str, operation: str = "tier", email: str = "a@x", **options: Any) -> Receipt:
    payload: dict[str, Any] = {"email": email, "tier": tier}
    if operation == "batch":
        payload = {"email": email, "properties": {"tier": tier}}
    return await hub.enqueue(operation, payload, **options)


async def run_late(hub: Integration, job_id: str) -> None:
    """The time of its retry has come."""
    assert await hub._app.store.run_now(job_id)
    await drain(hub._app, *hub.queues)


@pytest.mark.every_store
async def test_gold_that_fails_then_silver_then_gold_again_is_gold(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST)
    declare(hub)
    contacts = Contacts(service)
    service.script.append(Reply(500))
    gold = await ask(hub, "gold")
    await drain(hub._app, *hub.queues)
    await ask(hub, "silver")
    await drain(hub._app, *hub.queues)
    assert contacts.tiers == {"a@x": "silver"}
    assert await ask(hub, "gold") == Receipt(gold.job_id, False)
    await run_late(hub, gold.job_id)
    assert contacts.tiers == {"a@x": "gold"}
    assert (await record(hub._app, gold.job_id)).status is Status.SUCCEEDED
    await ask(hub, "silver")
    await drain(hub._app, *hub.queues)
    assert contacts.tiers == {"a@x": "silver"}, "what is newer still comes after it"


async def test_gold_that_was_not_sent_again_stays_behind_silver(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST)
    declare(hub)
    contacts = Contacts(service)
    gold = await ask(hub, "gold", delay_seconds=3_600)
    await ask(hub, "gold")
    await ask(hub, "silver")
    await drain(hub._app, *hub.queues)
    await run_late(hub, gold.job_id)
    assert contacts.written == ["silver"]


@pytest.mark.parametrize("operation", ["set", "batch"])
async def test_a_waiting_job_writes_the_newest_value_of_its_key(
    make_hub: MakeHub, service: Service, operation: str
) -> None:
    """Here the key does not name the value: of three values, one job writes the last."""
    hub = await make_hub(limits=FAST)
    declare(hub)
    contacts = Contacts(service)
    first = await ask(hub, "gold", operation)
    assert [(await ask(hub, tier, operation)).job_id for tier in ("silver", "gold", "vip")] == [first.job_id] * 3
    await drain(hub._app, *hub.queues)
    assert contacts.written == ["vip"]
    assert '"vip"' in (await record(hub._app, first.job_id)).payload


@pytest.mark.every_store
@pytest.mark.parametrize("operation", ["set", "batch"])
async def test_a_job_that_is_enqueued_again_during_its_call_runs_once_more(
    make_hub: MakeHub, service: Service, operation: str
) -> None:
    hub = await make_hub(limits=FAST)
    declare(hub)
    contacts = Contacts(service)
    app, go_on = hub._app, asyncio.Event()
    service.script.append(Reply(wait=go_on))
    first = await ask(hub, "gold", operation)
    async with working(app, *hub.queues):
        await service.came(1)
        assert await ask(hub, "silver", operation) == Receipt(first.job_id, False)
        go_on.set()
        await service.came(2)
    await drain(app, *hub.queues)
    assert contacts.written == ["silver"], "the scripted answer to the first call writes nothing"
    found = await record(app, first.job_id)
    assert (found.status, found.attempts) == (Status.SUCCEEDED, 1)
    assert (await ask(hub, "gold", operation)).created, "the key is free"


async def test_silver_and_gold_during_the_call_for_gold_end_with_gold(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST)
    declare(hub)
    contacts = Contacts(service)
    app, go_on = hub._app, asyncio.Event()
    service.script.append(Reply(wait=go_on))
    gold = await ask(hub, "gold")
    async with working(app, *hub.queues):
        await service.came(1)
        silver = await ask(hub, "silver")
        assert not (await ask(hub, "gold")).created
        go_on.set()
        await service.came(2)
    await drain(app, *hub.queues)
    assert contacts.tiers == {"a@x": "gold"}
    assert {(await record(app, each.job_id)).status for each in (gold, silver)} == {Status.SUCCEEDED}


@pytest.mark.parametrize("operation", ["set", "batch"])
async def test_an_enqueue_between_the_last_look_and_the_end_makes_a_job_of_its_own(
    make_hub: MakeHub, service: Service, operation: str
) -> None:
    hub = await make_hub(limits=FAST)
    declare(hub)
    contacts = Contacts(service)
    app = hub._app
    first = await ask(hub, "gold", operation)
    async with working(app, *hub.queues):
        with app.store.stalled("settle"):
            await soon(app.store.next("free_keys"))
            second = await ask(hub, "silver", operation)
            assert second.created
        await service.came(2)
    await drain(app, *hub.queues)
    assert contacts.written == ["gold", "silver"]
    assert {(await record(app, each.job_id)).status for each in (first, second)} == {Status.SUCCEEDED}


@pytest.mark.parametrize("operation", ["set", "batch"])
@pytest.mark.parametrize("verb", ["newest", "free_keys"])
async def test_without_the_store_no_job_succeeds_and_no_attempt_is_spent(
    make_hub: MakeHub, service: Service, operation: str, verb: str
) -> None:
    hub = await make_hub(limits=FAST)
    declare(hub)
    contacts = Contacts(service)
    app = hub._app
    first = await ask(hub, "gold", operation)
    app.store.refuse(verb, ALWAYS)
    await drain(app, *hub.queues)
    found = await record(app, first.job_id)
    assert (found.status, found.attempts) == (Status.QUEUED, 0)
    assert "the store is away" in (found.error or "")
    app.store.mend(verb)
    assert not (await ask(hub, "silver", operation)).created
    await run_late(hub, first.job_id)
    assert contacts.tiers == {"a@x": "silver"}


async def test_an_answer_that_was_lost_does_no_harm(make_hub: MakeHub, service: Service) -> None:
    """The key is free, though the worker does not know it: the job runs again, and leaves a newer one's value alone."""
    hub = await make_hub(limits=FAST)
    declare(hub)
    contacts = Contacts(service)
    app = hub._app
    first = await ask(hub, "gold", "set")
    app.store.lose_reply("free_keys")
    await drain(app, *hub.queues)
    assert (await record(app, first.job_id)).status is Status.QUEUED
    assert (await ask(hub, "silver", "set")).created
    await drain(app, *hub.queues)
    await run_late(hub, first.job_id)
    assert contacts.written == ["gold", "silver"]
    assert (await record(app, first.job_id)).status is Status.SUCCEEDED


async def test_a_dead_job_that_is_retried_writes_the_newest_value(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST)
    declare(hub)
    contacts = Contacts(service)
    app = hub._app
    service.script.append(Reply(500))
    gold = await ask(hub, "gold")
    await drain(app, *hub.queues)
    await ask(hub, "silver")
    await drain(app, *hub.queues)
    assert not (await ask(hub, "gold")).created
    service.script.append(Reply(403))
    await run_late(hub, gold.job_id)
    assert (await record(app, gold.job_id)).status is Status.FAILED
    assert contacts.tiers == {"a@x": "silver"}
    await app.retry(gold.job_id)
    await drain(app, *hub.queues)
    assert contacts.tiers == {"a@x": "gold"}


@pytest.mark.every_store
@pytest.mark.parametrize("operation", ["set", "batch"])
@pytest.mark.parametrize(("status", "attempts"), [(403, None), (500, 1)], ids=["refused", "the-last-attempt"])
async def test_what_was_enqueued_during_a_failing_call_has_its_own_attempt(
    make_hub: MakeHub, service: Service, operation: str, status: int, attempts: int | None
) -> None:
    hub = await make_hub(limits=FAST)
    declare(hub)
    contacts = Contacts(service)
    app, go_on = hub._app, asyncio.Event()
    service.script.append(Reply(status, wait=go_on))
    first = await ask(hub, "gold", operation, max_attempts=attempts)
    async with working(app, *hub.queues):
        await service.came(1)
        assert await ask(hub, "silver", operation) == Receipt(first.job_id, False)
        go_on.set()
        await service.came(2)
    await drain(app, *hub.queues)
    assert contacts.written == ["silver"]
    found = await record(app, first.job_id)
    assert (found.status, found.attempts) == (Status.SUCCEEDED, 1)


@pytest.mark.parametrize("operation", ["set", "batch"])
async def test_an_enqueue_between_a_failure_and_its_settlement_makes_a_job_of_its_own(
    make_hub: MakeHub, service: Service, operation: str
) -> None:
    hub = await make_hub(limits=FAST)
    declare(hub)
    contacts = Contacts(service)
    app = hub._app
    service.script.append(Reply(403))
    first = await ask(hub, "gold", operation)
    async with working(app, *hub.queues):
        with app.store.stalled("settle"):
            await soon(app.store.next("free_keys"))
            assert (await ask(hub, "silver", operation)).created
        await service.came(2)
    await drain(app, *hub.queues)
    assert contacts.written == ["silver"]
    assert (await record(app, first.job_id)).status is Status.FAILED


async def test_an_operation_without_a_key_asks_the_store_nothing_more(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST)

    @hub.operation("plain", about="{email}")
    async def plain(call: Call, email: str) -> None:
        if email == "bad":
            raise Permanent("no")

    await hub.enqueue("plain", {"email": "a@x"})
    await drain(hub._app, *hub.queues)
    assert hub._app.store.calls["newest"] == hub._app.store.calls["free_keys"] == 0
