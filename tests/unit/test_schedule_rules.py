"""The rules of schedules and runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rowlock.control.schedules import closed, declared, moved, paused, resumed, shown
from rowlock.storage.records import JobRecord, Status
from rowlock.storage.reliability import RunRecord, RunStatus, ScheduleRecord

ONE = datetime(2030, 1, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TWO, THREE = ONE + HOUR, ONE + 2 * HOUR

WAITING = ScheduleRecord("nightly", "every hour", TWO, ONE, None)
PAUSED = replace(WAITING, paused_at=ONE)


@pytest.mark.parametrize(
    ("schedule", "spec", "after"),
    [
        (None, "every hour", ScheduleRecord("nightly", "every hour", THREE, None, None)),
        (WAITING, "every hour", WAITING),
        (PAUSED, "every hour", PAUSED),
        (WAITING, "daily", replace(WAITING, spec="daily", next_at=THREE)),
        (PAUSED, "daily", replace(PAUSED, spec="daily", next_at=THREE)),
    ],
)
def test_a_declaration_counts_anew_only_with_another_spec(
    schedule: ScheduleRecord | None, spec: str, after: ScheduleRecord
) -> None:
    assert declared(schedule, "nightly", spec, THREE) == (after, True)


@pytest.mark.parametrize(
    ("schedule", "expected", "moves"),
    [(None, TWO, False), (WAITING, TWO, True), (WAITING, ONE, False), (WAITING, THREE, False), (PAUSED, TWO, False)],
)
def test_a_schedule_moves_from_the_tick_that_it_expects(
    schedule: ScheduleRecord | None, expected: datetime, moves: bool
) -> None:
    after, done = moved(schedule, expected, THREE, None)
    assert done is moves
    assert after == (replace(WAITING, next_at=THREE) if moves else schedule)


def test_a_tick_that_fires_is_the_last_one() -> None:
    assert moved(WAITING, TWO, THREE, TWO).record == replace(WAITING, next_at=THREE, last_tick=TWO)


@pytest.mark.parametrize(
    ("schedule", "after"), [(None, None), (WAITING, replace(WAITING, paused_at=THREE)), (PAUSED, PAUSED)]
)
def test_a_schedule_is_paused_once(schedule: ScheduleRecord | None, after: ScheduleRecord | None) -> None:
    assert paused(schedule, THREE) == (after, schedule is not None)


@pytest.mark.parametrize(
    ("schedule", "after"), [(None, None), (WAITING, WAITING), (PAUSED, replace(WAITING, next_at=THREE))]
)
def test_only_a_paused_schedule_is_resumed(schedule: ScheduleRecord | None, after: ScheduleRecord | None) -> None:
    assert resumed(schedule, THREE) == (after, schedule is not None)


RUN = RunRecord("nightly", ONE, "j", RunStatus.WAITING, ONE, None, None, None)
JOB = JobRecord("j", "report", "default", Status.QUEUED, "{}", 100, 0, 5, 0, 0, 30_000, ONE, ONE, ONE)
RUNNING = replace(JOB, status=Status.PROCESSING, started_at=TWO)
FAILED = replace(RUNNING, status=Status.FAILED, finished_at=THREE, error="no")
ENDED = RunRecord("nightly", ONE, "j", RunStatus.FAILED, ONE, TWO, THREE, "no")


@pytest.mark.parametrize(
    ("job", "of_closing", "of_listing"),
    [
        (JOB, RUN, RUN),
        (RUNNING, RUN, replace(RUN, status=RunStatus.RUNNING, started_at=TWO)),
        (FAILED, ENDED, ENDED),
        (replace(FAILED, status=Status.SUCCEEDED), replace(ENDED, status=RunStatus.SUCCEEDED), None),
        (replace(FAILED, status=Status.CANCELLED), replace(ENDED, status=RunStatus.CANCELLED), None),
    ],
)
def test_a_run_is_as_its_job_is(job: JobRecord, of_closing: RunRecord, of_listing: RunRecord | None) -> None:
    assert closed(RUN, job, THREE) == of_closing
    assert shown(RUN, job) == (of_listing or of_closing)


def test_a_run_whose_job_is_gone_is_closed_as_unknown() -> None:
    assert closed(RUN, None, RUN.enqueued_at + timedelta(seconds=59)) == RUN  # its job may come
    end = closed(RUN, None, THREE)
    assert (end.status, end.ended_at) == (RunStatus.UNKNOWN, THREE)
    assert shown(RUN, None) == RUN


def test_a_run_that_is_closed_keeps_its_end() -> None:
    assert shown(ENDED, RUNNING) is ENDED
