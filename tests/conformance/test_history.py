"""History: activity and lags per minute, and the jobs that run now."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from conformance.builders import ANN, BEN, near, put_and_end, put_and_fail, put_and_take, put_many, settle, take
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.overview import History
from rowlock.storage.records import JobFilter, Outcome, Progress, Status


async def history(store: Store, minutes: int = 60) -> History:
    """Return the history; asserts that compaction does not change it."""
    before = await store.history(minutes)
    while await store.compact(1_000):
        pass
    after = await store.history(minutes)
    assert (after.now, sorted(after.minutes), after.lags) == (before.now, sorted(before.minutes), before.lags)
    return after


def this_minute(clock: FakeClock) -> datetime:
    return clock.now().replace(second=0, microsecond=0)


async def test_an_empty_store_has_no_history(store: Store, clock: FakeClock) -> None:
    clock.advance(12.5)
    found = await history(store)
    assert (found.now, list(found.minutes), dict(found.lags)) == (this_minute(clock), [], {})


async def test_what_ended_is_told_by_minute_and_queue(store: Store, clock: FakeClock) -> None:
    began = this_minute(clock)
    await put_and_end(store, type="a", queue="q")
    await put_and_end(store, type="b", queue="q")
    await put_and_end(store, type="a")
    clock.advance(minutes=2)
    await put_and_fail(store, type="a", queue="q")
    await put_and_fail(store, Outcome.RETRY, type="b", queue="q", delay_seconds=900)
    await put_and_end(store, Outcome.CANCELLED, queue="q")
    found = await history(store)
    assert found.now == began + timedelta(minutes=2)
    assert sorted(found.minutes) == [
        (began, "default", 1, 0, 0),
        (began, "q", 2, 0, 0),
        (began + timedelta(minutes=2), "q", 0, 1, 2),
    ]


async def test_only_so_many_minutes_are_told_this_one_included(store: Store, clock: FakeClock) -> None:
    for _ in range(5):
        await put_and_end(store)
        await store.note_lags({"default": 1.0})
        clock.advance(minutes=1)
    last = this_minute(clock)
    assert sorted(m.minute for m in (await history(store, 3)).minutes) == [last - timedelta(minutes=n) for n in (2, 1)]
    assert sorted((await history(store, 3)).lags) == [last - timedelta(minutes=n) for n in (2, 1)]
    assert (await history(store, 1)).minutes == []
    assert len((await history(store, 6)).minutes) == 5


async def test_a_job_that_was_removed_or_retried_has_happened_all_the_same(store: Store) -> None:
    await put_and_end(store, Outcome.FAILED)
    await put_and_end(store, Outcome.FAILED)
    await store.retry(JobFilter(Status.FAILED), 1)
    await store.discard(JobFilter(Status.FAILED), 1)
    (minute,) = (await history(store)).minutes
    assert minute.failed == 2


# -- lags --------------------------------------------------------------------------------------------


async def test_lags_are_noted_as_they_are(store: Store, clock: FakeClock) -> None:
    lags = {"default": 12.5, "日本 ' \"": 0.25, "a.b$c": 3_600.0}
    assert await store.note_lags(lags)
    clock.advance(minutes=1)
    assert await store.note_lags({})
    found = await history(store)
    assert found.lags == {this_minute(clock) - timedelta(minutes=1): lags, this_minute(clock): {}}


async def test_a_minute_is_noted_once(store: Store, other: Store, clock: FakeClock) -> None:
    assert await store.note_lags({"default": 1.0})
    clock.advance(59)
    assert not await other.note_lags({"default": 2.0})
    clock.advance(1)
    assert await other.note_lags({"default": 3.0})
    assert [lags["default"] for _, lags in sorted((await history(store)).lags.items())] == [1.0, 3.0]


async def test_of_a_fleet_one_notes_a_minute(store: Store, other: Store, clock: FakeClock) -> None:
    for _ in range(5):
        clock.advance(minutes=1)
        noted = await asyncio.gather(*((store, other)[n % 2].note_lags({"q": float(n)}) for n in range(6)))
        assert sorted(noted) == [False] * 5 + [True]
        assert (await store.history(1)).lags == {this_minute(clock): {"q": float(noted.index(True))}}


async def test_notes_older_than_a_day_are_forgotten(store: Store, clock: FakeClock) -> None:
    assert await store.note_lags({"default": 1.0})
    clock.advance(hours=23)
    assert len((await history(store, 24 * 60)).lags) == 1
    clock.advance(hours=3)
    assert (await history(store, 24 * 60)).lags == {}
    clock.advance(hours=-3)  # not hidden, but deleted
    assert (await history(store, 24 * 60)).lags == {}


# -- running jobs ------------------------------------------------------------------------------------


async def test_nothing_runs_in_an_empty_store(store: Store) -> None:
    assert await store.running(10) == []


async def test_what_runs_is_told_with_its_owner_and_progress(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store, BEN, type="mail.send", queue="mail", company_id="acme")
    began = clock.now()
    clock.advance(5)
    await store.progress(BEN, [Progress(claimed.id, claimed.lease, 40, "half way")])
    (found,) = await store.running(10)
    assert found[:6] == (claimed.id, "mail.send", "mail", "acme", BEN, 1)
    assert near(found.started_at, began)
    assert found[7:] == (40, "half way")


async def test_those_that_began_first_come_first_and_no_more_than_asked(store: Store, clock: FakeClock) -> None:
    jobs = await put_many(store, 4)
    began = {}
    for job_id in jobs:
        claimed = await take(store)
        began[claimed.id] = claimed
        assert claimed.id == job_id
        clock.advance(1)
    assert [job.id for job in await store.running(10)] == jobs
    assert [job.id for job in await store.running(2)] == jobs[:2]
    await settle(store, began[jobs[0]])
    assert [job.id for job in await store.running(2)] == jobs[1:3]


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.RETRY, Outcome.CANCELLED])
async def test_what_has_ended_does_not_run(store: Store, outcome: Outcome) -> None:
    claimed = await put_and_take(store, ANN)
    await settle(store, claimed, outcome)
    assert await store.running(10) == []
