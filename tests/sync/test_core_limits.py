"""Rate limits: enforced before each call, for all processes together; a reached limit costs no attempt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import pytest

from engine.running import Log, drain, record, soon, working
from rowlock import Answer, Backoff, Call, Calls, FakeClock, Integration, RateLimit, Rowlock, Status, Update
from rowlock.storage.calls import CallLimit
from rowlock.sync.local_limiter import LocalLimiter
from rowlock.sync.rate_limiter import Closed, RateLimiter
from rowlock.sync.response import wait_of
from sync.conftest import MakeHub, impatient
from sync.service import Reply, Service


def most_in(service: Service, seconds: float, part: str = "") -> int:
    """Return the maximum number of requests in any window of this length, by the service's clock."""
    times = sorted(asked.at for asked in service.asked if part in asked.path)
    return max(sum(start <= at < start + seconds for at in times) for start in times)


def endpoint_of(hub: Integration, calls: int = 1) -> None:
    @hub.operation("do")
    async def do(call: Call) -> None:
        for _ in range(calls):
            await call.post("/things")


async def statuses(app: Rowlock) -> dict[Status, int]:
    return {status: count for status, count in (await app.store.counts()).items() if count}


@pytest.mark.every_store
async def test_two_workers_together_stay_within_the_limit(make_hub: MakeHub, service: Service) -> None:
    hubs = [await make_hub(limits=[RateLimit(4, per_seconds=0.4)]) for _ in range(2)]
    for hub in hubs:
        endpoint_of(hub, calls=3)
    for _ in range(4):
        await hubs[0].enqueue("do", {})
    await asyncio.gather(*(drain(hub._app, *hub.queues) for hub in hubs))
    await drain(hubs[0]._app, *hubs[0].queues)
    assert await statuses(hubs[0]._app) == {Status.SUCCEEDED: 4}
    assert len(service.asked) == 12
    assert most_in(service, 0.4) <= 4


@pytest.mark.every_store
async def test_a_group_counts_for_its_own_limit_as_well_and_holds_nobody_else_up(
    make_hub: MakeHub, service: Service, clock: FakeClock
) -> None:
    hub = await make_hub(
        clock=clock,
        limits=[RateLimit(100, per_seconds=1), RateLimit(1, per_seconds=3_600, group="search")],
        concurrency=5,
    )

    @hub.operation("search")
    async def search(call: Call) -> None:
        await call.post("/search", group="search")

    @hub.operation("other")
    async def other(call: Call) -> None:
        await call.post("/other", group="nobody declared this one")

    for _ in range(3):
        await hub.enqueue("search", {})
    for _ in range(10):
        await hub.enqueue("other", {})
    for searches in (1, 2, 3):
        await drain(hub._app, *hub.queues)
        assert service.paths().count("POST /search") == searches, "one each hour"
        assert service.paths().count("POST /other") == 10, "before the hour is over"
        clock.advance(3_700)
    assert await statuses(hub._app) == {Status.SUCCEEDED: 13}
    assert {job.attempts for job in (await hub._app.jobs()).jobs} == {1}


async def test_a_limit_without_a_word_rests_longer_and_longer_for_all(
    make_hub: MakeHub, service: Service, log: Log
) -> None:
    hub = await make_hub(rest_seconds=(0.1, 0.25), limits=[RateLimit(100)])
    service.script.extend([Reply(429), Reply(400, {"category": "RATELIMIT_EXCEEDED"}), Reply(429), Reply(201)])
    endpoint_of(hub)
    receipt = await hub.enqueue("do", {})
    await drain(hub._app, *hub.queues)
    after = await record(hub._app, receipt.job_id)
    assert (after.status, after.attempts) == (Status.SUCCEEDED, 1)
    gaps = [second.at - first.at for first, second in pairwise(service.asked)]
    assert all(gap >= wait for gap, wait in zip(gaps, [0.1, 0.2, 0.25], strict=True)), gaps
    assert [line["seconds"] for line in log.of("sync.rest")] == [0.1, 0.2, 0.25]


@pytest.mark.every_store
async def test_a_rest_that_the_service_asks_for_holds_for_the_whole_fleet(make_hub: MakeHub, service: Service) -> None:
    hubs = [await make_hub() for _ in range(2)]
    for hub in hubs:
        endpoint_of(hub)
    service.script.append(Reply(429, headers={"retry-after": "0.6"}))
    await hubs[0].enqueue("do", {})
    rests = hubs[0]._app.store.next("rest_calls")
    async with working(hubs[0]._app, *hubs[0].queues):
        await soon(rests)
        await hubs[1].enqueue("do", {})
        async with working(hubs[1]._app, *hubs[1].queues):
            await service.came(3)
    first, *others = service.asked
    assert all(later.at - first.at >= 0.6 for later in others)


async def test_after_five_retries_the_job_goes_back_with_its_attempt(
    make_hub: MakeHub, service: Service, log: Log
) -> None:
    hub = await make_hub(rest_seconds=(0.01, 0.02), limits=[RateLimit(100)])
    service.answer = lambda asked: Reply(429, {"message": "slow down"})
    endpoint_of(hub)
    receipt = await hub.enqueue("do", {})
    app = hub._app
    worker = asyncio.create_task(app.work(*hub.queues, drain=True))
    await service.came(6)
    await soon(worker)
    after = await record(app, receipt.job_id)
    assert (after.status, after.attempts) == (Status.QUEUED, 0)
    assert "limited 6 times" in (after.error or "")
    assert (await app.failures()).failures == []


async def test_an_attempt_rests_for_so_long_in_all_its_calls_together(
    make_hub: MakeHub, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.sync.client.RESTS_SECONDS_MAX", 0.5)
    hub = await make_hub(limits=[RateLimit(100)])
    limited = Reply(429, headers={"retry-after": "0.2"})
    service.script.extend([limited, Reply(), limited, Reply(), limited, Reply(), Reply(), Reply()])
    endpoint_of(hub, calls=3)
    receipt = await hub.enqueue("do", {})
    app = hub._app
    settled = app.store.next("settle")
    async with working(app, *hub.queues), asyncio.timeout(60):
        await settled
        again = app.store.next("settle")
        assert len(service.asked) == 5
        after = await record(app, receipt.job_id)
        assert (after.status, after.attempts) == (Status.QUEUED, 0)
        assert "POST /things: limited 1 times" in (after.error or "")
        await again
    assert (await record(app, receipt.job_id)).status is Status.SUCCEEDED
    assert len(service.asked) == 8, "the next attempt may rest anew"


async def test_a_storm_costs_no_attempt(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(rest_seconds=(0.02, 0.05), limits=[RateLimit(1_000)])
    service.answer = lambda asked: Reply(429 if len(service.asked) <= 70 else 200)  # more than six for each job
    endpoint_of(hub)
    receipts = [await hub.enqueue("do", {}) for _ in range(10)]
    app = hub._app
    async with working(app, *hub.queues), asyncio.timeout(60):
        settled = app.store.next("settle")  # before the look: the last may come during it
        while await statuses(app) != {Status.SUCCEEDED: 10}:
            await settled
            settled = app.store.next("settle")
    assert {(await record(app, receipt.job_id)).attempts for receipt in receipts} == {1}
    assert (await app.failures()).failures == []


@pytest.mark.every_store
@pytest.mark.parametrize("batch", [None, 10])
async def test_a_job_that_is_limited_for_ever_dies_in_the_end(
    make_hub: MakeHub, service: Service, batch: int | None
) -> None:
    retry = Backoff(max_attempts=2, base_seconds=0.01, max_seconds=0.02)
    hub = await make_hub(
        {"sync_limited_rounds": 2}, rest_seconds=(0.01, 0.02), limits=[RateLimit(1_000)], retry=retry, poll_seconds=0.1
    )
    service.answer = lambda asked: Reply(429, {"message": "slow down"})
    if batch is None:
        endpoint_of(hub)
    else:

        @hub.operation("do", batch=batch, about="{id}")
        async def do(calls: Calls, updates: list[Update]) -> None:
            await calls.post("/things")

    receipt = await hub.enqueue("do", {} if batch is None else {"id": "1", "properties": {"a": 1}})
    app = hub._app
    async with working(app, *hub.queues), asyncio.timeout(60):
        for lives in (1, 2):
            settled = app.store.next("settle")
            while (after := await record(app, receipt.job_id)).status is not Status.FAILED:
                await settled
                settled = app.store.next("settle")
            assert after.attempts == 2
            assert "limited 6 times" in (after.error or "")
            assert "still rate limited after 2 releases" in (after.error or "")
            assert len(service.asked) == lives * 4 * 6, "two rounds for nothing, then two attempts"
            if lives == 1:
                await app.retry(receipt.job_id)


@pytest.mark.parametrize(
    ("message", "limited"),
    [
        ("RATELIMIT_EXCEEDED", True),
        ("Request failed (RATELIMIT_EXCEEDED): you have reached your limit", True),
        ("error: RATELIMIT_EXCEEDED.", True),
        ('Property "RATELIMIT_EXCEEDED" does not exist', False),
        ("RATELIMIT_EXCEEDED_COUNT is no property", False),
    ],
)
def test_a_400_may_say_in_its_message_that_it_is_a_limit(message: str, limited: bool) -> None:
    assert (wait_of(Answer(400, {"status": "error", "message": message})) is not None) is limited
    assert wait_of(Answer(404, {"message": message})) is None


@pytest.mark.every_store
async def test_what_must_wait_for_long_is_not_waited_for_here(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=[RateLimit(1_000, per_seconds=1), RateLimit(2, per_seconds=3_600)])
    endpoint_of(hub)
    receipts = [await hub.enqueue("do", {}) for _ in range(4)]
    app = hub._app
    await drain(app, *hub.queues)
    after = [await record(app, receipt.job_id) for receipt in receipts]
    assert sorted(job.status for job in after) == sorted([Status.SUCCEEDED] * 2 + [Status.QUEUED] * 2)
    for job in after:
        if job.status is Status.QUEUED:
            assert job.attempts == 0
    assert len(service.asked) == 2
    await hub.enqueue("do", {})
    await drain(app, *hub.queues)
    assert len(service.asked) == 2, "the key is paused in the claim"


async def test_a_budget_that_an_answer_says_is_used_up_is_believed(make_hub: MakeHub, service: Service) -> None:
    def spent(answer: Answer) -> float | None:
        return 0.5 if answer.headers.get("remaining") == "0" else None

    hub = await make_hub(spent=spent, concurrency=1)
    service.script.append(Reply(200, headers={"remaining": "0"}))
    endpoint_of(hub)
    for _ in range(2):
        await hub.enqueue("do", {})
    await drain(hub._app, *hub.queues)
    first, second = service.asked
    assert second.at - first.at >= 0.5


async def test_a_permit_of_a_call_that_timed_out_runs_out_by_itself(
    make_hub: MakeHub, service: Service, clock: FakeClock
) -> None:
    """It may still arrive."""
    hub = await make_hub(clock=clock, limits=[RateLimit(5, per_seconds=0.1)])
    service.script.append(Reply(wait=asyncio.Event()))
    endpoint_of(hub)
    await hub.enqueue("do", {})
    with impatient():
        await drain(hub._app, *hub.queues)
    clock.advance(39.9)
    assert (await hub.monitor())["limits"][0]["inUse"] == 1
    clock.advance(0.3)  # 30 s for a call and 10 s around it, then the window
    assert (await hub.monitor())["limits"][0]["inUse"] == 0


async def test_companies_have_accounts_limits_and_tokens_of_their_own(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(
        limits=[RateLimit(1, per_seconds=3_600)],
        account=lambda company: company or "none",
        token=lambda company: f"token-of-{company}",
    )
    endpoint_of(hub)
    for company in ("acme", "acme", "bolt"):
        await hub.enqueue("do", {}, company_id=company)
    await drain(hub._app, *hub.queues)
    assert sorted(asked.headers["authorization"] for asked in service.asked) == [
        "Bearer token-of-acme",
        "Bearer token-of-bolt",
    ]
    await hub.enqueue("do", {}, company_id="cube")
    await drain(hub._app, *hub.queues)
    assert len(service.asked) == 3, "one that is out of calls does not hold up the others"


async def test_companies_that_share_an_account_keep_their_own_tokens(make_hub: MakeHub, service: Service) -> None:
    tokens = {"acme": "token-of-acme", "bolt": "token-of-bolt"}
    hub = await make_hub(
        limits=[RateLimit(100)], account=lambda _: "shared", token=lambda company: tokens[company or ""]
    )
    go_on = asyncio.Event()

    @hub.operation("do")
    async def do(call: Call) -> None:
        company = call.job.company_id
        await call.post(f"/{company}/first")
        await go_on.wait()
        await call.post(f"/{company}/second")

    @hub.operation("many", about="{name}", batch=10)
    async def many(calls: Calls, updates: list[Update]) -> None:
        await calls.post(f"/{calls.jobs[0].company_id}/many{len(updates)}")

    for company in tokens:
        await hub.enqueue("do", {}, company_id=company)
        await hub.enqueue("many", {"name": company, "properties": {"p": 1}}, company_id=company)
    async with working(hub._app, *hub.queues):
        await service.came(4)
        tokens["acme"] = "token-of-tomorrow"  # an attempt ends with that which it began with
        go_on.set()
        await service.came(6)
    sent = {asked.path: asked.headers["authorization"] for asked in service.asked}
    assert sent == {
        f"/{company}/{what}": f"Bearer token-of-{company}"
        for company in tokens
        for what in ("first", "second", "many1")
    }


async def test_those_who_wait_do_not_all_ask_the_store(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=[RateLimit(1, per_seconds=0.15)], concurrency=5)
    endpoint_of(hub)
    for _ in range(5):
        await hub.enqueue("do", {})
    app = hub._app
    await drain(app, *hub.queues)
    assert len(service.asked) == 5
    assert app.store.calls["take_call"] <= 5 + 2 * 5


class TestAlone:
    """Without a store, a process keeps the limits on its own."""

    LIMITS = (CallLimit("a", 2, 0.2),)

    @pytest.fixture
    def elapse(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
        """A clock that stands still between two calls of this."""
        now = 1_000.0

        def pass_by(seconds: float) -> None:
            nonlocal now
            now += seconds

        monkeypatch.setattr("rowlock.sync.local_limiter.time", SimpleNamespace(monotonic=lambda: now))
        return pass_by

    @pytest.mark.usefixtures("elapse")
    async def test_it_counts_as_a_store_does(self) -> None:
        alone = LocalLimiter()
        assert [await alone.take_call(str(n), self.LIMITS, 0.0) for n in range(2)] == [0.0, 0.0]
        assert await alone.take_call("2", self.LIMITS, 0.0) == pytest.approx(0.2)
        await alone.end_call("1", made=False)
        assert await alone.take_call("2", self.LIMITS, 0.0) == 0.0
        await alone.rest_calls("a", 5.0)
        assert await alone.take_call("3", self.LIMITS, 0.0) == pytest.approx(5.0)

    @pytest.mark.usefixtures("elapse")
    async def test_one_that_is_under_way_counts_until_it_is_over(self) -> None:
        alone = LocalLimiter()
        for number in range(2):
            await alone.take_call(str(number), self.LIMITS, 60.0)
        assert await alone.take_call("2", self.LIMITS, 60.0) == pytest.approx(60.2)
        await alone.end_call("0")
        assert await alone.take_call("2", self.LIMITS, 60.0) == pytest.approx(0.2)

    async def test_more_than_it_counts_is_not_allowed_and_many_cost_no_more_than_few(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("rowlock.sync.local_limiter._CALLS_MAX", 5_000)
        alone, limits = LocalLimiter(), [CallLimit("a", 250_000, 86_400.0), CallLimit("b", 100, 0.000_001)]
        began = time.process_time()
        for number in range(5_000):
            assert await alone.take_call(str(number), limits, 60.0) == 0.0
            await alone.end_call(str(number))
        assert time.process_time() - began < 2.0, "each looked at all others"
        assert 86_000 < await alone.take_call("more", limits, 60.0) <= 86_400

    async def test_one_that_was_never_told_to_have_ended_counts_from_its_time_limit(
        self, elapse: Callable[[float], None]
    ) -> None:
        alone = LocalLimiter()
        await alone.take_call("0", self.LIMITS, 0.1)
        elapse(0.15)
        assert await alone.take_call("1", self.LIMITS, 60.0) == 0.0
        assert await alone.take_call("2", self.LIMITS, 60.0) == pytest.approx(0.15)
        elapse(0.16)
        assert await alone.take_call("2", self.LIMITS, 60.0) == 0.0

    async def test_a_gate_lets_through_in_order_and_says_when_it_is_closed(self) -> None:
        alone = LocalLimiter()
        gate = RateLimiter(alone, [CallLimit("a", 1, 0.05)], 0.0)
        order: list[int] = []

        async def one(number: int) -> None:
            await gate.permit(10.0)
            order.append(number)

        await asyncio.gather(*(one(number) for number in range(4)))
        assert order == [0, 1, 2, 3]
        await alone.rest_calls("a", 1_000.0)
        with pytest.raises(Closed) as closed:
            await gate.permit(1.0)
        assert 900 < closed.value.seconds <= 1_000

    async def test_who_stands_in_line_waits_no_longer_than_it_can(self) -> None:
        alone = LocalLimiter()
        gate = RateLimiter(alone, [CallLimit("a", 1, 0.3)], 0.0)
        await gate.permit(1.0)
        first = asyncio.create_task(gate.permit(60.0))
        await asyncio.sleep(0)
        with pytest.raises(Closed):
            await gate.permit(0.05)
        await first
