"""Declarations: valid integrations and operations, and the errors for invalid ones."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from engine.conftest import MakeApp
from engine.running import Log, drain, record
from rowlock import (
    BadPayload,
    Call,
    Calls,
    Integration,
    IntegrationDisabled,
    IntegrationNotFound,
    OperationNotFound,
    RateLimit,
    SettingsError,
    Status,
    Update,
)
from sync.conftest import MakeHub
from sync.service import Service

Email = Annotated[str, AfterValidator(str.lower)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "ftp://crm.example"}, "base_url must be"),
        ({"base_url": "https://user:pw@crm.example"}, "base_url must be"),
        ({"base_url": "https://crm.example/?a=b"}, "base_url must be"),
        ({"limits": []}, "without a group"),
        ({"limits": [RateLimit(5, group="search")]}, "without a group"),
        ({"limits": [RateLimit(5, per_seconds=10), RateLimit(6, per_seconds=10)]}, "same group and the same seconds"),
        ({"token": lambda company: "t"}, "needs an account for each"),
        ({"account": "a" * 200}, "account"),
    ],
)
async def test_an_integration_that_cannot_work_is_refused(
    make_hub: MakeHub, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        await make_hub(**options)


async def test_names_are_checked_and_different(make_app: MakeApp) -> None:
    app = await make_app()
    app.integration("crm", base_url="http://crm.example")
    for name, message in {
        "crm": "declared twice",
        "a:b": "neither : nor /",
        "x" * 61: "at most 60",
        "": "1 to",
    }.items():
        with pytest.raises(SettingsError, match=message):
            app.integration(name, base_url="http://crm.example")
    with pytest.raises(IntegrationNotFound, match="did you mean crm"):
        app.integrations.named("crn")


@pytest.mark.parametrize("allow", [(0, 1.0, None), (1, 0.0, None), (1, 1e9, None), (1, 1.0, ""), (1, 1.0, "x" * 41)])
def test_a_limit_that_cannot_be_kept_is_refused(allow: tuple[int, float, str | None]) -> None:
    with pytest.raises(SettingsError):
        RateLimit(*allow)


async def test_an_operation_that_cannot_work_is_refused(hub: Integration) -> None:
    async def fine(call: Call, email: str) -> None: ...

    async def batched(calls: Calls, updates: list[Update]) -> None: ...

    def plain(call: Call, email: str) -> None: ...

    mistakes: list[tuple[Any, dict[str, Any], str]] = [
        (plain, {}, "async def"),
        (fine, {"priority": 0}, "priority must be 1 to 10"),
        (fine, {"priority": 11}, "priority must be 1 to 10"),
        (fine, {"key": "k_{mail}"}, "its key names mail.*it takes email"),
        (fine, {"about": "{mail}"}, "its about names mail"),
        (fine, {"properties": dict}, "properties= is for"),
        (fine, {"about": "{email}", "batch": 0}, "batch must be"),
        (batched, {"batch": 10}, "needs about="),
    ]
    for number, (function, options, message) in enumerate(mistakes):
        with pytest.raises(SettingsError, match=message):
            hub.operation(f"do{number}", **options)(function)
    hub.operation("do")(fine)
    with pytest.raises(SettingsError, match="declared twice"):
        hub.operation("do")(fine)


async def test_a_job_has_its_type_queue_priority_and_attempts(hub: Integration) -> None:
    @hub.operation("create", priority=3)
    async def create(call: Call, email: str) -> None: ...

    @hub.operation("update", about="{email}", batch=100)
    async def update(calls: Calls, updates: list[Update]) -> None: ...

    app = hub._app
    one = await record(app, (await hub.enqueue("create", {"email": "a@b.c"})).job_id)
    two = await record(app, (await hub.enqueue("create", {"email": "a@b.c"}, priority=1)).job_id)
    three = await record(app, (await hub.enqueue("update", {"email": "a@b.c", "properties": {}})).job_id)
    assert (one.type, one.queue, one.priority, one.max_attempts) == ("crm.create", "crm", 3, 6)
    assert two.priority == 1
    assert (three.type, three.queue, three.priority) == ("crm.update", "crm.update", 5)
    assert one.limit_key == "crm:default"
    assert one.visibility_timeout_ms == 600_000
    assert hub.queues == ("crm", "crm.update")
    profile = app.engine.profiles["crm"]
    assert (profile.concurrency, profile.poll_seconds, profile.rescue_delay_seconds) == (5, 120.0, 300.0)
    assert set(app.engine.queues()) >= {"crm", "crm.update"}


async def test_the_waits_are_those_of_the_document(hub: Integration) -> None:
    @hub.operation("do")
    async def do(call: Call) -> None: ...

    retry = hub._app.registry.require("crm.do").retry
    assert [retry.delay_seconds(attempt) / 60 for attempt in range(1, 6)] == [2, 4, 8, 16, 32]
    assert retry.delay_seconds(10) == 3_600


@pytest.mark.parametrize("priority", [0, 11, -5])
async def test_a_priority_out_of_range_is_refused(hub: Integration, priority: int) -> None:
    @hub.operation("do")
    async def do(call: Call) -> None: ...

    with pytest.raises(BadPayload, match="priority must be 1 to 10"):
        await hub.enqueue("do", {}, priority=priority)


async def test_of_jobs_with_one_key_one_is_there_however_it_is_asked_for(hub: Integration) -> None:
    @hub.operation("tier", key="tier_sync_{email}_{old}_to_{new}")
    async def tier(call: Call, email: Email, new: str, old: str | None = None) -> None: ...

    app = hub._app
    first = await hub.enqueue("tier", {"email": "ADA@b.c", "new": "Gold Plus"})
    assert (await record(app, first.job_id)).unique_key == "tier_sync_ada@b.c_none_to_Gold_Plus"
    for again in (
        await hub.enqueue("tier", {"new": "Gold Plus", "email": "ada@b.c", "old": None}),
        await app.enqueue("crm.tier", {"email": "ada@b.c", "new": "Gold Plus"}),
        (await hub.enqueue_many("tier", [{"email": "ada@b.c", "new": "Gold Plus"}]))[0],
    ):
        assert (again.job_id, again.created) == (first.job_id, False)
    assert (await hub.enqueue("tier", {"email": "ada@b.c", "new": "Gold"})).created
    await drain(app, *hub.queues)
    assert (await hub.enqueue("tier", {"email": "ada@b.c", "new": "Gold Plus"})).created, "that one is over"


async def test_a_key_that_cannot_be_one_is_refused(hub: Integration) -> None:
    @hub.operation("do", key=lambda fields: str(fields["name"]))
    async def do(call: Call, name: str) -> None: ...

    assert (await hub.enqueue("do", {"name": "x" * 200})).created
    for name in ("", "x" * 201, "a\x00b"):
        with pytest.raises(BadPayload, match="its key must be 1 to 200"):
            await hub.enqueue("do", {"name": name})


async def test_what_the_function_does_not_take_is_refused(hub: Integration) -> None:
    def wanted(email: str, status: str | None = None) -> dict[str, Any]:
        return {"status": status}

    @hub.operation("create")
    async def create(call: Call, email: str) -> None: ...

    @hub.operation("update", about="{email}", batch=100, properties=wanted)
    async def update(calls: Calls, updates: list[Update]) -> None: ...

    @hub.operation("patch", about="{email}", batch=100)
    async def patch(calls: Calls, updates: list[Update]) -> None: ...

    for operation, payload in [
        ("create", {}),
        ("create", {"email": 1}),
        ("create", {"email": "a", "x": 1}),
        ("update", {"status": "x"}),
        ("update", {"email": "a", "x": 1}),
        ("patch", {"email": "a"}),
        ("patch", {"email": "a", "properties": 1}),
    ]:
        with pytest.raises(BadPayload):
            await hub.enqueue(operation, payload)
    with pytest.raises(OperationNotFound, match="did you mean create"):
        await hub.enqueue("creat", {})
    assert (await hub._app.store.counts())[Status.QUEUED] == 0


async def test_an_integration_that_is_off_takes_no_jobs_and_keeps_those_it_has(
    make_hub: MakeHub, service: Service
) -> None:
    on, off = await make_hub(), await make_hub(disabled="set CRM_TOKEN")
    for hub in (on, off):

        @hub.operation("do")
        async def do(call: Call) -> None:
            await call.get("/x")

    with pytest.raises(IntegrationDisabled, match="crm is disabled: set CRM_TOKEN"):
        await off.enqueue("do", {})
    receipt = await on.enqueue("do", {})
    await drain(off._app, *off.queues)
    after = await record(off._app, receipt.job_id)
    assert (after.status, after.attempts, service.asked) == (Status.QUEUED, 0, [])
    assert after.error == "crm is disabled: set CRM_TOKEN"
    assert (await off.monitor())["why"] == "set CRM_TOKEN"
    assert "crm" in on._app.engine.queues()
    assert "crm" not in off._app.engine.queues(), "a worker does not even ask for its jobs"


async def test_an_operation_that_is_off_says_so_and_succeeds(make_hub: MakeHub, service: Service, log: Log) -> None:
    hub = await make_hub(operations_off={"deal", "many"})

    @hub.operation("deal")
    async def deal(call: Call) -> None:
        await call.get("/x")

    @hub.operation("many", about="{of}", batch=10)
    async def many(calls: Calls, updates: list[Update]) -> None:
        await calls.get("/x")

    receipts = [await hub.enqueue("deal", {}), await hub.enqueue("many", {"of": "a", "properties": {}})]
    await drain(hub._app, *hub.queues)
    for receipt, name in zip(receipts, ("deal", "many"), strict=True):
        after = await record(hub._app, receipt.job_id)
        assert after.status is Status.SUCCEEDED
        assert after.result == f'{{"skipped":true,"reason":"{name} is switched off"}}'
    assert service.asked == []
    assert sorted(line["type"] for line in log.of("sync.skipped")) == ["crm.deal", "crm.many"]
    assert [hub.operations[name].enabled for name in ("deal", "many")] == [False, False]


async def test_jobs_are_enqueued_in_the_callers_transaction(make_hub: MakeHub) -> None:
    hub = await make_hub()

    @hub.operation("do")
    async def do(call: Call) -> None: ...

    async def rolled_back() -> None:
        async with hub._app.store.transaction() as transaction:
            await hub.enqueue("do", {}, connection=transaction.connection)
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await rolled_back()
    assert (await hub.stats())["pending"] == 0


async def test_what_starts_with_a_worker_is_done_once(make_hub: MakeHub, service: Service) -> None:
    hubs = [await make_hub() for _ in range(2)]
    for hub in hubs:

        @hub.on_start
        async def ensure(call: Call) -> None:
            await call.post("/properties")

        (starter,) = hub._app.engine.starters
        await starter()
    app = hubs[0]._app
    (job,) = (await app.jobs(type="crm.ensure")).jobs
    assert (job.available_at - job.created_at).total_seconds() == pytest.approx(15, abs=0.5)
    assert service.asked == []
    off = await make_hub(disabled="off")
    off.on_start(ensure)
    assert (off._app.engine.warmers, off._app.engine.starters) == ([], [])
