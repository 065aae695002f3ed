"""Schedules: one job per tick on any number of machines, and a record of every run."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from conformance.builders import (
    ANN,
    EVERYTHING,
    end,
    forever,
    listed,
    near,
    new_job,
    put,
    record,
    settle,
    status,
    take,
    taken,
)
from conformance.stores import Rig
from rowlock.clock import FakeClock
from rowlock.control import schedules
from rowlock.errors import DuplicateJob, SchemaMissing, StoreError
from rowlock.storage.contract import Store
from rowlock.storage.records import JobFilter, JobId, KeepPolicy, NewJob, OnConflict, Outcome, Receipt, Status
from rowlock.storage.reliability import RunRecord, RunStatus, ScheduleRecord, Tick

HOUR = timedelta(hours=1)
ONE = datetime(2030, 1, 1, 1, tzinfo=UTC)  # the first tick; the clock starts an hour before it
TWO, THREE = ONE + HOUR, ONE + 2 * HOUR
ENDS = [
    (Outcome.SUCCEEDED, RunStatus.SUCCEEDED),
    (Outcome.FAILED, RunStatus.FAILED),
    (Outcome.CANCELLED, RunStatus.CANCELLED),
    (Outcome.FATAL, RunStatus.FAILED),
]


@pytest.fixture(autouse=True)
async def nightly(store: Store, clock: FakeClock) -> None:
    """Declare the schedule of most tests, with its first tick due."""
    await schedules.declare(store, [("nightly", "every hour", ONE)])
    clock.advance(hours=1)


def tick(at: datetime = ONE, job: NewJob | None = None, name: str = "nightly") -> Tick:
    """Return the tick of this time."""
    return Tick(name, at, at, at + HOUR, job or new_job())


def missed(at: datetime = ONE) -> Tick:
    return Tick("nightly", at, at, at + HOUR, None)


def out_of_turn(at: datetime, job: NewJob | None = None) -> Tick:
    return Tick("nightly", at, None, at, job or new_job())


async def fire(store: Store, one: Tick) -> JobId:
    """Fire a tick; fails if it has fired before."""
    receipt = await schedules.fire(store, one)
    assert receipt is not None
    return receipt.job_id


async def schedule(store: Store, name: str = "nightly") -> ScheduleRecord:
    (found,) = [one for one in await schedules.listed(store) if one.name == name]
    return found


# -- declaring ---------------------------------------------------------------------------------------


async def test_declared_schedules_are_listed_by_name(store: Store) -> None:
    await schedules.declare(store, [("weekly", "w", THREE), ("daily", "d", TWO)])
    assert await schedules.listed(store) == [
        ScheduleRecord("daily", "d", TWO, None, None),
        ScheduleRecord("nightly", "every hour", ONE, None, None),
        ScheduleRecord("weekly", "w", THREE, None, None),
    ]


async def test_declaring_nothing_changes_nothing(store: Store) -> None:
    before = await schedules.listed(store)
    await schedules.declare(store, [])
    assert await schedules.listed(store) == before


async def test_a_schedule_that_is_declared_again_unchanged_stays_as_it_is(store: Store, other: Store) -> None:
    await fire(store, tick())
    before = await schedules.listed(store)
    await schedules.declare(other, [("nightly", "every hour", ONE)])
    assert await schedules.listed(store) == before


async def test_a_schedule_whose_spec_changed_counts_anew(store: Store, clock: FakeClock) -> None:
    await schedules.declare(store, [("daily", "d", TWO)])
    await fire(store, tick())
    await schedules.declare(store, [("nightly", "every other hour", THREE), ("daily", "d", THREE)])
    assert await schedule(store) == ScheduleRecord("nightly", "every other hour", THREE, ONE, None)
    assert (await schedule(store, "daily")).next_at == TWO
    assert await schedules.fire(store, tick(TWO)) is None


async def test_a_paused_schedule_stays_paused_when_its_spec_changes(store: Store) -> None:
    await schedules.pause(store, "nightly")
    await schedules.declare(store, [("nightly", "every other hour", THREE)])
    assert (await schedule(store)).paused_at is not None


async def test_four_who_declare_at_once_agree(store: Store, other: Store) -> None:
    names = [f"s{number}" for number in range(10)]
    orders = [names, names[::-1], names[5:] + names[:5], names[::2] + names[1::2]]
    await asyncio.gather(
        *(
            schedules.declare((store, other)[n % 2], [(name, "spec", ONE) for name in order])
            for n, order in enumerate(orders)
        )
    )
    assert [one.name for one in await schedules.listed(store)] == ["nightly", *names]


async def test_a_schedule_moves_to_another_tick_once(store: Store, other: Store) -> None:
    done = await asyncio.gather(*(schedules.move((store, other)[n % 2], "nightly", ONE, TWO) for n in range(4)))
    assert sorted(done) == [False, False, False, True]
    assert await schedule(store) == ScheduleRecord("nightly", "every hour", TWO, None, None)
    assert await schedules.fire(store, tick(ONE)) is None
    assert await schedules.fire(store, tick(TWO)) is not None


async def test_a_paused_or_unknown_schedule_does_not_move(store: Store) -> None:
    await schedules.pause(store, "nightly")
    assert not await schedules.move(store, "nightly", ONE, TWO)
    assert not await schedules.move(store, "unknown", ONE, TWO)
    assert (await schedule(store)).next_at == ONE


# -- firing ------------------------------------------------------------------------------------------


async def test_a_tick_enqueues_its_job_records_the_run_and_moves_the_schedule_on(
    store: Store, clock: FakeClock
) -> None:
    clock.advance(2)
    job = new_job(type="report", queue="reports", payload='{"month": 1}')
    assert await schedules.fire(store, tick(ONE, job)) == Receipt(job.id, True)
    found = await record(store, job.id)
    assert (found.type, found.queue, found.payload, found.status) == ("report", "reports", '{"month": 1}', "queued")
    assert await schedule(store) == ScheduleRecord("nightly", "every hour", TWO, ONE, None)
    expected = RunRecord("nightly", ONE, job.id, RunStatus.WAITING, clock.now(), None, None, None)
    assert await schedules.list_runs(store, "nightly", 10) == [expected]
    assert (await store.counts())[Status.QUEUED] == 1


async def test_a_tick_fires_once(store: Store, other: Store) -> None:
    job_id = await fire(store, tick())
    before = (await schedules.listed(store), await schedules.list_runs(store, None, 10))
    assert await schedules.fire(store, tick()) is None
    assert await schedules.fire(other, tick()) is None
    assert await listed(store) == [job_id]
    assert (await schedules.listed(store), await schedules.list_runs(store, None, 10)) == before


async def test_of_four_who_fire_at_once_one_does(store: Store, other: Store) -> None:
    at = ONE
    for number in range(1, 9):
        receipts = await asyncio.gather(*(schedules.fire((store, other)[n % 2], tick(at)) for n in range(4)))
        (receipt,) = [one for one in receipts if one is not None]
        assert await store.count(EVERYTHING, 100) == number
        assert (await schedules.list_runs(store, None, 1))[0].job_id == receipt.job_id
        at += HOUR
    assert (await schedule(store)).next_at == at
    assert [run.tick for run in await schedules.list_runs(store, None, 100)] == [at - HOUR * n for n in range(1, 9)]


@pytest.mark.parametrize("expected", [ONE - HOUR, TWO])
async def test_a_tick_that_the_schedule_does_not_expect_does_not_fire(store: Store, expected: datetime) -> None:
    before = await schedules.listed(store)
    assert await schedules.fire(store, Tick("nightly", expected, expected, THREE, new_job())) is None
    assert await store.count(EVERYTHING, 10) == 0
    assert (await schedules.listed(store), await schedules.list_runs(store, None, 10)) == (before, [])


async def test_a_schedule_that_nobody_declared_does_not_fire(store: Store) -> None:
    assert await schedules.fire(store, tick(name="unknown")) is None
    assert await store.count(EVERYTHING, 10) == 0


async def test_ticks_follow_each_other(store: Store) -> None:
    jobs = [await fire(store, tick(at)) for at in (ONE, TWO, THREE)]
    assert await taken(store) == jobs
    assert (await schedule(store)).last_tick == THREE


async def test_a_schedule_may_leave_ticks_out(store: Store) -> None:
    assert await schedules.fire(store, Tick("nightly", TWO, ONE, THREE, new_job())) is not None
    assert await schedule(store) == ScheduleRecord("nightly", "every hour", THREE, TWO, None)
    assert [run.tick for run in await schedules.list_runs(store, None, 10)] == [TWO]


async def test_a_missed_tick_is_recorded_without_a_job(store: Store, clock: FakeClock) -> None:
    clock.advance(hours=1)
    assert await schedules.fire(store, missed()) is None
    assert await store.count(EVERYTHING, 10) == 0
    assert (await schedule(store)).next_at == TWO
    (run,) = await schedules.list_runs(store, "nightly", 10)
    assert (run.tick, run.job_id, run.status) == (ONE, None, RunStatus.MISSED)
    assert near(run.ended_at, clock.now())
    assert await schedules.close_runs(store, 10) == []


async def test_a_missed_tick_is_recorded_once(store: Store, other: Store) -> None:
    await asyncio.gather(*(schedules.fire((store, other)[n % 2], missed()) for n in range(4)))
    assert len(await schedules.list_runs(store, None, 10)) == 1
    assert (await schedule(store)).next_at == TWO


async def test_a_tick_out_of_turn_runs_and_leaves_the_schedule_alone(store: Store) -> None:
    before = await schedules.listed(store)
    job_id = await fire(store, out_of_turn(ONE + HOUR / 2))
    assert await status(store, job_id) is Status.QUEUED
    assert await schedules.listed(store) == before
    assert [run.tick for run in await schedules.list_runs(store, None, 10)] == [ONE + HOUR / 2]


async def test_a_tick_out_of_turn_fires_once(store: Store, other: Store) -> None:
    at = ONE + HOUR / 2
    receipts = await asyncio.gather(*(schedules.fire((store, other)[n % 2], out_of_turn(at)) for n in range(4)))
    (receipt,) = [one for one in receipts if one is not None]
    assert await schedules.fire(store, out_of_turn(at)) is None
    assert await listed(store) == [receipt.job_id]
    assert (await store.counts())[Status.QUEUED] == 1


async def test_a_tick_that_has_fired_does_not_fire_out_of_turn(store: Store) -> None:
    job_id = await fire(store, tick())
    assert await schedules.fire(store, out_of_turn(ONE)) is None
    assert await listed(store) == [job_id]


async def test_a_tick_that_fired_out_of_turn_does_not_fire_in_its_turn_and_the_schedule_goes_on(store: Store) -> None:
    first = await fire(store, out_of_turn(ONE))
    assert await schedules.fire(store, tick(ONE)) is None
    assert await listed(store) == [first]
    assert (await schedule(store)).next_at == TWO
    second = await fire(store, tick(TWO))
    assert await taken(store) == [first, second]


async def test_ticks_of_one_moment_fire_for_every_schedule(store: Store) -> None:
    await schedules.declare(store, [("hourly", "h", ONE)])
    jobs = [await fire(store, tick(name=name)) for name in ("hourly", "nightly")]
    assert sorted(await listed(store)) == sorted(jobs)
    assert [run.name for run in await schedules.list_runs(store, None, 10)] == ["hourly", "nightly"]


async def test_a_tick_may_find_the_job_that_holds_its_key(store: Store) -> None:
    key = forever("report", OnConflict.RETURN_EXISTING)
    holder = await put(store, unique=key)
    assert await schedules.fire(store, tick(ONE, new_job(unique=key))) == Receipt(holder, False)
    assert [run.job_id for run in await schedules.list_runs(store, None, 10)] == [holder]
    assert (await schedule(store)).next_at == TWO


async def test_a_tick_whose_job_is_refused_has_not_fired(store: Store) -> None:
    await put(store, unique=forever())
    before = await schedules.listed(store)
    with pytest.raises(DuplicateJob):
        await schedules.fire(store, tick(ONE, new_job(unique=forever())))
    assert (await schedules.listed(store), await schedules.list_runs(store, None, 10)) == (before, [])
    assert await schedules.fire(store, tick()) is not None


async def test_a_tick_whose_jobs_id_is_taken_is_an_error_and_has_not_fired(store: Store) -> None:
    """An error, since None would mean that the tick has already fired."""
    job_id = await put(store)
    for made in (tick(job=new_job(id=job_id)), out_of_turn(TWO, new_job(id=job_id))):
        with pytest.raises(StoreError):
            await schedules.fire(store, made)
    assert await schedules.list_runs(store, "nightly", 10) == []
    assert await schedules.fire(store, tick()) is not None


async def test_a_tick_on_a_store_without_a_schema_says_so(rig: Rig, clock: FakeClock) -> None:
    bare = await rig.make_bare(clock)
    with pytest.raises(SchemaMissing):
        await schedules.fire(bare, tick())


# -- pausing -----------------------------------------------------------------------------------------


async def test_a_paused_schedule_does_not_fire(store: Store, other: Store, clock: FakeClock) -> None:
    assert await schedules.pause(store, "nightly")
    before = await schedule(other)
    assert near(before.paused_at, clock.now())
    assert await schedules.fire(other, tick()) is None
    assert await schedules.fire(other, missed()) is None
    assert await store.count(EVERYTHING, 10) == 0
    assert (await schedule(store), await schedules.list_runs(store, None, 10)) == (before, [])


async def test_a_resumed_schedule_goes_on_with_the_tick_it_is_told(store: Store, clock: FakeClock) -> None:
    await schedules.pause(store, "nightly")
    clock.advance(hours=1)
    assert await schedules.resume(store, "nightly", THREE)
    assert await schedule(store) == ScheduleRecord("nightly", "every hour", THREE, None, None)
    assert await schedules.fire(store, tick(ONE)) is None
    assert await schedules.fire(store, tick(THREE)) is not None


async def test_resuming_what_is_not_paused_changes_nothing(store: Store) -> None:
    before = await schedules.listed(store)
    assert await schedules.resume(store, "nightly", THREE)
    assert await schedules.listed(store) == before


async def test_pausing_twice_is_as_good_as_once(store: Store, clock: FakeClock) -> None:
    await schedules.pause(store, "nightly")
    before = await schedules.listed(store)
    clock.advance(60)
    assert await schedules.pause(store, "nightly")
    assert await schedules.listed(store) == before


async def test_pausing_leaves_the_other_schedules_alone(store: Store) -> None:
    await schedules.declare(store, [("hourly", "h", ONE)])
    await schedules.pause(store, "nightly")
    assert await schedules.fire(store, tick(name="hourly")) is not None


async def test_a_schedule_that_nobody_declared_can_be_neither_paused_nor_resumed(store: Store) -> None:
    before = await schedules.listed(store)
    assert not await schedules.pause(store, "unknown")
    assert not await schedules.resume(store, "unknown", ONE)
    assert await schedules.listed(store) == before


# -- runs --------------------------------------------------------------------------------------------


async def run_of(store: Store) -> RunRecord:
    (run,) = await schedules.list_runs(store, "nightly", 10)
    return run


async def test_a_run_waits_then_runs_then_has_ended(store: Store, clock: FakeClock) -> None:
    await fire(store, tick())
    enqueued_at = clock.now()
    assert (await run_of(store)).status is RunStatus.WAITING
    clock.advance(10)
    claimed = await take(store)
    run = await run_of(store)
    assert (run.status, run.ended_at) == (RunStatus.RUNNING, None)
    assert near(run.started_at, clock.now())
    clock.advance(20)
    await settle(store, claimed, seconds=20)
    ended = await run_of(store)
    assert (ended.status, ended.job_id, ended.error) == (RunStatus.SUCCEEDED, claimed.id, None)
    assert near(ended.enqueued_at, enqueued_at)
    assert near(ended.started_at, run.started_at)
    assert near(ended.ended_at, clock.now())


async def test_a_run_whose_job_waits_again_waits_again(store: Store) -> None:
    await fire(store, tick())
    await settle(store, await take(store), Outcome.RETRY, error="later")
    assert (await run_of(store)).status is RunStatus.WAITING
    assert await schedules.close_runs(store, 10) == []


@pytest.mark.parametrize(("outcome", "expected"), ENDS)
async def test_a_run_is_closed_with_the_end_of_its_job(
    store: Store, clock: FakeClock, outcome: Outcome, expected: RunStatus
) -> None:
    await fire(store, tick())
    claimed = await take(store)
    clock.advance(5)
    error = None if outcome is Outcome.SUCCEEDED else "because"
    await settle(store, claimed, outcome, seconds=5, error=error)
    seen = await run_of(store)
    assert (seen.status, seen.error) == (expected, error)
    assert await schedules.close_runs(store, 10) == [seen]
    assert await run_of(store) == seen
    assert near(seen.ended_at, clock.now())
    assert near(seen.started_at, clock.now() - timedelta(seconds=5))


async def test_a_run_whose_job_was_cancelled_before_it_started_has_no_start(store: Store) -> None:
    await store.cancel(await fire(store, tick()))
    (run,) = await schedules.close_runs(store, 10)
    assert (run.status, run.started_at) == (RunStatus.CANCELLED, None)


async def test_a_run_whose_worker_was_lost_for_good_has_failed(store: Store, clock: FakeClock) -> None:
    await fire(store, tick(ONE, new_job(max_attempts=1)))
    await take(store)
    clock.advance(31)
    await store.rescue(10, {}, str)
    (run,) = await schedules.close_runs(store, 10)
    assert run.status is RunStatus.FAILED
    assert run.error


async def test_a_run_is_closed_once(store: Store, other: Store) -> None:
    for at in (ONE, TWO, THREE):
        await fire(store, tick(at))
    await store.settle(ANN, [end(claimed) for claimed in await store.claim("default", ANN, 3)])
    closed = await asyncio.gather(*(schedules.close_runs((store, other)[n % 2], 10) for n in range(4)))
    ticks = [run.tick for runs in closed for run in runs]
    assert sorted(ticks) == [ONE, TWO, THREE]
    assert await schedules.close_runs(store, 10) == []


async def test_no_more_runs_are_closed_than_asked(store: Store) -> None:
    for at in (ONE, TWO, THREE):
        await fire(store, tick(at))
    await store.settle(ANN, [end(claimed) for claimed in await store.claim("default", ANN, 3)])
    assert [len(await schedules.close_runs(store, 2)) for _ in range(3)] == [2, 1, 0]


async def test_runs_that_go_on_for_long_do_not_keep_others_open(store: Store) -> None:
    for at in (ONE, TWO, THREE):
        await fire(store, tick(at))
    claims = await store.claim("default", ANN, 3)
    await store.settle(ANN, [end(claims[2])])
    assert [run.job_id for run in await schedules.close_runs(store, 1)] == [claims[2].id]


async def test_a_closed_run_outlives_its_job(store: Store, clock: FakeClock) -> None:
    job_id = await fire(store, tick())
    await settle(store, await take(store))
    await schedules.close_runs(store, 10)
    before = await run_of(store)
    clock.advance(days=2)
    await store.prune({Status.SUCCEEDED: KeepPolicy(days=1)}, 10)
    assert await store.get(job_id) is None
    assert await run_of(store) == before


async def test_runs_are_listed_the_latest_tick_first(store: Store) -> None:
    await schedules.declare(store, [("hourly", "h", TWO)])
    for at in (ONE, TWO, THREE):
        await fire(store, tick(at))
    await fire(store, tick(TWO, name="hourly"))

    async def runs(name: str | None, limit: int, before: datetime | None = None) -> list[tuple[str, datetime]]:
        return [(run.name, run.tick) for run in await schedules.list_runs(store, name, limit, before)]

    everything = [("nightly", THREE), ("hourly", TWO), ("nightly", TWO), ("nightly", ONE)]
    assert await runs(None, 10) == everything
    assert await runs(None, 2) == everything[:2]
    assert await runs(None, 10, TWO) == everything[3:]
    assert await runs("hourly", 10) == [("hourly", TWO)]
    assert await runs("nightly", 1, THREE) == [("nightly", TWO)]
    assert await runs("unknown", 10) == []


async def test_runs_that_ended_long_ago_are_pruned_and_open_ones_kept(store: Store, clock: FakeClock) -> None:
    await fire(store, tick(ONE))
    await settle(store, await take(store))
    await schedules.close_runs(store, 10)
    await fire(store, tick(TWO))  # never ends
    clock.advance(days=3)
    await schedules.fire(store, missed(THREE))
    assert await schedules.prune_runs(store, 2, 100) == 1
    assert [run.tick for run in await schedules.list_runs(store, None, 10)] == [THREE, TWO]
    clock.advance(days=3)
    assert await schedules.prune_runs(store, 2, 100) == 1
    assert [run.tick for run in await schedules.list_runs(store, None, 10)] == [TWO]


async def test_runs_are_pruned_oldest_first_and_no_more_than_asked(store: Store, clock: FakeClock) -> None:
    ticks = [ONE + HOUR * number for number in range(5)]
    for at in ticks:
        await schedules.fire(store, missed(at))
        clock.advance(60)
    clock.advance(days=30)
    assert await schedules.prune_runs(store, 14, 2) == 2
    assert [run.tick for run in await schedules.list_runs(store, None, 10)] == ticks[:1:-1]
    assert [await schedules.prune_runs(store, 14, 2) for _ in range(3)] == [2, 1, 0]


async def test_a_run_whose_job_was_removed_is_closed_as_unknown(store: Store, clock: FakeClock) -> None:
    job = new_job()
    await schedules.fire(store, Tick("nightly", clock.now(), None, clock.now(), job))
    await store.cancel(job.id)
    assert await store.discard(JobFilter(ids=[job.id]), 1) == [job.id]
    assert await schedules.close_runs(store, 10) == []  # without transactions, its job may come
    clock.advance(60)
    (closed,) = await schedules.close_runs(store, 10)
    assert (closed.status, closed.ended_at) == (RunStatus.UNKNOWN, clock.now())
    assert closed.error == "its job was deleted before its end was recorded"
    assert await schedules.close_runs(store, 10) == []
    assert (await schedules.list_runs(store, "nightly", 10)) == [closed]
