"""Schemas of answers over HTTP, as the OpenAPI description shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from rowlock.http.schemas.base import Told
from rowlock.http.schemas.imports import ImportSchema
from rowlock.http.schemas.requests import EXAMPLE_ID, EXAMPLE_TIME, StatusWord


class JobSchema(Told):
    """A job. Values under keys that name secrets are "[REDACTED]"."""

    id: str = Field(examples=[EXAMPLE_ID])
    type: str = Field(examples=["healthPing"])
    queue: str = Field(examples=["default"])
    status: StatusWord
    payload: dict[str, Any]
    priority: int = Field(examples=[100])
    attempts: int
    max_attempts: int = Field(examples=[5])
    deaths: int = Field(description="Number of processes that died while running it.")
    lease: int = Field(description="Fencing token; grows with every claim.")
    visibility_timeout_ms: int = Field(examples=[30_000])
    available_at: datetime = Field(examples=[EXAMPLE_TIME])
    locked_at: datetime | None
    lock_owner: str | None
    created_at: datetime = Field(examples=[EXAMPLE_TIME])
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime = Field(examples=[EXAMPLE_TIME])
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


class EnqueuedSchema(JobSchema):
    created: bool = Field(description="False: a job with this unique key already existed.")


class PageSchema(Told):
    """Jobs, newest first."""

    jobs: list[JobSchema]
    next_cursor: str | None = Field(description="Cursor of the next page; null at the end.")


class RetriedSchema(Told):
    dry_run: bool
    matched: int = Field(
        description="Number of jobs examined; in a dry run, number of jobs that match (at most 1,000,000)."
    )
    retried: int
    conflicts: list[str] = Field(description="Jobs that stay failed because another job has their unique key.")
    next_cursor: str | None


class DiscardedSchema(Told):
    dry_run: bool
    matched: int
    discarded: int
    next_cursor: str | None


class HourSchema(Told):
    succeeded: int
    failed: int
    cancelled: int
    failed_attempts: int
    retries: int
    rescues: int
    mean_seconds: float | None


class StatsSchema(Told):
    """How many jobs there are, and what happened in the last hour."""

    counts: dict[StatusWord, int]
    counted_up_to: int | None = Field(description="With a token for one company, jobs are counted up to this number.")
    last_hour: HourSchema | None = Field(description="Null with a token for one company.")


class QueueSchema(Told):
    name: str
    paused: bool
    ready: int
    delayed: int
    processing: int
    oldest_ready_seconds: float | None


class QueuesSchema(Told):
    queues: list[QueueSchema]


class SwitchedSchema(Told):
    name: str
    paused: bool
    known: bool = Field(description="False: the queue has no handlers and no waiting jobs.")


class RunSchema(Told):
    """One run of a schedule."""

    name: str
    tick: datetime
    job_id: str | None
    status: Literal["waiting", "running", "succeeded", "failed", "cancelled", "missed", "unknown"]
    enqueued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    error: str | None


class ScheduleSchema(Told):
    name: str
    job_type: str | None
    spec: str | None
    missed: str | None
    paused: bool
    next_at: datetime | None
    last_run: RunSchema | None


class SchedulesSchema(Told):
    schedules: list[ScheduleSchema]


class RunsSchema(Told):
    runs: list[RunSchema]


class SchedulePausedSchema(Told):
    name: str
    paused: bool


class ScheduleResumedSchema(SchedulePausedSchema):
    next_at: datetime


class ScheduleRunSchema(Told):
    name: str
    job_id: str


class SchemaStatus(Told):
    current: int
    wanted: int


class WorkerSchema(Told):
    id: str
    name: str
    queues: list[str]
    started_at: datetime
    seen_at: datetime
    alive: bool


class TopFailedSchema(Told):
    job_name: str
    count: int


class FailedSchema(Told):
    failed_last_hour: int
    failed_last24h: int = Field(alias="failedLast24h")
    top_failed_jobs: list[TopFailedSchema]


class UnservedTypeSchema(Told):
    queue: str
    type: str
    jobs: int


class HealthSchema(Told):
    """What `rowlock health --json` says."""

    status: Literal["ok", "warning"]
    database: str
    schema_: SchemaStatus = Field(alias="schema")
    jobs: dict[StatusWord, int]
    failures: FailedSchema
    queues: list[QueueSchema]
    workers: list[WorkerSchema]
    unserved_types: list[UnservedTypeSchema] = Field(
        description="Types with waiting jobs for which no live worker has a handler."
    )
    warnings: list[str]


class StateSchema(Told):
    status: Literal["ok", "ready"]


class CountsSchema(Told):
    waiting: int
    active: int
    delayed: int
    failed: int
    completed: int


class DlqSchema(Told):
    failed_last_hour: int
    failed_last24h: int = Field(alias="failedLast24h")
    retention_days: float


class QueueHealthSchema(Told):
    queue_name: str
    resilient_mode: bool
    counts: CountsSchema
    oldest_waiting_age_sec: int | None
    failed_last_hour: int
    top_failed_jobs: list[TopFailedSchema]
    dlq: DlqSchema


class FailureSchema(Told):
    """A failed attempt; its payload redacted."""

    id: str
    job_id: str
    job_name: str
    queue_name: str
    company_id: str | None
    payload: dict[str, Any]
    attempts: int
    max_attempts: int
    is_final_attempt: bool
    failed_reason: str
    stack_trace: str | None
    first_failed_at: datetime
    occurrences: int = Field(description="Number of identical failures in this record.")
    last_failed_at: datetime = Field(description="Time of the last of them.")
    resolved_at: datetime | None
    started_at: datetime | None = Field(description="Null if an older release recorded it.")
    lock_owner: str | None = Field(description="The worker that ran it.")


class FailuresSchema(Told):
    failures: list[FailureSchema]
    next_cursor: str | None


class RetrySchema(Told):
    failure_id: str
    job_id: str


class PrunedSchema(Told):
    removed: dict[str, int]


class QueueHealthEnvelope(Told):
    success: Literal[True]
    data: QueueHealthSchema


class FailuresEnvelope(Told):
    success: Literal[True]
    data: FailuresSchema


class FailureEnvelope(Told):
    success: Literal[True]
    data: FailureSchema


class RetryEnvelope(Told):
    success: Literal[True]
    data: RetrySchema


class PrunedEnvelope(Told):
    success: Literal[True]
    data: PrunedSchema


class FieldProblem(BaseModel):
    field: str = Field(description="Place of the field: body.type, query.limit, …")
    message: str


class ProblemSchema(BaseModel):
    """An error, after RFC 9457."""

    type: str = Field(examples=["urn:rowlock:problem:job_not_found"])
    title: str
    status: int
    code: str = Field(description="Stable code.", examples=["job_not_found"])
    detail: str
    existingJobId: str | None = Field(None, description="With duplicate_job: the id of the existing job.")
    existingRemoved: bool | None = Field(
        None,
        description="With duplicate_job: true if that job was pruned and only its key is left.",
    )
    existingImportId: str | None = Field(None, description="With duplicate_import: the id of the earlier import.")
    existing: JobSchema | ImportSchema | None = Field(None, description="The existing job or import.")
    errors: list[FieldProblem] | None = Field(None, description="With validation_failed: every invalid field.")
