"""Subjects: jobs about the same subject never call concurrently, and no old value overwrites a newer one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from engine.conftest import MakeApp
from engine.running import drain, record, soon, working
from engine.watched import ALWAYS
from rowlock import Call, FakeClock, Integration, RateLimit, SettingsError, Snooze, Status
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.sync.subject_lock import SubjectLock
from sync.conftest import MakeHub, impatient
from sync.service import Asked, Reply, Service

FAST = [RateLimit(1_000)]


def setter(hub: Integration, name: str = "set", **options: Any) -> None:
    """An operation that sets properties of a contact, those that are fresh."""

    @hub.operation(name, about="{email}", **options)
    async def set_properties(call: Call, email: str, properties: dict[str, Any]) -> Any:
        fresh = call.fresh(properties)
        if fresh:
            await call.patch(f"/contacts/{email}", {"properties": fresh})
        return sorted(fresh)


class Contacts:
    """What a service knows of contacts; notes whether two calls about one were there at once.

    The first calls are answered when there are calls about so many contacts.
    """

    def __init__(self, service: Service, seconds: float = 0.02, together: int = 1) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.overlaps = 0
        self._busy: set[str] = set()
        self._seconds = seconds
        self._together = together
        self._all_here = asyncio.Event()
        service.answer = self.answer

    async def answer(self, asked: Asked) -> Reply:
        email = asked.path.rpartition("/")[2]
        self.overlaps += email in self._busy
        self._busy.add(email)
        if len(self._busy) >= self._together:
            self._all_here.set()
        await self._all_here.wait()
        await asyncio.sleep(self._seconds)
        self._busy.discard(email)
        self.values.setdefault(email, {}).update(asked.json["properties"])
        return Reply()


@pytest.mark.every_store
async def test_jobs_about_one_subject_never_call_at_once_others_do(make_hub: MakeHub, service: Service) -> None:
    contacts = Contacts(service, together=2)
    hubs = [await make_hub(limits=FAST) for _ in range(2)]
    for hub in hubs:
        setter(hub)
    for number in range(12):
        await hubs[0].enqueue("set", {"email": f"{number % 2}@x", "properties": {f"p{number}": number}})
    apps = [hub._app for hub in hubs]
    async with working(apps[0], *hubs[0].queues), working(apps[1], *hubs[1].queues):
        await service.came(12)
    assert (await apps[0].store.counts())[Status.SUCCEEDED] == 12
    assert contacts.overlaps == 0
    assert service.most_at_once >= 2
    assert {len(values) for values in contacts.values.values()} == {6}


async def test_one_that_must_wait_for_another_keeps_its_attempt(make_hub: MakeHub, service: Service) -> None:
    hub, other = [await make_hub(limits=FAST, timeout_seconds=20) for _ in range(2)]
    for each in (hub, other):
        setter(each)
    leave = asyncio.Event()
    service.script.append(Reply(wait=leave))
    await hub.enqueue("set", {"email": "a@x", "properties": {"p": 1}})
    async with working(hub._app, *hub.queues):
        await service.came(1)
        with hub._app.store.stalled("claim"):
            second = await other.enqueue("set", {"email": "a@x", "properties": {"q": 1}})
            await drain(other._app, *other.queues)
            after = await record(other._app, second.job_id)
            assert (after.status, after.attempts, len(service.asked)) == (Status.QUEUED, 0, 1)
            assert after.error == "another job about the same is under way"
        leave.set()
        await service.came(2)


async def test_in_one_process_the_next_begins_when_the_one_before_has_ended(
    make_hub: MakeHub, service: Service
) -> None:
    hub = await make_hub(limits=FAST)
    setter(hub)
    for number in range(5):
        await hub.enqueue("set", {"email": "a@x", "properties": {"p": number}})
    await drain(hub._app, *hub.queues)
    assert (await hub._app.store.counts())[Status.SUCCEEDED] == 5, "none had to be tried again later"
    assert service.most_at_once == 1


@pytest.mark.every_store
async def test_an_old_value_that_is_tried_again_late_does_not_overwrite(make_hub: MakeHub, service: Service) -> None:
    contacts = Contacts(service, 0.0)
    hub = await make_hub(limits=FAST)
    setter(hub)
    service.script.append(Reply(500))
    app = hub._app
    old = await hub.enqueue("set", {"email": "a@x", "properties": {"tier": "silver", "city": "Ulm"}})
    await drain(app, *hub.queues)
    assert (await record(app, old.job_id)).status is Status.QUEUED
    new = await hub.enqueue("set", {"email": "a@x", "properties": {"tier": "gold"}})
    await drain(app, *hub.queues)
    assert (await record(app, new.job_id)).result == '["tier"]'
    # The old one's time comes.
    await app.cancel(old.job_id)
    await app.retry(old.job_id)
    await drain(app, *hub.queues)
    assert (await record(app, old.job_id)).result == '["city"]'
    assert contacts.values == {"a@x": {"tier": "gold", "city": "Ulm"}}


async def test_what_failed_counts_as_not_written(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST)
    setter(hub)
    app = hub._app
    old = await hub.enqueue("set", {"email": "a@x", "properties": {"tier": "silver"}}, delay_seconds=3_600)
    service.script.append(Reply(500))
    await hub.enqueue("set", {"email": "a@x", "properties": {"tier": "gold"}}, max_attempts=1)
    await drain(app, *hub.queues)
    await app.cancel(old.job_id)
    await app.retry(old.job_id)
    await drain(app, *hub.queues)
    assert [asked.json["properties"]["tier"] for asked in service.asked] == ["gold", "silver"]


async def test_the_subject_is_free_after_an_answer_and_held_on_after_none(
    make_hub: MakeHub, service: Service, clock: FakeClock
) -> None:
    """A call without an answer may still be under way: it must not come after a newer one."""
    hub = await make_hub(clock=clock, limits=FAST, timeout_seconds=20)  # a hold lasts 42 s
    setter(hub)
    app = hub._app
    service.script.extend([Reply(500), Reply(200), Reply(wait=asyncio.Event())])
    for number in range(2):
        await hub.enqueue("set", {"email": "a@x", "properties": {"p": number}})
        await drain(app, *hub.queues)
    assert len(service.asked) == 2, "free at once after an error"
    await hub.enqueue("set", {"email": "a@x", "properties": {"p": 2}})
    with impatient():
        await drain(app, *hub.queues)
    last = await hub.enqueue("set", {"email": "a@x", "properties": {"p": 3}})
    await drain(app, *hub.queues)
    after = await record(app, last.job_id)
    assert (after.status, after.error) == (Status.QUEUED, "another job about the same is under way")
    clock.advance(41)
    await drain(app, *hub.queues)
    assert len(service.asked) == 3, "not before the hold of the third has run out"
    clock.advance(40)  # the others are not tried again before two minutes have passed
    await drain(app, *hub.queues)
    assert [asked.json["properties"]["p"] for asked in service.asked] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "reply", [*(Reply(status) for status in (502, 504, 520, 527)), Reply(cut_at=0), Reply(json={"a": 1}, cut_at=40)]
)
async def test_what_may_still_be_worked_on_stays_held(make_hub: MakeHub, service: Service, reply: Reply) -> None:
    """The gateway closed the connection or gave up; the service may still process the request."""
    hub = await make_hub(limits=FAST, timeout_seconds=20)
    setter(hub)
    app = hub._app
    service.script.append(reply)
    receipt = await hub.enqueue("set", {"email": "a@x", "properties": {"p": 1}})
    await drain(app, *hub.queues)
    after = await record(app, receipt.job_id)
    assert after.status is Status.QUEUED
    assert (after.error or "").startswith("CallUncertain: PATCH /contacts/a@x: ")
    assert (after.error or "").endswith("; it may have been done")
    assert await app.store.hold_subjects("crm:default", ["a@x"], "another", 1.0) == {}


async def test_a_question_without_an_answer_holds_nothing(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST, timeout_seconds=20)

    @hub.operation("look", about="{email}")
    async def look(call: Call, email: str) -> None:
        await call.get(f"/contacts/{email}")

    for reply, kind in ((Reply(502), "CallFailed"), (Reply(cut_at=0), "CallUncertain")):
        service.script.append(reply)
        receipt = await hub.enqueue("look", {"email": "a@x"})
        await drain(hub._app, *hub.queues)
        assert ((await record(hub._app, receipt.job_id)).error or "").startswith(kind)
    assert len(service.asked) == 2
    assert await hub._app.store.hold_subjects("crm:default", ["a@x"], "another", 1.0) == {"a@x": {}}


@pytest.mark.every_store
async def test_no_call_begins_with_a_hold_that_was_lost(
    make_hub: MakeHub, service: Service, clock: FakeClock, elapse: Callable[[float], None]
) -> None:
    """A function that dawdles between its calls, while its hold cannot be renewed."""
    dawdle, dawdling = asyncio.Event(), asyncio.Event()
    hub, other = [
        await make_hub(clock=clock, limits=FAST, timeout_seconds=20, visibility_seconds=3_600) for _ in range(2)
    ]
    for each in (hub, other):
        setter(each)

        @each.operation("slow", about="{email}")
        async def slow(call: Call, email: str) -> None:
            await call.post("/first")
            dawdling.set()
            await dawdle.wait()
            await call.post("/second")

    receipt = await hub.enqueue("slow", {"email": "a@x"})
    app = hub._app
    first_ended = app.store.next("end_call")
    async with working(app, *hub.queues) as stop:
        await soon(dawdling.wait())
        await soon(first_ended)
        app.store.refuse("hold_subjects", ALWAYS)  # it cannot renew its hold
        with app.store.stalled("claim"):
            await other.enqueue("set", {"email": "a@x", "properties": {"p": 1}})
            elapse(43)  # a hold lasts 42 s
            await drain(other._app, *other.queues)
            stop.set()
        app.store.mend("hold_subjects")
        given_back = app.store.next("end_call")
        dawdle.set()
        await soon(given_back)
    assert service.paths() == ["POST /first", "PATCH /contacts/a@x"], "and nothing after it"
    clock.advance(20)  # its permit is given back: it would count for 30 s
    assert (await hub.monitor())["limits"][0]["inUse"] == 0
    after = await record(app, receipt.job_id)
    assert (after.status, after.attempts, after.error) == (
        Status.QUEUED,
        0,
        "another job may have taken over what this one is about",
    )


async def test_a_function_that_dawdles_keeps_its_hold(
    make_hub: MakeHub,
    service: Service,
    clock: FakeClock,
    elapse: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rowlock.sync.subject_lock._RENEWALS", 4_200)  # every 10 ms
    hub = await make_hub(clock=clock, limits=FAST, timeout_seconds=20, visibility_seconds=3_600)
    app = hub._app
    go_on, dawdling = asyncio.Event(), asyncio.Event()

    @hub.operation("slow", about="{email}")
    async def slow(call: Call, email: str) -> None:
        await call.post("/first")
        dawdling.set()
        await go_on.wait()
        await call.post("/second")

    receipt = await hub.enqueue("slow", {"email": "a@x"})
    async with working(app, *hub.queues):
        await soon(dawdling.wait())
        for _ in range(5):  # a hold lasts 42 s
            elapse(10)
            await soon(app.store.next("hold_subjects"))
        assert await app.store.inner.hold_subjects("crm:default", ["a@x"], "another", 1.0) == {}
        go_on.set()
        await service.came(2)
    assert (await record(app, receipt.job_id)).status is Status.SUCCEEDED


async def test_a_hold_is_renewed_before_a_call_that_it_would_not_outlast(store: Store) -> None:
    hold = SubjectLock(store, "crm:default", "me", 300.0)  # lasts 602 s, and a call needs 301
    assert await hold.take(["a"]) == {"a"}
    hold._until = time.monotonic() + 300.0
    await hold.last()
    assert hold._until - time.monotonic() > 500
    assert await hold.end({}) == []


async def test_an_expired_hold_is_lost_even_if_nobody_took_it(store: Store) -> None:
    """Another may have had it in between, and have left no mark: a call of his may be under way."""
    hold = SubjectLock(store, "crm:default", "me", 30.0)
    await hold.take(["a"])
    hold._until = time.monotonic()
    with pytest.raises(Snooze, match="another job may have taken over"):
        await hold.last()
    assert await hold.end({"a": {"tier": uuid7()}}) == ["a"], "and nothing is marked"
    assert await store.hold_subjects("crm:default", ["a"], "you", 5.0) == {"a": {}}


@pytest.mark.every_store
async def test_what_was_written_under_a_lost_hold_is_written_again(
    make_hub: MakeHub, service: Service, clock: FakeClock, elapse: Callable[[float], None]
) -> None:
    """Or an older job that comes next would not know of it."""
    contacts = Contacts(service, 0.0)
    hub = await make_hub(clock=clock, limits=FAST, timeout_seconds=20, visibility_seconds=3_600)
    app = hub._app
    wrote, go_on = asyncio.Event(), asyncio.Event()

    @hub.operation("slow", about="{email}")
    async def slow(call: Call, email: str, value: int) -> None:
        await call.patch(f"/contacts/{email}", {"properties": call.fresh({"p": value})})
        wrote.set()
        await go_on.wait()

    receipt = await hub.enqueue("slow", {"email": "a@x", "value": 2})
    older = "00000000-0000-7000-8000-000000000001"
    async with working(app, *hub.queues):
        await soon(wrote.wait())
        app.store.refuse("hold_subjects", ALWAYS)
        elapse(43)  # a hold lasts 42 s
        assert await app.store.inner.hold_subjects("crm:default", ["a@x"], older, 60.0)
        settled = app.store.next("settle")
        go_on.set()
        await soon(settled)
    assert (await record(app, receipt.job_id)).status is not Status.SUCCEEDED
    app.store.mend("hold_subjects")
    contacts.values["a@x"] = {"p": 1}  # as an older job would write, knowing of no newer one
    await app.store.mark_subjects("crm:default", older, {"a@x": {"p": older}})
    elapse(60)
    await drain(app, *hub.queues)
    assert (await record(app, receipt.job_id)).status is Status.SUCCEEDED
    assert contacts.values == {"a@x": {"p": 2}}


async def test_without_the_store_nothing_is_called_and_no_attempt_is_spent(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST)
    setter(hub)
    app = hub._app
    for verb in ("hold_subjects", "take_call"):
        receipt = await hub.enqueue("set", {"email": "a@x", "properties": {"p": 1}})
        app.store.refuse(verb, ALWAYS)
        await drain(app, *hub.queues)
        app.store.mend(verb)
        after = await record(app, receipt.job_id)
        assert (after.status, after.attempts) == (Status.QUEUED, 0)
        assert "the store is away" in (after.error or "")
        await app.cancel(receipt.job_id)
    assert service.asked == []


async def test_what_was_written_is_marked_even_when_the_store_is_away_for_a_moment(
    make_hub: MakeHub, service: Service
) -> None:
    hub = await make_hub(limits=FAST)
    setter(hub)
    app = hub._app
    app.store.refuse("mark_subjects", 2)
    receipt = await hub.enqueue("set", {"email": "a@x", "properties": {"p": 1}})
    await drain(app, *hub.queues)
    assert (await record(app, receipt.job_id)).status is Status.SUCCEEDED
    assert await app.store.hold_subjects("crm:default", ["a@x"], "me", 1.0) == {"a@x": {"p": receipt.job_id}}


async def test_fresh_needs_a_subject(hub: Integration) -> None:
    errors: list[SettingsError] = []

    @hub.operation("do")
    async def do(call: Call) -> None:
        try:
            call.fresh({"a": 1})
        except SettingsError as error:
            errors.append(error)

    await hub.enqueue("do", {})
    await drain(hub._app, *hub.queues)
    assert "fresh() needs about=" in str(errors[0])


async def test_accounts_are_apart(make_app: MakeApp, service: Service) -> None:
    """The same address is another contact in another account."""
    app = await make_app(clock=None)
    hub = app.integration("crm", base_url=service.url, limits=FAST, account=lambda company: company or "none")
    setter(hub)
    for company in ("acme", "bolt"):
        await hub.enqueue("set", {"email": "a@x", "properties": {"p": 1}}, company_id=company)
    await drain(app, *hub.queues)
    for company in ("acme", "bolt"):
        assert (await app.store.hold_subjects(f"crm:{company}", ["a@x"], "me", 1.0))["a@x"].keys() == {"p"}
    assert (await app.store.hold_subjects("crm:none", ["a@x"], "me", 1.0)) == {"a@x": {}}
