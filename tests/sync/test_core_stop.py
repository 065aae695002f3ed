"""Calls that are interrupted locally: by a cancellation, a deadline, a worker that stops or dies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.builders import BEN
from engine.conftest import MakeApp
from engine.running import Log, drain, record, soon, working
from engine.watched import ALWAYS
from rowlock import (
    Call,
    CallFailed,
    CallRefused,
    Calls,
    FakeClock,
    Integration,
    IntegrationDisabled,
    RateLimit,
    RateLimited,
    Retry,
    Rowlock,
    Status,
    Update,
)
from sync.conftest import MakeHub
from sync.service import Reply, Service

FAST = [RateLimit(1_000, per_seconds=0.1)]


def creator(hub: Integration, seen: list[bool] | None = None, **options: Any) -> None:
    """Creates a thing, after a look where an earlier attempt may have created it."""

    @hub.operation("create", about="{name}", **options)
    async def create(call: Call, name: str) -> str:
        if seen is not None:
            seen.append(call.uncertain)
        if call.uncertain and (await call.get(f"/things/{name}", accept={404})).ok:
            return "found"
        await call.post("/things", {"name": name})
        return "created"


async def holders(app: Rowlock, subject: str) -> bool:
    """Whether someone has it still."""
    return not await app.store.hold_subjects("crm:default", [subject], "a visitor", 0.001)


async def in_use(hub: Integration) -> int:
    return int((await hub.monitor())["limits"][0]["inUse"])


async def test_a_job_that_is_cancelled_in_the_middle_of_a_call_leaves_its_subject_held(
    make_hub: MakeHub, service: Service, clock: FakeClock
) -> None:
    """The call may still be under way, so its permit counts on, and nobody else calls about the same."""
    hub = await make_hub(clock=clock, limits=FAST, timeout_seconds=20)
    creator(hub)
    app = hub._app
    service.script.append(Reply(wait=asyncio.Event()))
    receipt = await hub.enqueue("create", {"name": "a"})
    async with working(app, *hub.queues):
        await service.came(1)
        settled = app.store.next("settle")
        await app.cancel(receipt.job_id)
        await soon(settled)
    assert (await record(app, receipt.job_id)).status is Status.CANCELLED
    assert await holders(app, "a")
    clock.advance(0.15)  # longer than the window of the limit
    assert await in_use(hub) == 1


async def test_one_that_is_cancelled_before_its_call_leaves_nothing(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=[RateLimit(1, per_seconds=30)], timeout_seconds=20)
    creator(hub)
    app = hub._app
    await hub.enqueue("create", {"name": "first"})
    async with working(app, *hub.queues):
        await service.came(1)
        at_the_gate = app.store.next("take_call", lambda wait: wait > 0)
        receipt = await hub.enqueue("create", {"name": "a"})  # not before: the two would race for the one call
        await soon(at_the_gate)
        assert await holders(app, "a")
        settled = app.store.next("settle")
        await app.cancel(receipt.job_id)
        await soon(settled)
    assert (await record(app, receipt.job_id)).status is Status.CANCELLED
    assert not await holders(app, "a")
    assert await in_use(hub) == 1, "that of the first"


async def test_a_worker_that_stops_gives_the_job_back_and_the_next_one_looks_first(
    make_hub: MakeHub, service: Service, clock: FakeClock
) -> None:
    seen: list[bool] = []
    hub, other = [await make_hub({"grace_seconds": 0.0}, clock=clock, limits=FAST) for _ in range(2)]
    for each in (hub, other):
        creator(each, seen)
    service.script.append(Reply(wait=asyncio.Event()))
    receipt = await hub.enqueue("create", {"name": "a"})
    async with working(hub._app, *hub.queues):
        await service.came(1)
    after = await record(other._app, receipt.job_id)
    assert (after.status, after.attempts) == (Status.QUEUED, 0)
    await drain(other._app, *other.queues)
    assert seen == [False], "the subject is held while the call may be under way"
    clock.advance(70)  # a hold lasts 62 s
    await drain(other._app, *other.queues)
    assert service.paths() == ["POST /things", "GET /things/a"]
    after = await record(other._app, receipt.job_id)
    assert (after.status, after.result) == (Status.SUCCEEDED, '"found"')
    assert seen == [False, True]


async def test_a_worker_that_stops_lets_a_call_end_in_time(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub({"grace_seconds": 10.0}, limits=FAST, timeout_seconds=20)
    creator(hub)
    leave = asyncio.Event()
    service.script.append(Reply(wait=leave))
    receipt = await hub.enqueue("create", {"name": "a"})
    async with working(hub._app, *hub.queues) as stop:
        await service.came(1)
        stop.set()
        leave.set()
    assert (await record(hub._app, receipt.job_id)).status is Status.SUCCEEDED
    assert not await holders(hub._app, "a")


async def test_a_deadline_ends_a_call_and_counts_as_a_failure(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=FAST, timeout_seconds=20)
    creator(hub, deadline_seconds=2)
    service.script.append(Reply(wait=asyncio.Event()))
    receipt = await hub.enqueue("create", {"name": "a"})
    await drain(hub._app, *hub.queues)
    assert len(service.asked) == 1
    after = await record(hub._app, receipt.job_id)
    assert (after.status, after.attempts) == (Status.QUEUED, 1)
    assert "deadline" in (after.error or "")
    assert await holders(hub._app, "a")


@pytest.mark.every_store
async def test_a_worker_that_lost_its_lease_does_not_settle_and_the_next_one_looks_first(
    make_hub: MakeHub, service: Service, clock: FakeClock
) -> None:
    """As after the death of a machine: its hold runs out, then its successor goes on."""
    seen: list[bool] = []
    hub = await make_hub(clock=clock, limits=FAST, visibility_seconds=30, rescue_delay_seconds=0)
    creator(hub, seen)
    app = hub._app
    receipt = await hub.enqueue("create", {"name": "a"})
    (claimed,) = await app.store.claim("crm", BEN, 1)
    assert await app.store.hold_subjects("crm:default", ["a"], f"{claimed.id}/{claimed.lease}", 62.0)
    assert not await app.store.rescue(10, {}, str)
    clock.advance(31)
    assert await app.store.rescue(10, {}, str)
    await drain(app, *hub.queues)
    assert seen == []
    clock.advance(40)
    await drain(app, *hub.queues)
    assert (await record(app, receipt.job_id)).status is Status.SUCCEEDED
    assert seen == [True]
    assert service.paths() == ["GET /things/a"]


@pytest.mark.every_store
async def test_a_permit_whose_answer_was_lost_is_given_back(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=[RateLimit(1, per_seconds=3_600)])
    creator(hub)
    app = hub._app
    app.store.lose_reply("take_call", 1)
    given_back = app.store.next("end_call")
    receipt = await hub.enqueue("create", {"name": "a"})
    await drain(app, *hub.queues)
    after = await record(app, receipt.job_id)
    assert (after.status, after.attempts, service.asked) == (Status.QUEUED, 0, [])
    await soon(given_back)
    assert await in_use(hub) == 0


async def test_a_call_whose_end_cannot_be_told_still_counts(
    make_hub: MakeHub, service: Service, clock: FakeClock
) -> None:
    hub = await make_hub(clock=clock, limits=FAST)
    creator(hub)
    app = hub._app
    app.store.refuse("end_call", ALWAYS)
    receipt = await hub.enqueue("create", {"name": "a"})
    await drain(app, *hub.queues)
    app.store.mend("end_call")
    assert (await record(app, receipt.job_id)).status is Status.SUCCEEDED
    clock.advance(0.15)  # longer than the window of the limit
    assert await in_use(hub) == 1


class TestResilient:
    """Without the queue: the work is done where it is asked for, limits kept by this process alone."""

    @pytest.fixture
    async def make_resilient(self, make_app: MakeApp, service: Service) -> Any:
        async def make(**options: Any) -> Integration:
            app = await make_app(clock=None, resilient=True)
            return app.integration("crm", base_url=service.url, **{"timeout_seconds": 30.0} | options)

        return make

    async def test_a_job_is_done_when_enqueue_returns_without_the_store(
        self, make_resilient: Any, service: Service
    ) -> None:
        hub = await make_resilient()
        creator(hub)

        @hub.operation("update", about="{email}", batch=100)
        async def update(calls: Calls, updates: list[Update]) -> None:
            await calls.post("/batch", [one.properties for one in updates])

        await hub.enqueue("create", {"name": "a"})
        await hub.enqueue("update", {"email": "a@x", "properties": {"p": 1}})
        await hub.enqueue_many("create", [{"name": "b"}, {"name": "c"}])
        assert service.paths() == ["POST /things", "POST /batch", "POST /things", "POST /things"]
        assert hub._app.store.calls == {}

    async def test_its_exception_is_the_callers(self, make_resilient: Any, service: Service, log: Log) -> None:
        hub = await make_resilient(rest_seconds=(0.01, 0.01), limits=[RateLimit(100)])
        creator(hub)

        @hub.operation("update", about="{email}", batch=100)
        async def update(calls: Calls, updates: list[Update]) -> list[Any]:
            await calls.post("/batch")
            return [Retry("not now")]

        service.script.extend([Reply(500), Reply(403), *[Reply(429)] * 6, Reply(400), Reply(200)])
        for error in (CallFailed, CallRefused, RateLimited):
            with pytest.raises(error):
                await hub.enqueue("create", {"name": "a"})
        for error in (CallFailed, Retry):
            with pytest.raises(error):
                await hub.enqueue("update", {"email": "a@x", "properties": {"p": 1}})
        assert hub._app.store.calls == {"now": 4, "add_failure": 4}  # all but the rate limit are recorded

    async def test_limits_are_kept_by_the_process_and_off_is_off(self, make_resilient: Any, service: Service) -> None:
        hub = await make_resilient(limits=[RateLimit(2, per_seconds=0.2)])
        creator(hub)
        for name in "abcd":
            await hub.enqueue("create", {"name": name})
        first, _, third, _ = service.asked
        assert third.at - first.at >= 0.2
        off = hub._app.integration("off", base_url=service.url, disabled="set OFF_TOKEN")
        creator(off)
        with pytest.raises(IntegrationDisabled):
            await off.enqueue("create", {"name": "a"})
