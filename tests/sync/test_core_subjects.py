"""Subjects: jobs about the same never call at once, and no old value comes after a newer one."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from engine.conftest import MakeApp
from engine.running import drain, record, soon, working
from engine.watched import ALWAYS
from rowlock import Allow, Call, Integration, SettingsError, Snooze, Status
from rowlock.ids import uuid7
from rowlock.storage.base import Store
from rowlock.sync.hold import Hold
from sync.conftest import MakeHub
from sync.service import Asked, Reply, Service

FAST = [Allow(1_000)]


def setter(hub: Integration, name: str = "set", **options: Any) -> None:
    """An operation that sets properties of a contact, those that are fresh."""

    @hub.operation(name, about="{email}", **options)
    async def set_properties(call: Call, email: str, properties: dict[str, Any]) -> Any:
        fresh = call.fresh(properties)
        if fresh:
            await call.patch(f"/contacts/{email}", {"properties": fresh})
        return sorted(fresh)


class Contacts:
    """What a service knows of contacts; notes whether two calls about one were there at once."""

    def __init__(self, service: Service, seconds: float = 0.02) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.overlaps = 0
        self._busy: set[str] = set()
        self._seconds = seconds
        service.answer = self.answer

    async def answer(self, asked: Asked) -> Reply:
        email = asked.path.rpartition("/")[2]
        self.overlaps += email in self._busy
        self._busy.add(email)
        await asyncio.sleep(self._seconds)
        self._busy.discard(email)
        self.values.setdefault(email, {}).update(asked.json["properties"])
        return Reply()


async def test_jobs_about_one_subject_never_call_at_once_others_do(make_hub: MakeHub, service: Service) -> None:
    contacts = Contacts(service, 0.2)  # longer than a store takes to let the next begin
    hubs = [await make_hub(limits=FAST) for _ in range(2)]
    for hub in hubs:
        setter(hub)
    for number in range(12):
        await hubs[0].enqueue("set", {"email": f"{number % 2}@x", "properties": {f"p{number}": number}})
    apps = [hub._app for hub in hubs]
    async with working(apps[0], *hubs[0].queues), working(apps[1], *hubs[1].queues), asyncio.timeout(20):
        while (await apps[0].store.counts()).get(Status.SUCCEEDED, 0) < 12:
            await asyncio.sleep(0.05)
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


async def test_the_subject_is_free_after_an_answer_and_held_on_after_none(make_hub: MakeHub, service: Service) -> None:
    """A call without an answer may still be under way: it must not come after a newer one."""
    hub = await make_hub(limits=FAST, timeout_seconds=0.7)
    setter(hub)
    app = hub._app
    service.script.extend([Reply(500), Reply(200), Reply(wait=asyncio.Event())])
    for number in range(2):
        await hub.enqueue("set", {"email": "a@x", "properties": {"p": number}})
        await drain(app, *hub.queues)
    assert len(service.asked) == 2, "free at once after an error"
    await hub.enqueue("set", {"email": "a@x", "properties": {"p": 2}})
    await drain(app, *hub.queues)
    last = await hub.enqueue("set", {"email": "a@x", "properties": {"p": 3}})
    await drain(app, *hub.queues)
    after = await record(app, last.job_id)
    assert (after.status, after.error) == (Status.QUEUED, "another job about the same is under way")
    async with working(app, *hub.queues):
        fourth = await service.came(4)
    third = service.asked[2]
    assert fourth.json["properties"] == {"p": 3}
    assert fourth.at - third.at > 0.7, "not before the hold of the third has run out"


@pytest.mark.parametrize(
    "reply", [*(Reply(status) for status in (502, 504, 520, 527)), Reply(cut_at=0), Reply(json={"a": 1}, cut_at=40)]
)
async def test_what_may_still_be_worked_on_stays_held(make_hub: MakeHub, service: Service, reply: Reply) -> None:
    """Whoever stands between hung up, or gave up; the service may go on."""
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


async def test_no_call_begins_with_a_hold_that_was_lost(make_hub: MakeHub, service: Service) -> None:
    """A function that dawdles between its calls, while its hold cannot be renewed."""
    dawdle, dawdling = asyncio.Event(), asyncio.Event()
    hub, other = [await make_hub(limits=FAST, timeout_seconds=0.7) for _ in range(2)]
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
    async with working(app, *hub.queues) as stop:
        await soon(dawdling.wait())
        app.store.refuse("hold_subjects", ALWAYS)  # it cannot renew its hold
        with app.store.stalled("claim"):
            await other.enqueue("set", {"email": "a@x", "properties": {"p": 1}})
            async with working(other._app, *other.queues):
                await service.came(2)  # the hold has run out, and the other has it
                await soon(other._app.store.next("settle"))
            stop.set()
        app.store.mend("hold_subjects")
        dawdle.set()
    assert service.paths() == ["POST /first", "PATCH /contacts/a@x"], "and nothing after it"
    async with asyncio.timeout(6):  # its permit is given back: it would count for longer than this
        while (await hub.monitor())["limits"][0]["inUse"]:
            await asyncio.sleep(0.05)
    after = await record(app, receipt.job_id)
    assert (after.status, after.attempts, after.error) == (
        Status.QUEUED,
        0,
        "another job may have taken over what this one is about",
    )


async def test_a_function_that_dawdles_keeps_its_hold(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST, timeout_seconds=0.7)
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
        for _ in range(5):  # a hold lasts 3.4 s and is renewed every 0.85
            await soon(app.store.next("hold_subjects"))
        assert await app.store.inner.hold_subjects("crm:default", ["a@x"], "another", 1.0) == {}
        go_on.set()
        await service.came(2)
    assert (await record(app, receipt.job_id)).status is Status.SUCCEEDED


async def test_a_hold_is_renewed_before_a_call_that_it_would_not_outlast(store: Store) -> None:
    hold = Hold(store, "crm:default", "me", 0.5)  # lasts 3 s, and a call needs 1.5
    assert await hold.take(["a"]) == {"a"}
    hold._until = time.monotonic() + 1.0
    await hold.last()
    assert hold._until - time.monotonic() > 2
    assert await hold.end({}) == []


async def test_a_hold_whose_time_is_over_is_lost_whoever_has_it_now(store: Store) -> None:
    """Another may have had it in between, and have left no mark: a call of his may be under way."""
    hold = Hold(store, "crm:default", "me", 0.5)
    await hold.take(["a"])
    hold._until = time.monotonic()
    with pytest.raises(Snooze, match="another job may have taken over"):
        await hold.last()
    assert await hold.end({"a": {"tier": uuid7()}}) == ["a"], "and nothing is marked"
    assert await store.hold_subjects("crm:default", ["a"], "you", 5.0) == {"a": {}}


async def test_what_was_written_under_a_lost_hold_is_written_again(make_hub: MakeHub, service: Service) -> None:
    """Or an older job that comes next would not know of it."""
    contacts = Contacts(service, 0.0)
    hub = await make_hub(limits=FAST, timeout_seconds=0.7)
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
        async with asyncio.timeout(10):
            while not await app.store.inner.hold_subjects("crm:default", ["a@x"], older, 60.0):
                await asyncio.sleep(0.05)
        go_on.set()
        await soon(app.store.next("settle"))
        assert (await record(app, receipt.job_id)).status is not Status.SUCCEEDED
        app.store.mend("hold_subjects")
        contacts.values["a@x"] = {"p": 1}  # as an older job would write, knowing of no newer one
        await app.store.mark_subjects("crm:default", older, {"a@x": {"p": older}})
        async with asyncio.timeout(10):
            settled = app.store.next("settle")  # before the look: the last may come during it
            while (await record(app, receipt.job_id)).status is not Status.SUCCEEDED:
                await settled
                settled = app.store.next("settle")
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
