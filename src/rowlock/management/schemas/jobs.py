"""Jobs: one, a page of them, their numbers, and the events of one."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field

from rowlock.jobs.payload import loads
from rowlock.management.schemas.base import (
    EXAMPLE_ID,
    EXAMPLE_TIME,
    Schema,
    StatusField,
    Time,
    plain_text,
    plain_value,
)
from rowlock.observe.guidance import IMPORT_JOB, OtherSide, about_job
from rowlock.observe.redaction import Redactor
from rowlock.storage.access import JobChange
from rowlock.storage.records import JobRecord, Status


class JobSchema(Schema):
    """A job. Values under keys that name secrets are "[REDACTED]"."""

    id: str = Field(examples=[EXAMPLE_ID])
    type: str = Field(examples=["healthPing"])
    queue: str = Field(examples=["default"])
    status: StatusField
    payload: dict[str, Any]
    priority: int = Field(examples=[100])
    attempts: int
    max_attempts: int = Field(examples=[5])
    deaths: int = Field(description="Number of processes that died while running it.")
    lease: int = Field(description="Fencing token; grows with every claim.")
    visibility_timeout_ms: int = Field(examples=[30_000])
    available_at: Time = Field(examples=[EXAMPLE_TIME])
    locked_at: Time | None
    lock_owner: str | None
    created_at: Time = Field(examples=[EXAMPLE_TIME])
    started_at: Time | None
    finished_at: Time | None
    updated_at: Time = Field(examples=[EXAMPLE_TIME])
    progress: int | None
    message: str | None
    cancel_requested: bool
    result: Any
    error: str | None
    guidance: list[str] = Field(description="Guidance: what to do about it, if it is a dead letter.")
    company_id: str | None
    limit_key: str | None
    unique_key: str | None
    trace: str | None

    @classmethod
    def of(cls, job: JobRecord, redact: Redactor | None, other: OtherSide | None = None, **more: Any) -> Self:
        """Redact secrets unless `redact` is None. `other` is the external system that the job calls, if any."""
        dead = job.status is Status.FAILED
        return cls(
            id=job.id,
            type=job.type,
            queue=job.queue,
            status=job.status,
            payload=plain_value(job.payload, redact),
            priority=job.priority,
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            deaths=job.deaths,
            lease=job.lease,
            visibility_timeout_ms=job.visibility_timeout_ms,
            available_at=job.available_at,
            locked_at=job.locked_at,
            lock_owner=job.lock_owner,
            created_at=job.created_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
            updated_at=job.updated_at,
            progress=job.progress,
            message=plain_text(job.message, redact),
            cancel_requested=job.cancel_requested,
            result=plain_value(job.result, redact),
            error=plain_text(job.error, redact),
            guidance=about_job(job.id, job.error or "", other, _import_of(job)) if dead else [],
            company_id=job.company_id,
            limit_key=job.limit_key,
            unique_key=None if job.unique_key is None else job.unique_key.replace("\x1f", "/"),
            trace=job.trace,
            **more,
        )


def _import_of(job: JobRecord) -> str | None:
    """Return the id of the import that a job is a part of, or None."""
    found = loads(job.payload).get("importJobId") if job.type == IMPORT_JOB else None
    return found if isinstance(found, str) else None


class EnqueuedSchema(JobSchema):
    created: bool = Field(description="False: a job with this unique key already existed.")


class PageSchema(Schema):
    """Jobs, newest first."""

    jobs: list[JobSchema]
    next_cursor: str | None = Field(description="Cursor of the next page; null at the end.")


class JobChangeSchema(Schema):
    """A job in an event: its state, without payload and result."""

    id: str
    type: str
    queue: str
    status: StatusField
    attempts: int
    max_attempts: int
    lease: int
    progress: int | None
    message: str | None
    error: str | None
    company_id: str | None
    changed_at: Time

    @classmethod
    def of(cls, change: JobChange, redact: Redactor) -> Self:
        return cls(
            id=change.id,
            type=change.type,
            queue=change.queue,
            status=change.status,
            attempts=change.attempts,
            max_attempts=change.max_attempts,
            lease=change.lease,
            progress=change.progress,
            message=plain_text(change.message, redact),
            error=plain_text(change.error, redact),
            company_id=change.company_id,
            changed_at=change.changed_at,
        )


class HourSchema(Schema):
    succeeded: int
    failed: int
    cancelled: int
    failed_attempts: int
    retries: int
    rescues: int
    mean_seconds: float | None


class StatsSchema(Schema):
    """How many jobs there are, and what happened in the last hour."""

    counts: dict[StatusField, int]
    counted_up_to: int | None = Field(description="With a token for one company, jobs are counted up to this number.")
    last_hour: HourSchema | None = Field(description="Null with a token for one company.")


EventKind = Literal["enqueued", "started", "failed", "retried", "due", "succeeded", "cancelled"]


class EventSchema(Schema):
    """A moment in the life of a job."""

    at: Time = Field(description="Time of the event; for `due`, the time of the next attempt.", examples=[EXAMPLE_TIME])
    kind: EventKind = Field(description="`failed`: an attempt; `retried`: by an operator.")
    attempt: int | None
    seconds: float | None = Field(description="Duration of the attempt that ended.")
    owner: str | None = Field(description="The worker that ran it, if known.")
    reason: str | None
    stack_trace: str | None = Field(description="Only for the role admin.")


class TimelineSchema(Schema):
    """The life of a job, the oldest event first."""

    job_id: str = Field(examples=[EXAMPLE_ID])
    events: list[EventSchema]
    more: bool = Field(description="True: there are more than 200 failed attempts; the oldest are omitted.")
