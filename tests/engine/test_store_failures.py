"""A store that is unavailable for a while: every loop continues, nothing is lost or settled twice."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from conformance.builders import BEN
from engine.conftest import MakeApp
from engine.running import Log, drain, record, soon, take_over, working
from rowlock import (
    FakeClock,
    Job,
    Permanent,
    RateLimited,
    Retry,
    Rowlock,
    Snooze,
    Status,
    StoreUnavailable,
    ValueRefused,
)
from rowlock.clock import StoreClock
from rowlock.errors import StoreError
from rowlock.jobs.worker.maintenance import Maintenance
from rowlock.storage.contract import Store
from rowlock.storage.records import Settlement


@pytest.mark.parametrize("fault", ["refuse", "lose_reply"])
@pytest.mark.every_store
async def test_a_settlement_is_repeated_until_it_is_recorded_and_counts_once(
    app: Rowlock, clock: FakeClock, log: Log, fault: str
) -> None:
    ran: Counter[str] = Counter()

    @app.job("a")
    async def a(job: Job, how: str) -> str:
        ran[job.id] += 1
        match how:
            case "retry":
                raise Retry(after=60)
            case "dead":
                raise Permanent("no")
            case "snooze":
                raise Snooze(60)
        return how

    receipts = {how: await a.enqueue(how=how) for how in ("fine", "retry", "dead", "snooze")}
    getattr(app.store, fault)("settle", 2)
    await drain(app)
    after = {how: await record(app, receipt.job_id) for how, receipt in receipts.items()}
    assert (after["fine"].status, after["fine"].result, after["fine"].attempts) == (Status.SUCCEEDED, '"fine"', 1)
    assert (after["retry"].status, after["retry"].attempts) == (Status.QUEUED, 1)
    assert (after["dead"].status, after["dead"].error) == (Status.FAILED, "no")
    assert (after["snooze"].status, after["snooze"].attempts) == (Status.QUEUED, 0)
    assert set(ran.values()) == {1}
    assert log.of("lease.lost") == []
    assert len(log.of("settle.delayed")) == 2
    told = [line["job"] for event in ("job.retried", "job.failed", "job.released") for line in log.of(event)]
    assert sorted(told) == sorted(receipts[how].job_id for how in ("retry", "dead", "snooze"))
    assert [line["jobs"] for line in log.of("job.succeeded")] == [[receipts["fine"].job_id]]


async def test_an_outcome_that_the_store_refuses_harms_its_own_job_only(app: Rowlock, log: Log) -> None:
    @app.job("a")
    async def a(job: Job, number: int) -> str:
        return "poison" if number == 3 else "fine"

    settle = app.store.inner.settle

    async def picky(owner: str, settlements: list[Settlement]) -> list[str]:
        if any(settlement.result == '"poison"' for settlement in settlements):
            raise ValueRefused("this result is not to my taste")
        return await settle(owner, settlements)

    app.store.inner.settle = picky
    receipts = [await a.enqueue(number=number) for number in range(8)]
    await drain(app)
    for number, receipt in enumerate(receipts):
        after = await record(app, receipt.job_id)
        assert after.status is (Status.FAILED if number == 3 else Status.SUCCEEDED)
        assert after.attempts == 1
    assert [line["job"] for line in log.of("settle.refused")] == [receipts[3].job_id]
    assert [line["job"] for line in log.of("job.failed")] == [receipts[3].job_id]


@pytest.mark.every_store
async def test_a_lost_reply_does_not_hide_a_lease_that_was_really_lost(
    make_app: MakeApp, store: Store, clock: FakeClock, log: Log
) -> None:
    app = await make_app()
    entered, release = asyncio.Event(), asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> None:
        entered.set()
        await release.wait()

    job_id = (await a.enqueue()).job_id
    async with working(app):
        await soon(entered.wait())
        claimed = await take_over(app, store, clock, BEN)
        app.store.refuse("settle")
        release.set()
        await soon(app.store.next("settle"))
    assert [line["jobs"] for line in log.of("lease.lost")] == [[job_id]]
    assert log.of("job.succeeded") == []
    during = await record(app, job_id)
    assert (during.status, during.lease) == (Status.PROCESSING, claimed.lease)


async def test_claiming_goes_on_when_the_store_is_back(app: Rowlock, log: Log) -> None:
    ran = asyncio.Event()
    app.job("a")(lambda job: loop.call_soon_threadsafe(ran.set))
    loop = asyncio.get_running_loop()
    app.store.refuse("claim", 2)
    await app.enqueue("a")
    async with working(app):
        await soon(ran.wait())
    delayed = log.of("claim.delayed")
    assert [line["reason"] for line in delayed] == ["the database is away"] * 2
    assert delayed[0]["queue"] == "default"


@pytest.mark.every_store
async def test_a_job_whose_claim_had_no_answer_is_not_lost(make_app: MakeApp) -> None:
    app = await make_app(heartbeat_ms=50, rescue_ms=50, poll_ms=100, clock=StoreClock())
    app.limit("api", rate=1, per_seconds=3_600)
    ran = asyncio.Event()

    @app.job("a", limit="api")  # the lost claim did not start it: its limit's rate is unchanged
    async def a(job: Job) -> None:
        ran.set()

    async with working(app):
        await soon(app.store.next("peek"))
        app.store.lose_reply("claim", such=bool)
        job_id = (await a.enqueue()).job_id
        await soon(ran.wait())  # heartbeats renew its lease: an unnoticed claim would hold it until the worker ends
    after = await record(app, job_id)
    assert (after.status, after.lease) == (Status.SUCCEEDED, 2)


@pytest.mark.every_store
async def test_heartbeats_rescue_and_polling_go_on_when_the_store_is_back(
    make_app: MakeApp, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Maintenance, "_wait_for_others", lambda maintenance: None)  # after each failure for two seconds
    app = await make_app(heartbeat_ms=20, rescue_ms=20, poll_ms=20)
    for verb in ("rescue", "peek"):
        app.store.refuse(verb, 3)
    async with working(app):
        await soon(app.store.next("beat"))  # the first heartbeat registers the worker
        app.store.refuse("beat", 3)
        for verb in ("beat", "rescue", "peek"):
            await soon(app.store.next(verb))
        assert await app.store.workers() != []
    assert {line["chore"] for line in log.of("chore.delayed")} == {"beat", "rescue"}


async def test_a_handler_goes_on_while_the_store_is_away(make_app: MakeApp, store: Store) -> None:
    app = await make_app(heartbeat_ms=20)
    entered, release = asyncio.Event(), asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> str:
        entered.set()
        await release.wait()
        return "cancelled" if job.cancelled else "undisturbed"

    job_id = (await a.enqueue()).job_id
    async with working(app):
        await soon(entered.wait())
        verbs = ("beat", "settle", "peek", "claim", "rescue")
        for verb in verbs:
            app.store.refuse(verb, 1_000)
        for _ in range(3):
            await soon(app.store.next("beat refused"))
        release.set()
        await soon(app.store.next("settle refused"))
        for verb in verbs:
            app.store.mend(verb)
        await soon(app.store.next("settle"))
    assert (await record(app, job_id)).result == '"undisturbed"'


async def test_a_worker_whose_store_cannot_be_warmed_runs_jobs(app: Rowlock) -> None:
    @app.job("a")
    async def a(job: Job) -> None: ...

    job_id = (await a.enqueue()).job_id
    app.store.refuse("warm", error=StoreError("out of memory"))
    async with working(app):
        await soon(app.store.next("settle"))
    assert (await record(app, job_id)).status is Status.SUCCEEDED


async def test_a_pause_of_a_key_is_repeated_with_its_settlement(app: Rowlock, clock: FakeClock) -> None:
    app.limit("api", concurrency=5)
    ran = []

    @app.job("a", limit="api")
    async def a(job: Job) -> None:
        ran.append(job.id)
        if len(ran) == 1:
            raise RateLimited("api", seconds=60)

    app.store.refuse("pause_key", 2)
    await a.enqueue()
    await drain(app)
    await a.enqueue()
    await drain(app)
    assert len(ran) == 1
    clock.advance(60)
    await drain(app)
    assert len(ran) == 3


async def test_a_worker_that_must_stop_while_the_store_is_away_stops_all_the_same(
    make_app: MakeApp, store: Store, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.jobs.worker.worker._SETTLE_SECONDS", 0.1)
    app = await make_app(grace_seconds=0.05)
    entered, release = asyncio.Event(), asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> None:
        entered.set()
        await release.wait()

    job_id = (await a.enqueue()).job_id
    async with working(app):
        await soon(entered.wait())
        for verb in ("settle", "retire", "beat", "claim", "peek"):
            app.store.refuse(verb, 1_000)
        release.set()
    assert (await record(app, job_id)).status is Status.PROCESSING, "its lease runs out by itself"
    (line,) = log.of("worker.unsettled")
    assert line["reason"]


async def test_a_store_that_is_away_at_the_start_is_said_so(app: Rowlock) -> None:
    app.store.refuse("check_schema")
    with pytest.raises(StoreUnavailable, match="the database is away"):
        await drain(app)


@pytest.mark.every_store
async def test_a_loss_of_hints_is_noticed_and_listening_begins_again(make_app: MakeApp, log: Log) -> None:
    app = await make_app(poll_ms=86_400_000)
    ran = asyncio.Event()

    @app.job("a")
    async def a(job: Job) -> None:
        ran.set()

    app.store.refuse("listen")
    async with working(app):
        await soon(app.store.next("hint of queue"))  # from the second attempt
        await a.enqueue()
        await soon(ran.wait())
    (line,) = log.of("wake.unavailable")
    assert line["reason"] == "the database is away"
