"""Jobs that lock another subject while they run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.running import drain, record, soon, working
from rowlock import Call, Integration, RateLimit, Status
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.sync.subject_lock import SubjectLock
from sync.conftest import MakeHub
from sync.service import Asked, Reply, Service

FAST = [RateLimit(1_000)]
KIND = "crm:default"


def claimer(hub: Integration) -> None:
    """An operation about a company, which claims what is there for its domain."""

    @hub.operation("claim", about="company:{name}")
    async def claim(call: Call, name: str, domain: str) -> None:
        await call.hold(f"domain:{domain}")
        await call.post(f"/domains/{domain}")


@pytest.mark.every_store
async def test_jobs_about_different_things_that_hold_the_same_never_call_at_once(
    make_hub: MakeHub, service: Service
) -> None:
    busy: set[str] = set()
    overlaps = 0

    async def answer(asked: Asked) -> Reply:
        nonlocal overlaps
        overlaps += asked.path in busy
        busy.add(asked.path)
        await asyncio.sleep(0.02)
        busy.discard(asked.path)
        return Reply()

    service.answer = answer
    hubs = [await make_hub(limits=FAST) for _ in range(2)]
    for hub in hubs:
        claimer(hub)
    for number in range(8):
        await hubs[0].enqueue("claim", {"name": f"c{number}", "domain": f"{number % 2}.example"})
    apps = [hub._app for hub in hubs]
    async with working(apps[0], *hubs[0].queues), working(apps[1], *hubs[1].queues):
        await service.came(8)
    assert (await apps[0].store.counts())[Status.SUCCEEDED] == 8
    assert overlaps == 0
    assert len(service.asked) == 8


async def test_one_that_must_wait_keeps_its_attempt_and_lets_go_of_what_it_has(
    make_hub: MakeHub, service: Service, store: Store
) -> None:
    hub = await make_hub(limits=FAST)
    claimer(hub)
    await store.hold_subjects(KIND, ["domain:x.example"], "another", 600)
    receipt = await hub.enqueue("claim", {"name": "acme", "domain": "x.example"})
    await drain(hub._app, *hub.queues)
    after = await record(hub._app, receipt.job_id)
    assert (after.status, after.attempts) == (Status.QUEUED, 0)
    assert after.error == "another job is at work on domain:x.example"
    assert service.asked == []
    assert await store.hold_subjects(KIND, ["company:acme"], "a third", 1) == {"company:acme": {}}


async def test_an_operation_that_is_about_nothing_cannot_hold(hub: Integration, service: Service) -> None:
    @hub.operation("do")
    async def do(call: Call) -> None:
        await call.hold("domain:x.example")
        await call.post("/things")

    receipt = await hub.enqueue("do", {})
    await drain(hub._app, *hub.queues)
    assert "crm.do: hold() needs about=" in ((await record(hub._app, receipt.job_id)).error or "")
    assert service.asked == []


async def test_a_renewal_on_its_way_does_not_hold_anew_what_was_let_go(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.sync.subject_lock._RENEWALS", 6_200)  # every 10 ms
    hold = SubjectLock(store, KIND, "me", 30.0)
    under_way, take = asyncio.Event(), store.hold_subjects

    async def late(*args: Any) -> Any:
        under_way.set()
        try:
            await asyncio.Event().wait()
        finally:  # too late for a cancellation: the statement is done all the same
            await asyncio.sleep(0.05)  # longer than to let go takes
            await take(*args)

    await hold.take(["a", "b"])
    with monkeypatch.context() as patch:
        patch.setattr(store, "hold_subjects", late)
        await soon(under_way.wait())
    assert await hold.end({"a": {"p": uuid7()}}) == []
    assert hold._renewing is not None
    await asyncio.wait([hold._renewing])
    assert set(await store.hold_subjects(KIND, ["a", "b"], "another", 600)) == {"a", "b"}


async def test_all_that_is_held_is_let_go_together(store: Store) -> None:
    hold = SubjectLock(store, KIND, "me", 30.0)
    assert await hold.take(["a"]) == {"a"}
    assert await hold.more("b") is True
    assert await store.hold_subjects(KIND, ["a", "b"], "another", 1) == {}
    await hold.end({})
    assert set(await store.hold_subjects(KIND, ["a", "b"], "another", 600)) == {"a", "b"}


async def test_what_another_holds_stays_the_other_s(store: Store) -> None:
    await store.hold_subjects(KIND, ["b"], "another", 600)
    hold = SubjectLock(store, KIND, "me", 30.0)
    await hold.take(["a"])
    assert await hold.more("b") is False
    await hold.end({})
    assert set(await store.hold_subjects(KIND, ["a", "b"], "a third", 1)) == {"a"}
