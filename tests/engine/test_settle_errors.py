"""Store errors during settlement change no outcome; a refused value changes no more than it must."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from conformance.builders import ANN, put_many
from conformance.stores import Rig
from engine.conftest import MakeApp
from engine.running import Log, drain, record, soon, working
from engine.sabotage import POISON, address, refusing_values, troubles
from engine.watched import WatchedStore
from rowlock import Job, JobCancelled, Permanent, Retry, Rowlock, Snooze, Status
from rowlock.jobs.worker.settler import Settler
from rowlock.observe import logs
from rowlock.storage.contract import Store
from rowlock.storage.records import Outcome, Settlement
from rowlock.storage.reliability import FailureFilter

WAYS = {
    "succeed": (Status.SUCCEEDED, 1, None),
    "retry": (Status.QUEUED, 1, "later"),
    "snooze": (Status.QUEUED, 0, "asleep"),
    "cancel": (Status.CANCELLED, 1, "JobCancelled: enough"),
    "fail": (Status.FAILED, 1, "never"),
}
"""How a handler ends -> status, attempts and error of its job."""


def end(how: str, extra: str = "") -> str:
    match how:
        case "retry":
            raise Retry(f"later{extra}", after=60)
        case "snooze":
            raise Snooze(60, f"asleep{extra}")
        case "cancel":
            raise JobCancelled(f"enough{extra}")
        case "fail":
            raise Permanent(f"never{extra}")
    return f"fine{extra}"


async def settled(app: Rowlock, job_ids: list[str]) -> None:
    while Status.PROCESSING in [(await record(app, job_id)).status for job_id in job_ids]:
        await asyncio.sleep(0.01)


@pytest.mark.every_store
async def test_no_trouble_of_the_store_changes_how_an_attempt_ends(make_app: MakeApp, rig: Rig, log: Log) -> None:
    plain_url, rig.url = rig.url, address(rig)
    app = await make_app(concurrency=8)
    rig.url = plain_url
    entered, release, ran = asyncio.Semaphore(0), asyncio.Event(), Counter[str]()

    @app.job("a")
    async def a(job: Job, how: str) -> str:
        ran[job.id] += 1
        entered.release()
        await release.wait()
        return end(how)

    async with working(app):
        for name, trouble in troubles(rig, app.store).items():
            release.clear()
            receipts = {how: await a.enqueue(how=how) for how in WAYS}
            for _ in WAYS:
                await soon(entered.acquire())
            async with trouble():
                release.set()
                await soon(app.store.next("settle failed"))
            await soon(settled(app, [receipt.job_id for receipt in receipts.values()]))
            for how, receipt in receipts.items():
                after = await record(app, receipt.job_id)
                assert (after.status, after.attempts, after.error) == WAYS[how], f"{how} under {name}"
    assert set(ran.values()) == {1}
    assert log.of("settle.refused") == log.of("lease.lost") == []


@pytest.mark.every_store
@pytest.mark.parametrize("failures_too", [False, True], ids=["values", "failure_records"])
async def test_a_refused_value_is_left_out_and_the_outcome_stays(
    app: Rowlock, rig: Rig, log: Log, failures_too: bool
) -> None:
    ran = Counter[str]()

    @app.job("a")
    async def a(job: Job, how: str, extra: str = "") -> str:
        ran[job.id] += 1
        return end(how, extra)

    with refusing_values(rig, failures_too=failures_too):
        bad = {how: await a.enqueue(how=how, extra=f" {POISON}") for how in WAYS}
        good = {how: await a.enqueue(how=how) for how in WAYS}
        await drain(app)
        for how, (status, attempts, error) in WAYS.items():
            after = await record(app, bad[how].job_id)
            assert after.status is (Status.FAILED if how == "succeed" else status)
            assert after.attempts == attempts
            assert after.result is None
            refused = "result" if how == "succeed" else "error"
            assert after.error == f"the store refused the job's {refused}: see settle.refused in the worker's log"
            fine = await record(app, good[how].job_id)
            assert (fine.status, fine.attempts) == (status, attempts)
            if not failures_too:
                assert fine.error == error
    assert set(ran.values()) == {1}, "a settlement that was refused twice is not given up"
    failures = (await app.store.failures(FailureFilter(), 100)).failures
    expected = [] if failures_too else ["succeed", "retry", "fail"]
    assert sorted(f.job_id for f in failures if f.job_id in {r.job_id for r in bad.values()}) == sorted(
        bad[how].job_id for how in expected
    )
    assert log.of("job.released") == [] or all(line.get("reason") for line in log.of("job.released"))
    assert "the response to its claim was lost" not in log.text


@pytest.mark.every_store
async def test_one_refused_settlement_among_thousands_costs_a_few_batches(
    make_app: MakeApp, store: Store, rig: Rig
) -> None:
    number, most = 3_000, 1_000
    app = await make_app(settle_max=most)
    await put_many(store, number)
    claimed = await store.claim("default", ANN, number)
    while len(claimed) < number:
        claimed += await store.claim("default", ANN, number)
    settler = Settler(app.engine, ANN, logs.get(), lambda batch: None)
    for place, job in enumerate(claimed):
        result = f'"{POISON}"' if place == 1_234 else '"fine"'
        settler.add(Settlement(job.id, job.lease, Outcome.SUCCEEDED, result=result, type=job.type, queue="default"))
    with refusing_values(rig):
        settling = asyncio.create_task(settler.run())
        await soon(settler.flushed())
        settling.cancel()
    sizes = [len(batch) for _, batch in app.store.arguments["settle"]]
    assert len(sizes) <= 3 + 2 * 10 + 4, sizes
    assert sizes[-1] == most, "the size of the batches recovers"
    counts = await store.counts()
    assert (counts[Status.SUCCEEDED], counts[Status.FAILED]) == (number - 1, 1)


async def test_the_store_that_goes_on_refusing_a_batch_gets_smaller_ones_and_then_larger_ones_again(
    make_app: MakeApp, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, a full batch takes longer than the statement timeout."""
    monkeypatch.setattr("rowlock.jobs.worker.settler._RETRY_SECONDS", (0.0,))
    from rowlock import StoreError

    class Hasty(WatchedStore):
        longest = 10

        async def settle(self, owner: str, settlements: list[Settlement]) -> list[str]:
            sizes.append(len(settlements))
            if len(settlements) > self.longest:
                raise StoreError("canceling statement due to statement timeout")
            return await self.inner.settle(owner, settlements)

    sizes: list[int] = []
    hasty: Any = Hasty(store)
    await put_many(store, 300)
    claimed = await store.claim("default", ANN, 300)
    engine = replace((await make_app(settle_max=200)).engine, store=hasty)
    settler = Settler(engine, ANN, logs.get(), lambda batch: None)
    for job in claimed:
        settler.add(Settlement(job.id, job.lease, Outcome.SUCCEEDED, type=job.type, queue="default"))
    settling = asyncio.create_task(settler.run())
    while hasty.longest < 200:
        await asyncio.sleep(0)
        if [size for size in sizes if size <= 10]:
            hasty.longest = 200
    await soon(settler.flushed())
    settling.cancel()
    assert max(sizes[-3:]) > 50
    assert (await store.counts())[Status.SUCCEEDED] == 300


async def test_a_worker_whose_dead_jobs_cannot_be_described_is_cleaned_up_all_the_same() -> None:
    from rowlock.jobs.outcome import without_refused
    from rowlock.storage.records import Failed

    for outcome in (Outcome.FATAL, Outcome.CRASH, Outcome.RETRY, Outcome.RELEASE):
        bare = Settlement("j", 1, outcome, error=POISON, failure=Failed("f", "{}", POISON))
        while (shorter := without_refused(bare)) is not None:
            bare = shorter
        assert (bare.outcome, bare.failure) == (outcome, None)
        assert POISON not in str(bare)
        assert bare.error is not None
        assert bare.error.isascii()
