"""The scheduler: each tick once, whatever happens to time and to schedulers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.conftest import MakeApp
from engine.running import Log, drain
from rowlock import FakeClock, Job, Permanent, Rowlock, Status, Unique
from rowlock.jobs.scheduler import Scheduler
from rowlock.observe import logs
from rowlock.storage.base import Store
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


def scheduler(app: Rowlock) -> Scheduler:
    engine = app.engine
    return Scheduler(engine.store, engine.enqueuer, engine.schedules, engine.measures, logs.get())


async def ticks(store: Store) -> list[tuple[str, str]]:
    return [(run.tick.strftime("%H:%M"), run.status.value) for run in (await store.runs(None, 100))[::-1]]


async def test_a_tick_fires_when_it_is_due_and_not_before(
    make_app: MakeApp, store: Store, clock: FakeClock, log: Log
) -> None:
    app, one = await scheduling(make_app)
    assert await one.round() == 10.0  # it looks for pauses before the tick, in 30 s
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
    assert await store.pause_schedule("minutely")
    clock.advance(600)
    await one.round()
    assert await ticks(store) == []
    assert await store.resume_schedule("minutely", app.schedules["minutely"].next_after(await store.now()))
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
    (run,) = await store.runs("minutely", 10)
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
    runs = await store.runs("minutely", 10)
    assert len(runs) == 2
    assert len({run.job_id for run in runs}) == 1


async def test_a_changed_schedule_counts_anew(make_app: MakeApp, store: Store, clock: FakeClock) -> None:
    _, old = await scheduling(make_app)
    await old.round()
    _, new = await scheduling(make_app, every_seconds=3_600)
    await new.round()
    (record,) = await store.schedules()
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


async def test_years_of_missed_ticks_are_one_run(make_app: MakeApp, store: Store, clock: FakeClock) -> None:
    _, one = await scheduling(make_app)
    await one.round()
    clock.advance(timedelta(days=2_000).total_seconds())
    await one.round()
    assert len(await ticks(store)) == 1
