"""Schedules: when they fire, also at DST changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rowlock import Rowlock, SettingsError
from rowlock.jobs.schedule import Missed, Schedule


def ticks(schedule: Schedule, start: str, count: int) -> list[str]:
    moment, found = datetime.fromisoformat(start).replace(tzinfo=UTC), []
    for _ in range(count):
        moment = schedule.next_after(moment)
        found.append(moment.strftime("%m-%d %H:%M"))
    return found


def cron(line: str, zone: str = "UTC") -> Schedule:
    return Schedule("s", "t", cron=line, zone=zone)


def test_a_cron_line_means_the_clock_on_the_wall() -> None:
    daily = cron("30 8 * * *", "Europe/Berlin")
    assert ticks(daily, "2026-03-27", 4) == ["03-27 07:30", "03-28 07:30", "03-29 06:30", "03-30 06:30"]
    assert ticks(daily, "2026-10-24", 3) == ["10-24 06:30", "10-25 07:30", "10-26 07:30"]


def test_a_time_that_the_clocks_leave_out_ticks_right_after_it() -> None:
    assert ticks(cron("30 2 * * *", "Europe/Berlin"), "2026-03-28", 3) == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]


def test_a_time_that_comes_twice_ticks_once() -> None:
    assert ticks(cron("30 2 * * *", "Europe/Berlin"), "2026-10-24", 3) == ["10-24 00:30", "10-25 00:30", "10-26 01:30"]


def test_every_hour_ticks_every_hour_also_when_the_clocks_change() -> None:
    hourly = cron("0 * * * *", "Europe/Berlin")
    found = ticks(hourly, "2026-10-24T22:30", 5)
    assert found == ["10-24 23:00", "10-25 00:00", "10-25 01:00", "10-25 02:00", "10-25 03:00"]


def test_an_interval_ticks_at_the_same_moments_for_everyone() -> None:
    every = Schedule("s", "t", every_seconds=120)
    assert ticks(every, "2026-11-16T10:01:07", 2) == ["11-16 10:02", "11-16 10:04"]
    on_the_tick = datetime(2026, 11, 16, 10, 2, tzinfo=UTC)
    assert every.next_after(on_the_tick) == on_the_tick + timedelta(seconds=120)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"cron": "0 0 30 2 *"}, "is not a cron expression that ever fires"),
        ({"cron": "61 * * * *"}, "is not a cron expression that ever fires"),
        ({"cron": "nonsense"}, "is not a cron expression that ever fires"),
        ({"cron": "* * * * *", "zone": "Mars/Olympus"}, "unknown time zone 'Mars/Olympus'"),
        ({"cron": "* * * * *", "zone": "../etc/passwd"}, "unknown time zone"),
        ({}, "give either cron= or every_seconds="),
        ({"cron": "* * * * *", "every_seconds": 5}, "give either cron= or every_seconds="),
        ({"every_seconds": 0}, "every_seconds must be 1 to"),
        ({"every_seconds": float("nan")}, "every_seconds must be 1 to"),
        ({"every_seconds": 5, "grace_seconds": 0}, "grace_seconds must be more than 0"),
        ({"every_seconds": 5, "start_delay_seconds": -1}, "start_delay_seconds not negative"),
        ({"every_seconds": 5, "missed": "perhaps"}, "missed must be skip, run_once, catch_up, not 'perhaps'"),
    ],
)
def test_what_would_not_fire_as_meant_is_refused(declared: dict[str, object], message: str) -> None:
    app = Rowlock("sqlite:///nowhere.db")
    with pytest.raises(SettingsError, match="schedule 's'") as refused:
        app.schedule("s", "t", **declared)  # type: ignore[arg-type]  # wrong on purpose
    assert message in str(refused.value)


@pytest.mark.parametrize("every_seconds", [10 / 3, 86_400 / 7, 1.0005])
@pytest.mark.parametrize("start_delay_seconds", [0.0, 0.0015])
def test_every_store_keeps_the_ticks_of_an_interval_exactly(every_seconds: float, start_delay_seconds: float) -> None:
    every = Schedule("often", "ping", every_seconds=every_seconds, start_delay_seconds=start_delay_seconds)
    tick = every.first_after(datetime(2026, 3, 1, 12, 0, 0, 7_000, tzinfo=UTC))
    for _ in range(5):
        assert tick.microsecond % 1_000 == 0  # MongoDB keeps milliseconds
        later = every.next_after(tick, tick)
        assert later > tick
        tick = later


def test_a_name_is_declared_once() -> None:
    app = Rowlock("sqlite:///nowhere.db")
    app.schedule("s", "t", every_seconds=5, missed=Missed.SKIP)
    with pytest.raises(SettingsError, match="declared twice"):
        app.schedule("s", "t", every_seconds=6)
