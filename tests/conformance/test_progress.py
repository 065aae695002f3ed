"""Progress of a running job, reported only by its owner."""

from __future__ import annotations

import pytest

from conformance.builders import ANN, BEN, put, put_and_take, put_many, record, settle, take
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.records import Outcome, Progress, Status


async def test_progress_is_shown(store: Store) -> None:
    claimed = await put_and_take(store)
    assert await store.progress(ANN, [Progress(claimed.id, claimed.lease, 40, "reading żółw")]) == []
    found = await record(store, claimed.id)
    assert (found.progress, found.message, found.status) == (40, "reading żółw", Status.PROCESSING)


@pytest.mark.parametrize("percent", [0, 100])
async def test_progress_may_be_none_or_all(store: Store, percent: int) -> None:
    claimed = await put_and_take(store)
    await store.progress(ANN, [Progress(claimed.id, claimed.lease, percent, None)])
    assert (await record(store, claimed.id)).progress == percent


async def test_the_last_report_stands(store: Store) -> None:
    claimed = await put_and_take(store)
    for percent in (10, 80, 30):
        await store.progress(ANN, [Progress(claimed.id, claimed.lease, percent, f"at {percent}")])
    found = await record(store, claimed.id)
    assert (found.progress, found.message) == (30, "at 30")


async def test_reports_of_many_jobs_go_in_one_call(store: Store) -> None:
    await put_many(store, 3)
    claims = await store.claim("default", ANN, 3)
    reports = [Progress(claimed.id, claimed.lease, 10 * place, str(place)) for place, claimed in enumerate(claims)]
    assert await store.progress(ANN, reports) == []
    assert [(await record(store, claimed.id)).progress for claimed in claims] == [0, 10, 20]


async def test_no_report_does_nothing(store: Store) -> None:
    assert await store.progress(ANN, []) == []


async def test_a_superseded_lease_cannot_report(store: Store, clock: FakeClock) -> None:
    old = await put_and_take(store, ANN)
    clock.advance(31)
    await store.rescue(10, {}, str)
    new = await take(store, BEN)
    await store.progress(BEN, [Progress(new.id, new.lease, 5, "new")])
    assert await store.progress(ANN, [Progress(old.id, old.lease, 99, "old")]) == [old.id]
    found = await record(store, old.id)
    assert (found.progress, found.message) == (5, "new")


async def test_another_owner_cannot_report(store: Store) -> None:
    claimed = await put_and_take(store)
    assert await store.progress(BEN, [Progress(claimed.id, claimed.lease, 99, "x")]) == [claimed.id]
    assert (await record(store, claimed.id)).progress is None


async def test_a_job_that_does_not_run_has_no_progress_to_report(store: Store) -> None:
    waiting = await put(store, queue="elsewhere")
    done = await put_and_take(store)
    await settle(store, done)
    reports = [Progress(waiting, 0, 1, None), Progress(done.id, done.lease, 1, None)]
    assert sorted(await store.progress(ANN, reports)) == sorted([waiting, done.id])


async def test_lost_reports_do_not_stop_the_others(store: Store) -> None:
    await put_many(store, 2)
    first, second = await store.claim("default", ANN, 2)
    reports = [Progress(first.id, first.lease + 1, 50, None), Progress(second.id, second.lease, 60, None)]
    assert await store.progress(ANN, reports) == [first.id]
    assert (await record(store, second.id)).progress == 60


async def test_a_new_attempt_starts_without_progress(store: Store) -> None:
    claimed = await put_and_take(store)
    await store.progress(ANN, [Progress(claimed.id, claimed.lease, 70, "almost")])
    await settle(store, claimed, Outcome.RETRY)
    await take(store)
    found = await record(store, claimed.id)
    assert (found.progress, found.message) == (None, None)


async def test_a_report_does_not_keep_the_lease(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    clock.advance(20)
    await store.progress(ANN, [Progress(claimed.id, claimed.lease, 70, None)])
    clock.advance(11)
    assert [rescued.job_id for rescued in await store.rescue(10, {}, str)] == [claimed.id]


@pytest.mark.parametrize("text", ["before\x00after", "file \udcff.csv"], ids=["nul", "surrogate"])
async def test_a_message_that_no_database_takes_does_not_stop_the_report(store: Store, text: str) -> None:
    claimed = await put_and_take(store)
    assert await store.progress(ANN, [Progress(claimed.id, claimed.lease, 70, text)]) == []
    assert (await record(store, claimed.id)).progress == 70
