"""What goes in and out over HTTP, as the OpenAPI description shows it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic.alias_generators import to_camel

from rowlock.errors import DELAY_SECONDS_MAX
from rowlock.jobs.policy import Unique
from rowlock.settings import NAME_LENGTH_MAX, PRIORITY_RANGE

EXAMPLE_ID = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"
EXAMPLE_TIME = "2030-01-31T08:00:00.000Z"

Name = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH_MAX, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
Limit = Annotated[int, Field(ge=1, le=1_000)]
Cursor = Annotated[str, Field(min_length=1, max_length=200)]
StatusWord = Literal["queued", "processing", "succeeded", "failed", "cancelled"]


class Given(BaseModel):
    """What is sent: fields that are not known are refused."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")


class Told(BaseModel):
    """What is answered."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


# -- jobs ------------------------------------------------------------------------------------------


class UniqueGiven(Given):
    """When a job counts as a duplicate, and what is answered then."""

    policy: Literal["forever", "while_active", "window"] = "forever"
    seconds: Annotated[float, Field(gt=0, le=DELAY_SECONDS_MAX)] | None = Field(
        None, description="How long the window is; needed by it alone."
    )
    key: Name | None = Field(None, description="Compared instead of type and payload.")
    on_conflict: Literal["reject", "return_existing"] = Field(
        "reject", description="Answer 409 with the id of the existing job, or 200 with that job."
    )

    @model_validator(mode="after")
    def _seconds_of_window(self) -> UniqueGiven:
        if (self.policy == "window") != (self.seconds is not None):
            raise ValueError("seconds goes with the policy window, and only with it")
        return self

    def unique(self) -> Unique:
        chosen: dict[str, Any] = {"on_conflict": self.on_conflict, "key": self.key}
        if self.seconds is not None:
            return Unique.window(self.seconds, **chosen)
        return Unique.forever(**chosen) if self.policy == "forever" else Unique.while_active(**chosen)


class EnqueueGiven(Given):
    """A job to enqueue."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"type": "healthPing"}, {"type": "demo.sleep", "payload": {"seconds": 3}}]}
    )

    type: Name = Field(description="The job type, as the application names it.")
    payload: dict[str, JsonValue] = Field(default_factory=dict, description="What its handler takes.")
    queue: Name | None = Field(None, description="Another queue than the type's own.")
    priority: Annotated[int, Field(ge=PRIORITY_RANGE[0], le=PRIORITY_RANGE[1])] | None = Field(
        None, description="Lower runs first. Otherwise the type's, or 100."
    )
    delay_seconds: Annotated[float, Field(ge=0, le=DELAY_SECONDS_MAX)] = Field(
        0.0, description="Run it no sooner than so many seconds from now."
    )
    available_at: AwareDatetime | None = Field(None, description="Run it no sooner; instead of a delay.")
    max_attempts: Annotated[int, Field(ge=1, le=1_000)] | None = Field(
        None, description="Attempts before it counts as failed."
    )
    company_id: Name | None = Field(None, description="The company that it belongs to.")
    unique: UniqueGiven | None = Field(None, description="When it is a duplicate; otherwise as its type says.")
    limit_key: Name | None = Field(None, description="The limit that it counts under, instead of its type's.")


class JobTold(Told):
    """A job. Values under keys that name secrets are "[REDACTED]"."""

    id: str = Field(examples=[EXAMPLE_ID])
    type: str = Field(examples=["healthPing"])
    queue: str = Field(examples=["default"])
    status: StatusWord
    payload: dict[str, Any]
    priority: int = Field(examples=[100])
    attempts: int
    max_attempts: int = Field(examples=[5])
    deaths: int = Field(description="How many processes died while they ran it.")
    lease: int = Field(description="Grows by one at every claim.")
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
    company_id: str | None
    limit_key: str | None
    unique_key: str | None
    trace: str | None


class EnqueuedTold(JobTold):
    created: bool = Field(description="False: a job with this unique key existed already.")


class PageTold(Told):
    """Jobs, newest first."""

    jobs: list[JobTold]
    next_cursor: str | None = Field(description="Goes on where this page ends; null at the end.")


class DeadGiven(Given):
    """Which failed jobs: some ids, or all that match; `all` where nothing narrows them down."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"type": "demo.sleep", "dryRun": True}]})

    ids: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=1_000)] | None = Field(
        None, description="Only these."
    )
    type: Name | None = Field(None, description="Only jobs of this type.")
    queue: Name | None = Field(None, description="Only jobs of this queue.")
    company_id: Name | None = Field(None, description="Only jobs of this company.")
    all: bool = Field(False, description="Every failed job: needed where nothing else is said.")
    dry_run: bool = Field(False, description="Only say how many match.")
    limit: Annotated[int, Field(ge=1, le=100_000)] = Field(10_000, description="At most so many in one call.")
    cursor: Cursor | None = Field(None, description="The nextCursor of an earlier call.")

    @model_validator(mode="after")
    def _chosen(self) -> DeadGiven:
        narrowed = self.ids is not None or bool(self.type or self.queue or self.company_id)
        if narrowed == self.all:
            raise ValueError("which jobs? give ids, type, queue or companyId, or else all: true")
        return self


class RetriedTold(Told):
    dry_run: bool
    matched: int = Field(description="How many jobs were looked at; of a dry run, how many match (at most 1,000,000).")
    retried: int
    conflicts: list[str] = Field(description="Jobs that stay failed: another job holds their unique key now.")
    next_cursor: str | None


class DiscardedTold(Told):
    dry_run: bool
    matched: int
    discarded: int
    next_cursor: str | None


class HourTold(Told):
    succeeded: int
    failed: int
    cancelled: int
    failed_attempts: int
    retries: int
    rescues: int
    mean_seconds: float | None


class StatsTold(Told):
    """How many jobs there are, and what happened in the last hour."""

    counts: dict[StatusWord, int]
    counted_up_to: int | None = Field(description="With a company's token, jobs are counted so far and no further.")
    last_hour: HourTold | None = Field(description="Null with a company's token.")


# -- queues and schedules --------------------------------------------------------------------------


class QueueTold(Told):
    name: str
    paused: bool
    ready: int
    delayed: int
    processing: int
    oldest_ready_seconds: float | None


class QueuesTold(Told):
    queues: list[QueueTold]


class SwitchedTold(Told):
    name: str
    paused: bool
    known: bool = Field(description="False: no handler is on this queue and no job waits there.")


class RunTold(Told):
    """One run of a schedule."""

    name: str
    tick: datetime
    job_id: str | None
    status: Literal["waiting", "running", "succeeded", "failed", "cancelled", "missed", "unknown"]
    enqueued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    error: str | None


class ScheduleTold(Told):
    name: str
    job_type: str | None
    spec: str | None
    missed: str | None
    paused: bool
    next_at: datetime | None
    last_run: RunTold | None


class SchedulesTold(Told):
    schedules: list[ScheduleTold]


class RunsTold(Told):
    runs: list[RunTold]


class SchedulePausedTold(Told):
    name: str
    paused: bool


class ScheduleResumedTold(SchedulePausedTold):
    next_at: datetime


class ScheduleRunTold(Told):
    name: str
    job_id: str


class SchemaTold(Told):
    current: int
    wanted: int


class WorkerTold(Told):
    id: str
    name: str
    queues: list[str]
    started_at: datetime
    seen_at: datetime
    alive: bool


class TopFailedTold(Told):
    job_name: str
    count: int


class FailedTold(Told):
    failed_last_hour: int
    failed_last24h: int = Field(alias="failedLast24h")
    top_failed_jobs: list[TopFailedTold]


class HealthTold(Told):
    """What `rowlock health --json` says."""

    status: Literal["ok", "warning"]
    database: str
    schema_: SchemaTold = Field(alias="schema")
    jobs: dict[StatusWord, int]
    failures: FailedTold
    queues: list[QueueTold]
    workers: list[WorkerTold]
    warnings: list[str]


class StateTold(Told):
    status: Literal["ok", "ready"]


# -- administration --------------------------------------------------------------------------------


class CountsTold(Told):
    waiting: int
    active: int
    delayed: int
    failed: int
    completed: int


class DlqTold(Told):
    failed_last_hour: int
    failed_last24h: int = Field(alias="failedLast24h")
    retention_days: float


class QueueHealthTold(Told):
    queue_name: str
    resilient_mode: bool
    counts: CountsTold
    oldest_waiting_age_sec: int | None
    failed_last_hour: int
    top_failed_jobs: list[TopFailedTold]
    dlq: DlqTold


class FailureTold(Told):
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
    resolved_at: datetime | None


class FailuresTold(Told):
    failures: list[FailureTold]
    next_cursor: str | None


class RetryGiven(Given):
    model_config = ConfigDict(json_schema_extra={"examples": [{"failureId": EXAMPLE_ID}]})

    failure_id: Annotated[str, Field(min_length=1, max_length=64, description="The id of a failed attempt.")]


class RetryTold(Told):
    failure_id: str
    job_id: str


class PrunedTold(Told):
    removed: dict[str, int]


class QueueHealthEnvelope(Told):
    success: Literal[True]
    data: QueueHealthTold


class FailuresEnvelope(Told):
    success: Literal[True]
    data: FailuresTold


class FailureEnvelope(Told):
    success: Literal[True]
    data: FailureTold


class RetryEnvelope(Told):
    success: Literal[True]
    data: RetryTold


class PrunedEnvelope(Told):
    success: Literal[True]
    data: PrunedTold


# -- errors ----------------------------------------------------------------------------------------


class FieldProblem(BaseModel):
    field: str = Field(description="Where: body.type, query.limit, …")
    message: str


class ProblemTold(BaseModel):
    """An error, after RFC 9457."""

    type: str = Field(examples=["urn:rowlock:problem:job_not_found"])
    title: str
    status: int
    code: str = Field(description="Stable: programs may rely on it.", examples=["job_not_found"])
    detail: str
    existingJobId: str | None = Field(None, description="With duplicate_job: the id of the job that exists.")
    existing: JobTold | None = Field(None, description="And that job.")
    errors: list[FieldProblem] | None = Field(None, description="With validation_failed: every field that is wrong.")
