"""The scheduler fires each tick once, whatever happens to clocks and schedulers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.conftest import MakeApp
from engine.running import Log, drain
from rowlock import FakeClock, Job, Permanent, Rowlock, Status, Unique
from rowlock.control import schedules
from rowlock.errors import StoreUnavailable
from rowlock.ids import uuid7
from rowlock.jobs.scheduler import Scheduler
from rowlock.observe import logs
from rowlock.storage.contract import Store
from rowlock.storage.records import Worker
from rowlock.storage.reliability import RunStatus

START = datetime(2026, 11, 16, 10, 0, 30, tzinfo=UTC)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


async def scheduling(make_app: MakeApp, **options: Any) -> tuple[Rowlock, Scheduler]:
    app = await make_app()

    @app.job("report")
    async def report(job: Job, fail: bool = False) -> None:
        if fail:
            raise Permanent("no paper")

    app.schedule("minutely", "report", **{"every_seconds": 60.0} | options)
    return app, scheduler(app)


def scheduler(app: Rowlock, *workers: Worker) -> Scheduler:
    return Scheduler(app.engine, logs.get(), lambda: workers)


async def starting(make_app: MakeApp, store: Store, **options: Any) -> tuple[Scheduler, Worker]:
    """Start a process with a live worker and a schedule: 30 s after start-up, then every 120 s."""
    app, _ = await scheduling(make_app, **{"every_seconds": 120.0, "start_delay_seconds": 30.0} | options)
    worker = Worker(uuid7(), "here:1", ("default",))
    one = scheduler(app, worker)
    await one.round()
    await store.beat([worker])
    return one, worker


async def seconds_of_ticks(store: Store, from_: datetime = START) -> list[float]:
    return [(run.tick - from_).total_seconds() for run in (await schedules.list_runs(store, None, 100))[::-1]]


async def pass_time(clock: FakeClock, store: Store, seconds: int, *fleet: tuple[Scheduler, Worker]) -> None:
    """Advance the clock in steps of 10 s, with all schedulers of the fleet running a round at each step."""
    for _ in range(0, seconds, 10):
        clock.advance(10)
        await store.beat([worker for _, worker in fleet])
        await asyncio.gather(*(one.round() for one, _ in fleet))


async def ticks(store: Store) -> list[tuple[str, str]]:
    return [
        (run.tick.strftime("%H:%M"), run.status.value) for run in (await schedules.list_runs(store, None, 100))[::-1]
    ]


async def test_a_tick_fires_when_it_is_due_and_not_before(
    make_app: MakeApp, store: Store, clock: FakeClock, log: Log
) -> None:
    app, one = await scheduling(make_app)
    assert await one.round() == 10.0  # it checks for pauses before the tick, which is in 30 s
    assert await ticks(store) == []
    clock.advance(30)
    await one.round()
    await one.round()
    assert await ticks(store) == [("10:01", "waiting")]
    await drain(app)
    await one.round()
    assert await ticks(store) == [("10:01", "succeeded")]
    assert [line["schedule"] for line in log.of("schedule.fired")] == ["minutely"]
    assert [line["status"] for line in log.of("schedule.ended")] == ["succeeded"]


@pytest.mark.every_store
async def test_four_schedulers_fire_a_tick_once(make_app: MakeApp, store: Store, clock: FakeClock) -> None:
    several = [(await scheduling(make_app))[1] for _ in range(4)]
    for _ in range(10):
        await asyncio.gather(*(one.round() for one in several))
        clock.advance(60)
    found = await ticks(store)
    assert len(found) == len(set(found)) == 9
    assert (await store.counts())[Status.QUEUED] == 9


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("skip", [("10:05", "missed")]),
        ("run_once", [("10:05", "waiting")]),
        ("catch_up", [(f"10:0{minute}", "waiting") for minute in range(1, 6)]),
    ],
)
@pytest.mark.every_store
async def test_ticks_that_nobody_was_there_for(
    make_app: MakeApp, store: Store, clock: FakeClock, missed: str, expected: list[tuple[str, str]]
) -> None:
    _, one = await scheduling(make_app, missed=missed)
    await one.round()
    clock.advance(5 * 60 - 2)  # 10:05:28: the tick of 10:01 is long past
    await one.round()
    assert await ticks(store) == expected
    clock.advance(60)
    await one.round()
    assert (await ticks(store))[-1] == ("10:06", "waiting")


async def test_a_tick_within_the_grace_is_on_time(make_app: MakeApp, store: Store, clock: FakeClock) -> None:
    _, one = await scheduling(make_app, missed="skip", grace_seconds=45)
    await one.round()
    clock.advance(70)
    await one.round()
    assert await ticks(store) == [("10:01", "waiting")]


@pytest.mark.every_store
async def test_a_clock_that_is_set_back_fires_nothing_twice(make_app: MakeApp, store: Store, clock: FakeClock) -> None:
    _, one = await scheduling(make_app)
    await one.round()
    clock.advance(30)
    await one.round()
    clock.advance(-3_600)
    await one.round()
    clock.advance(3_600)
    await one.round()
    assert await ticks(store) == [("10:01", "waiting")]


async def test_a_paused_schedule_waits_and_leaves_out_what_was_due(
    make_app: MakeApp, store: Store, clock: FakeClock
) -> None:
    app, one = await scheduling(make_app)
    await one.round()
    assert await schedules.pause(store, "minutely")
    clock.advance(600)
    await one.round()
    assert await ticks(store) == []
    assert await schedules.resume(store, "minutely", app.schedules["minutely"].next_after(await store.now()))
    await one.round()
    clock.advance(60)
    await one.round()
    assert await ticks(store) == [("10:11", "waiting")]


async def test_a_run_that_fails_is_recorded_with_its_error(make_app: MakeApp, store: Store, clock: FakeClock) -> None:
    app, one = await scheduling(make_app, payload={"fail": True})
    await one.round()
    clock.advance(30)
    await one.round()
    await drain(app)
    await one.round()
    (run,) = await schedules.list_runs(store, "minutely", 10)
    assert (run.status, run.error) == (RunStatus.FAILED, "no paper")
    assert run.started_at is not None
    assert run.ended_at is not None


async def test_a_run_that_is_still_under_way_is_what_the_next_tick_finds(
    make_app: MakeApp, store: Store, clock: FakeClock
) -> None:
    _, one = await scheduling(make_app, unique=Unique.while_active())
    for _ in range(3):
        await one.round()
        clock.advance(60)
    runs = await schedules.list_runs(store, "minutely", 10)
    assert len(runs) == 2
    assert len({run.job_id for run in runs}) == 1


async def test_a_changed_schedule_counts_anew(make_app: MakeApp, store: Store, clock: FakeClock) -> None:
    _, old = await scheduling(make_app)
    await old.round()
    _, new = await scheduling(make_app, every_seconds=3_600)
    await new.round()
    (record,) = await schedules.listed(store)
    assert record.next_at == datetime(2026, 11, 16, 11, tzinfo=UTC)
    clock.advance(120)
    await old.round()  # a machine with the old release does not fire the new schedule
    assert await ticks(store) == []


async def test_it_waits_after_the_start_of_its_process(make_app: MakeApp, store: Store, clock: FakeClock) -> None:
    _, one = await scheduling(make_app, start_delay_seconds=3_600)
    await one.round()
    clock.advance(90)
    await one.round()
    assert await ticks(store) == []


@pytest.mark.every_store
async def test_an_interval_with_a_start_delay_ticks_from_start_up(
    make_app: MakeApp, store: Store, clock: FakeClock
) -> None:
    one = await starting(make_app, store)
    await pass_time(clock, store, 400, one)
    assert await seconds_of_ticks(store) == [30, 150, 270, 390]


@pytest.mark.every_store
async def test_a_fleet_that_starts_together_ticks_once_per_interval(
    make_app: MakeApp, store: Store, clock: FakeClock
) -> None:
    first = await starting(make_app, store)
    clock.advance(1)
    second = await starting(make_app, store)
    clock.advance(9)
    await pass_time(clock, store, 260, first, second)
    assert await seconds_of_ticks(store) == [30, 150, 270]


@pytest.mark.every_store
async def test_a_process_that_joins_a_running_fleet_does_not_change_its_ticks(
    make_app: MakeApp, store: Store, clock: FakeClock
) -> None:
    first = await starting(make_app, store)
    await pass_time(clock, store, 60, first)
    second = await starting(make_app, store)
    await pass_time(clock, store, 220, first, second)
    assert await seconds_of_ticks(store) == [30, 150, 270]


@pytest.mark.every_store
@pytest.mark.parametrize("away", [5, 50, 5_000])
async def test_a_fleet_that_was_stopped_ticks_from_its_next_start_up(
    make_app: MakeApp, store: Store, clock: FakeClock, away: int
) -> None:
    first = await starting(make_app, store)
    await pass_time(clock, store, 40, first)
    await store.retire(first[1].id)
    clock.advance(away)
    begun = clock.now()
    second = await starting(make_app, store)
    await pass_time(clock, store, 160, second)
    assert (await seconds_of_ticks(store, begun))[1:] == [30, 150]


@pytest.mark.every_store
async def test_a_worker_of_another_application_is_not_part_of_the_fleet(
    make_app: MakeApp, store: Store, clock: FakeClock
) -> None:
    first, other = await starting(make_app, store), Worker(uuid7(), "there:1", ("others",))
    await store.beat([other])
    await pass_time(clock, store, 40, first)
    await store.retire(first[1].id)
    clock.advance(50)
    begun = clock.now()
    await store.beat([other])
    second = await starting(make_app, store)
    await pass_time(clock, store, 160, second)
    assert (await seconds_of_ticks(store, begun))[1:] == [30, 150]


@pytest.mark.every_store
async def test_two_processes_that_start_together_tick_from_their_start_up(
    make_app: MakeApp, store: Store, clock: FakeClock
) -> None:
    """Each process's worker is live before the other's scheduler has reached the store."""
    first = await starting(make_app, store)
    await pass_time(clock, store, 40, first)
    await store.retire(first[1].id)
    clock.advance(50)
    fleet: list[tuple[Scheduler, Worker]] = []
    for name in ("here:2", "here:3"):
        app, _ = await scheduling(make_app, every_seconds=120.0, start_delay_seconds=30.0)
        worker = Worker(uuid7(), name, ("default",))
        fleet.append((scheduler(app, worker), worker))
        app.store.refuse("scan schedules")
        with pytest.raises(StoreUnavailable):
            await fleet[-1][0].round()
    clock.advance(1)
    await store.beat([worker for _, worker in fleet])
    begun = clock.now()
    for one, _ in fleet:
        await one.round()
    await pass_time(clock, store, 160, *fleet)
    assert (await seconds_of_ticks(store, begun))[1:] == [30, 150]


async def test_a_start_up_makes_up_for_missed_ticks_where_that_is_declared(
    make_app: MakeApp, store: Store, clock: FakeClock
) -> None:
    first = await starting(make_app, store, missed="catch_up")
    await pass_time(clock, store, 40, first)
    await store.retire(first[1].id)
    clock.advance(300)
    second = await starting(make_app, store, missed="catch_up")
    await pass_time(clock, store, 60, second)
    assert await seconds_of_ticks(store) == [30, 150, 270, 390]


async def test_a_late_tick_keeps_the_rhythm_of_the_start_up(make_app: MakeApp, store: Store, clock: FakeClock) -> None:
    one, _ = await starting(make_app, store)
    clock.advance(3_000)
    await one.round()
    clock.advance(60)
    await one.round()
    assert await seconds_of_ticks(store) == [2_910, 3_030]


async def test_years_of_missed_ticks_are_one_run(make_app: MakeApp, store: Store, clock: FakeClock) -> None:
    _, one = await scheduling(make_app)
    await one.round()
    clock.advance(timedelta(days=2_000).total_seconds())
    await one.round()
    assert len(await ticks(store)) == 1
