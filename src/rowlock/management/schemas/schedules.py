"""Schedules and their runs."""

from __future__ import annotations

from typing import Annotated, Self

from rowlock.management.schemas.base import Schema, Time, inline_enum, plain_text
from rowlock.observe.redaction import Redactor
from rowlock.storage.reliability import RunRecord, RunStatus

RunStatusField = Annotated[RunStatus, inline_enum(RunStatus)]


class RunSchema(Schema):
    """One run of a schedule."""

    name: str
    tick: Time
    job_id: str | None
    status: RunStatusField
    enqueued_at: Time
    started_at: Time | None
    ended_at: Time | None
    error: str | None

    @classmethod
    def of(cls, run: RunRecord, redact: Redactor) -> Self:
        return cls(
            name=run.name,
            tick=run.tick,
            job_id=run.job_id,
            status=run.status,
            enqueued_at=run.enqueued_at,
            started_at=run.started_at,
            ended_at=run.ended_at,
            error=plain_text(run.error, redact),
        )


class ScheduleSchema(Schema):
    name: str
    job_type: str | None
    spec: str | None
    missed: str | None
    paused: bool
    next_at: Time | None
    last_run: RunSchema | None


class SchedulesSchema(Schema):
    schedules: list[ScheduleSchema]


class RunsSchema(Schema):
    runs: list[RunSchema]


class SchedulePausedSchema(Schema):
    name: str
    paused: bool


class ScheduleResumedSchema(SchedulePausedSchema):
    next_at: Time


class ScheduleRunSchema(Schema):
    name: str
    job_id: str
