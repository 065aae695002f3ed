"""Batches: many waiting updates in few calls, each job settled separately, the newest value of each property."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.running import drain, record, soon, working
from rowlock import (
    Call,
    CallFailed,
    Calls,
    Integration,
    JobRecord,
    Permanent,
    RateLimit,
    Retry,
    Status,
    Update,
)
from rowlock.ids import uuid7s
from rowlock.sync.batch import PendingUpdate, merge
from rowlock.sync.subject_lock import SubjectLock
from sync.conftest import MakeHub
from sync.service import Asked, Reply, Service

FAST = [RateLimit(1_000)]


class People:
    """A service that takes up to 100 updates at once, all or none, and does not take some values."""

    def __init__(self, service: Service) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.sizes: list[int] = []
        service.answer = self.answer

    def answer(self, asked: Asked) -> Reply:
        inputs = asked.json["inputs"]
        self.sizes.append(len(inputs))
        if len(inputs) > 100 or len({one["id"] for one in inputs}) < len(inputs):
            return Reply(400, {"category": "TOO_MANY_OR_TWICE"})
        if any("bad" in one["properties"].values() for one in inputs):
            return Reply(400, {"category": "VALIDATION_ERROR", "message": "bad is not a value"})
        for one in inputs:
            self.values.setdefault(one["id"], {}).update(one["properties"])
        return Reply(200, {"results": [{"id": one["id"]} for one in inputs]})


def updater(hub: Integration, **options: Any) -> None:
    @hub.operation("update", about="{email}", batch=100, **options)
    async def update(calls: Calls, updates: list[Update]) -> list[Any]:
        inputs = [{"id": one.subject, "properties": one.properties} for one in updates]
        answer = await calls.post("/people/batch", {"inputs": inputs})
        return list(answer.json["results"])


async def ask(hub: Integration, email: str, **properties: Any) -> str:
    return (await hub.enqueue("update", {"email": email, "properties": properties})).job_id


async def after(hub: Integration, *job_ids: str) -> list[JobRecord]:
    await drain(hub._app, *hub.queues)
    return [await record(hub._app, job_id) for job_id in job_ids]


@pytest.mark.every_store
async def test_a_thousand_waiting_updates_are_ten_calls(make_hub: MakeHub, service: Service) -> None:
    people = People(service)
    hub = await make_hub(limits=FAST)
    updater(hub)
    payloads = [{"email": f"{number}@x", "properties": {"n": number}} for number in range(1_000)]
    await hub.enqueue_many("update", payloads)
    await drain(hub._app, *hub.queues)
    assert sorted(people.sizes) == [100] * 10
    assert {email: values["n"] for email, values in people.values.items()} == {f"{n}@x": n for n in range(1_000)}
    assert (await hub.stats())["completed24h"] == 1_000


async def test_they_are_full_while_the_limits_hold_them_back(make_hub: MakeHub, service: Service) -> None:
    people = People(service)
    hub = await make_hub(limits=[RateLimit(3, per_seconds=0.2)])
    updater(hub)
    payloads = [{"email": f"{number}@x", "properties": {"n": number}} for number in range(950)]
    await hub.enqueue_many("update", payloads)
    async with working(hub._app, *hub.queues), asyncio.timeout(60):
        settled = hub._app.store.next("settle")  # before the look: the last may come during it
        while (await hub._app.store.counts()).get(Status.SUCCEEDED, 0) < 950:
            await settled
            settled = hub._app.store.next("settle")
    assert sorted(people.sizes) == [50] + [100] * 9


async def test_a_lone_update_does_not_wait_for_company(make_hub: MakeHub, service: Service) -> None:
    people = People(service)
    hub = await make_hub(limits=FAST)
    updater(hub)
    async with working(hub._app, *hub.queues):
        await soon(hub._app.store.next("hint of queue"))
        await ask(hub, "a@x", n=1)
        await service.came(1)
    assert people.sizes == [1]


@pytest.mark.every_store
async def test_updates_of_one_subject_merge_and_the_newest_value_wins(make_hub: MakeHub, service: Service) -> None:
    people = People(service)
    hub = await make_hub(limits=FAST, concurrency=1)
    updater(hub)
    ids = [
        await ask(hub, "a@x", tier="silver", city="Ulm"),
        await ask(hub, "b@x", tier="bronze"),
        await ask(hub, "a@x", tier="gold"),
        await ask(hub, "a@x", phone="1"),
    ]
    records = await after(hub, *ids)
    assert people.sizes == [2]
    assert people.values == {"a@x": {"tier": "gold", "city": "Ulm", "phone": "1"}, "b@x": {"tier": "bronze"}}
    assert [job.result for job in records] == ['{"id":"a@x"}', '{"id":"b@x"}', '{"id":"a@x"}', '{"id":"a@x"}']
    held = await hub._app.store.hold_subjects("crm:default", ["a@x", "b@x"], "me", 1.0)
    assert held == {"a@x": {"tier": ids[2], "city": ids[0], "phone": ids[3]}, "b@x": {"tier": ids[1]}}


async def test_what_a_newer_job_wrote_is_left_alone(make_hub: MakeHub, service: Service) -> None:
    people = People(service)
    hub = await make_hub(limits=FAST)
    updater(hub)
    app = hub._app
    half, whole = await ask(hub, "a@x", tier="silver", city="Ulm"), await ask(hub, "a@x", tier="bronze")
    for job_id in (half, whole):
        await app.cancel(job_id)
    await after(hub, await ask(hub, "a@x", tier="gold"))
    for job_id in (half, whole):
        await app.retry(job_id)
        (record_,) = await after(hub, job_id)
        assert record_.status is Status.SUCCEEDED
    assert people.values == {"a@x": {"tier": "gold", "city": "Ulm"}}
    assert (await record(app, whole)).result == '{"skipped":true,"reason":"superseded"}'
    assert len(people.sizes) == 2


async def test_each_job_is_settled_by_what_became_of_its_subject(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST, concurrency=1)

    @hub.operation("update", about="{email}", batch=100)
    async def update(calls: Calls, updates: list[Update]) -> list[Any]:
        answers = {"fine@x": {"ok": 1}, "again@x": Retry("busy", after=7), "never@x": Permanent("gone"), "nil@x": None}
        return [answers[one.subject] for one in updates]

    names = ["fine@x", "again@x", "never@x", "nil@x"]
    records = await after(hub, *[await ask(hub, name, p=1) for name in names])
    assert [(job.status, job.result, job.error) for job in records] == [
        (Status.SUCCEEDED, '{"ok":1}', None),
        (Status.QUEUED, None, "busy"),
        (Status.FAILED, None, "gone"),
        (Status.SUCCEEDED, None, None),
    ]
    held = await hub._app.store.hold_subjects("crm:default", names, "me", 1.0)
    assert {name for name, marks in held.items() if marks} == {"fine@x", "nil@x"}, "all free, two written"


async def test_one_bad_update_does_not_take_the_others_along(make_hub: MakeHub, service: Service) -> None:
    people = People(service)
    hub = await make_hub(limits=FAST)
    updater(hub)
    ids = [await ask(hub, f"{number}@x", v="bad" if number == 37 else "good") for number in range(100)]
    records = await after(hub, *ids)
    failed = [number for number, job in enumerate(records) if job.status is not Status.SUCCEEDED]
    assert failed == [37]
    assert records[37].error == "CallFailed: POST /people/batch: 400 VALIDATION_ERROR bad is not a value"
    assert len(people.values) == 99
    assert len(people.sizes) <= 25


async def test_when_all_are_bad_the_service_is_not_asked_for_ever(make_hub: MakeHub, service: Service) -> None:
    people = People(service)
    hub = await make_hub(limits=FAST)
    updater(hub)
    records = await after(hub, *[await ask(hub, f"{number}@x", v="bad") for number in range(100)])
    assert {job.status for job in records} == {Status.QUEUED}
    assert len(people.sizes) <= 25


async def test_one_bad_value_does_not_take_along_what_it_was_merged_with(make_hub: MakeHub, service: Service) -> None:
    people = People(service)
    hub = await make_hub(limits=FAST, concurrency=1)
    updater(hub)
    ids = [await ask(hub, "a@x", city="Ulm"), await ask(hub, "a@x", tier="bad"), await ask(hub, "a@x", phone="1")]
    records = await after(hub, *ids)
    assert [job.status for job in records] == [Status.SUCCEEDED, Status.QUEUED, Status.SUCCEEDED]
    assert people.values == {"a@x": {"city": "Ulm", "phone": "1"}}


async def test_a_call_that_fails_for_other_reasons_is_not_tried_in_pieces(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST, concurrency=1)
    updater(hub)
    service.answer = lambda asked: Reply(500)
    records = await after(hub, *[await ask(hub, f"{number}@x", v=1) for number in range(10)])
    assert {(job.status, job.attempts) for job in records} == {(Status.QUEUED, 1)}
    assert len(service.asked) == 1


async def test_a_refused_credential_fails_them_all_for_good(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST, concurrency=1)
    updater(hub)
    service.answer = lambda asked: Reply(403)
    records = await after(hub, *[await ask(hub, f"{number}@x", v=1) for number in range(10)])
    assert {job.status for job in records} == {Status.FAILED}
    assert len(service.asked) == 1


async def test_a_limit_that_is_reached_costs_no_attempt_of_any(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=[RateLimit(1, per_seconds=3_600)], concurrency=1)
    updater(hub)
    People(service)
    await after(hub, await ask(hub, "first@x", v=1))
    records = await after(hub, *[await ask(hub, f"{number}@x", v=1) for number in range(10)])
    assert {(job.status, job.attempts) for job in records} == {(Status.QUEUED, 0)}


async def test_a_wish_that_cannot_be_read_fails_alone(make_hub: MakeHub, service: Service) -> None:
    people = People(service)

    def wanted(email: str, status: str) -> dict[str, Any]:
        if status == "odd":
            raise Permanent("odd is not a status")
        return {"status": status}

    hub = await make_hub(limits=FAST, concurrency=1)
    updater(hub, properties=wanted)
    ids = [
        (await hub.enqueue("update", {"email": f"{status}@x", "status": status})).job_id for status in ("fine", "odd")
    ]
    fine, odd = await after(hub, *ids)
    assert (fine.status, odd.status, odd.error) == (Status.SUCCEEDED, Status.FAILED, "odd is not a status")
    assert people.values == {"fine@x": {"status": "fine"}}


async def test_an_answer_that_does_not_fit_fails_all_with_a_reason(make_hub: MakeHub) -> None:
    hub = await make_hub(limits=FAST, concurrency=1)

    @hub.operation("update", about="{email}", batch=100)
    async def update(calls: Calls, updates: list[Update]) -> list[Any]:
        return [1, 2, 3]

    (job,) = await after(hub, await ask(hub, "a@x", v=1))
    assert "one entry per update" in (job.error or "")


async def test_what_is_held_elsewhere_waits_and_the_others_go(make_hub: MakeHub, service: Service) -> None:
    people = People(service)
    hub = await make_hub(limits=FAST, concurrency=1)
    updater(hub)
    app = hub._app
    await app.store.hold_subjects("crm:default", ["a@x"], "someone else", 60.0)
    held, free = await after(hub, await ask(hub, "a@x", v=1), await ask(hub, "b@x", v=1))
    assert (held.status, held.attempts, free.status) == (Status.QUEUED, 0, Status.SUCCEEDED)
    assert people.values == {"b@x": {"v": 1}}


async def test_a_batch_and_a_single_operation_about_one_subject_keep_apart(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST, timeout_seconds=20)
    updater(hub)

    @hub.operation("touch", about="{email}")
    async def touch(call: Call, email: str) -> None:
        await call.post("/touch")

    leave = asyncio.Event()
    service.script.append(Reply(200, {"results": [{}]}, wait=leave))
    await ask(hub, "a@x", v=1)
    app = hub._app
    async with working(app, *hub.queues):
        await service.came(1)
        touched = await hub.enqueue("touch", {"email": "a@x"})
        await soon(app.store.next("settle"))
        assert (await record(app, touched.job_id)).status is Status.QUEUED
        leave.set()
        await service.came(2)
    assert service.most_at_once == 1


async def test_a_store_that_goes_away_half_way_costs_no_attempt(make_hub: MakeHub, service: Service) -> None:
    people = People(service)
    hub = await make_hub(limits=FAST, concurrency=1)
    updater(hub)
    app = hub._app
    ids = [await ask(hub, f"{number}@x", v="bad" if number == 0 else "good") for number in range(4)]
    answer = service.answer

    def answering(asked: Asked) -> Any:
        if len(people.sizes) == 1:  # the first half is next
            app.store.refuse("take_call", 1)
        return answer(asked)

    service.answer = answering
    records = await after(hub, *ids)
    assert {job.attempts for job in records if job.status is Status.QUEUED} == {0}
    assert "the store is away" in (records[0].error or "")


async def test_companies_with_accounts_of_their_own_are_called_apart(make_hub: MakeHub, service: Service) -> None:
    people = People(service)
    hub = await make_hub(limits=FAST, concurrency=1, account=lambda company: company, token=lambda company: company)
    updater(hub)
    for company in ("acme", "bolt", "acme"):
        await hub.enqueue("update", {"email": "a@x", "properties": {company: 1}}, company_id=company)
    await drain(hub._app, *hub.queues)
    assert sorted(asked.headers["authorization"] for asked in service.asked) == ["Bearer acme", "Bearer bolt"]
    assert people.sizes == [1, 1]


async def test_an_account_that_does_not_answer_holds_up_no_other(
    make_hub: MakeHub, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = await make_hub(limits=FAST, account=lambda company: company or "none", timeout_seconds=10)
    go_on = asyncio.Event()

    @hub.operation("update", about="{email}", batch=100)
    async def update(calls: Calls, updates: list[Update]) -> None:
        await calls.post(f"/{updates[0].jobs[0].company_id}")

    async def take(hold: SubjectLock, subjects: Sequence[str]) -> set[str]:
        if hold._kind == "crm:odd":
            raise RuntimeError("nobody knows why")
        return await held(hold, subjects)

    held = SubjectLock.take
    monkeypatch.setattr(SubjectLock, "take", take)
    service.answer = lambda asked: Reply(wait=go_on) if asked.path == "/mute" else Reply()
    jobs = {}
    for company in ("mute", "odd", "acme"):
        payload = {"email": "a@x", "properties": {"p": 1}}
        jobs[company] = (await hub.enqueue("update", payload, company_id=company)).job_id
    done = asyncio.create_task(after(hub, *jobs.values()))
    await service.came(2)
    assert sorted(service.paths()) == ["POST /acme", "POST /mute"], "both are under way"
    go_on.set()
    mute, odd, acme = await soon(done)
    assert (mute.status, odd.error, acme.status) == (
        Status.SUCCEEDED,
        "RuntimeError: nobody knows why",
        Status.SUCCEEDED,
    )


async def test_a_retried_call_hands_over_what_is_uncertain(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST)
    seen: list[bool] = []

    @hub.operation("update", about="{email}", batch=100)
    async def update(calls: Calls, updates: list[Update]) -> list[Any]:
        seen.append(calls.uncertain)
        return [CallFailed("no")] if len(seen) == 1 else [None]

    job_id = await ask(hub, "a@x", v=1)
    await after(hub, job_id)
    await hub._app.cancel(job_id)
    await hub._app.retry(job_id)
    await after(hub, job_id)
    assert seen == [False, True]


class _Job:
    def __init__(self, job_id: str) -> None:
        self.id = job_id


@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9)), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9)),
)
def test_a_merge_is_what_writing_one_after_the_other_gives(
    wishes: list[dict[str, int]], random: Any, marked: dict[str, int]
) -> None:
    ids = uuid7s(len(wishes) + 2)
    mine = ids[1:-1]
    marks = {name: ids[min(at, len(ids) - 1)] for name, at in marked.items()}
    expected: dict[str, int] = {}
    for job_id, wish in zip(mine, wishes, strict=True):
        expected |= {name: value for name, value in wish.items() if marks.get(name, "") <= job_id}
    shuffled = [PendingUpdate(_Job(job_id), job_id, "s", wish) for job_id, wish in zip(mine, wishes, strict=True)]
    random.shuffle(shuffled)
    merged = merge("s", shuffled, marks)
    assert merged.update.properties == expected
    assert [job.id for job in merged.update.jobs] == mine
    for name, source in merged.sources.items():
        assert wishes[mine.index(source)][name] == expected[name]


@pytest.mark.parametrize("batch", [1, 3])
async def test_a_small_batch_is_never_exceeded(make_hub: MakeHub, batch: int) -> None:
    hub = await make_hub(limits=FAST)
    sizes: list[int] = []

    @hub.operation("update", about="{email}", batch=batch)
    async def update(calls: Calls, updates: list[Update]) -> None:
        sizes.append(len(updates))

    await hub.enqueue_many("update", [{"email": f"{n}@x", "properties": {"n": n}} for n in range(10)])
    await drain(hub._app, *hub.queues)
    assert sum(sizes) == 10
    assert max(sizes) == batch
