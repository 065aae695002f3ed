"""Records of failures, counters, idempotency locks, schedules and notifications."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from rowlock.ids import is_uuid
from rowlock.storage.kinds import Index, Kind
from rowlock.storage.records import JobId, NewJob, WorkerId

FailureId = str


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """A recorded failed attempt."""

    id: FailureId
    job_id: JobId
    job_name: str
    queue_name: str
    company_id: str | None
    payload: str  # JSON text, redacted
    attempts: int  # the number of the failed attempt
    max_attempts: int
    is_final_attempt: bool
    failed_reason: str
    stack_trace: str | None
    first_failed_at: datetime
    resolved_at: datetime | None  # when an operator retried the job
    started_at: datetime | None = None  # None: recorded by an older release
    owner: WorkerId | None = None  # the worker that ran it
    occurrences: int = 1  # number of identical failures in this record
    last_failed_at: datetime | None = None  # None: there was only one


@dataclass(frozen=True, slots=True)
class FailureFilter:
    """Which failures to list; empty fields match all."""

    company_id: str | None = None
    job_name: str | None = None
    job_id: JobId | None = None
    final: bool | None = None
    unresolved: bool = False


@dataclass(frozen=True, slots=True)
class FailurePage:
    """Failures, newest first, and the cursor of the next page."""

    failures: list[FailureRecord]
    next_cursor: str | None


def failure_page(found: list[FailureRecord], limit: int) -> FailurePage:
    """Makes a page from failures read with `limit + 1`."""
    kept = found[:limit]
    if len(found) <= limit or not kept:
        return FailurePage(kept, None)
    return FailurePage(kept, f"{kept[-1].first_failed_at.isoformat()}_{kept[-1].id}")


def failure_cursor(cursor: str) -> tuple[datetime, FailureId]:
    """Returns the position at which the last page ended; raises ValueError for a cursor that no page returned."""
    text, _, failure_id = cursor.partition("_")
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None and is_uuid(failure_id):
            return moment.astimezone(UTC), failure_id
    except (ValueError, OverflowError):
        pass  # raised below
    raise ValueError(f"{cursor[:80]!r} is not a valid cursor: use nextCursor of a page of failures")


class Activity(NamedTuple):
    """What happened to the jobs of one queue and type in a period."""

    queue: str
    type: str
    succeeded: int
    failed: int  # jobs
    cancelled: int
    failures: int  # attempts
    retries: int
    rescues: int
    seconds: float  # run time of handlers


class Total(NamedTuple):
    """The number of jobs of one queue and type."""

    queue: str
    type: str
    alive: int  # waiting or running
    succeeded: int
    failed: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class LockKey:
    """Identifies work that runs once at a time: company, job key and scope."""

    company_id: str  # "": none
    job_key: str
    scope_key: str


class LockDecision(StrEnum):
    """What the state of a lock means for the caller."""

    PROCEED = "proceed"  # the lock was never taken
    TAKE_OVER = "take_over"  # its holder is stale, or is an earlier attempt of the same job
    RERUN = "rerun"  # completed with other data
    RETRY = "retry"  # the last run failed
    ALREADY_RUNNING = "already_running"
    ALREADY_COMPLETED = "already_completed"

    @property
    def go(self) -> bool:
        return self not in (LockDecision.ALREADY_RUNNING, LockDecision.ALREADY_COMPLETED)


@dataclass(frozen=True, slots=True)
class LockAnswer:
    decision: LockDecision
    token: int  # the fencing token: grows whenever the lock is taken
    holder: str | None  # the current or last holder


class LockStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LockRecord:
    company_id: str
    job_key: str
    scope_key: str
    status: LockStatus
    payload_hash: str
    token: int
    holder: str
    locked_at: datetime
    ended_at: datetime | None


LOCKS = Kind(
    "job_idempotency_locks",
    LockRecord,
    key=("company_id", "job_key", "scope_key"),
    indexes=(
        Index("in_time", ("-locked_at",)),
        Index("of_company", ("company_id", "-locked_at")),
        Index("ended", ("ended_at",)),
    ),
)


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A schedule as stored."""

    name: str
    spec: str  # the declaration: a change resets the next tick
    next_at: datetime
    last_tick: datetime | None
    paused_at: datetime | None


SCHEDULES = Kind("schedules", ScheduleRecord, key=("name",), collection="rowlock_schedules")


@dataclass(frozen=True, slots=True)
class Tick:
    """One time of a schedule, and the job to enqueue at it."""

    name: str
    at: datetime
    expected: datetime | None  # the stored next tick; None: started by an operator
    next_at: datetime  # the schedule's next tick afterwards
    job: NewJob | None  # None: missed and skipped


class RunStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    MISSED = "missed"
    UNKNOWN = "unknown"  # its job was removed before its end was recorded


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a schedule."""

    name: str
    tick: datetime
    job_id: JobId | None
    status: RunStatus
    enqueued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    error: str | None


RUNS = Kind(
    "schedule_runs",
    RunRecord,
    key=("name", "tick"),
    indexes=(
        Index("in_time", ("-tick", "name")),
        Index("of_schedule", ("name", "-tick")),
        Index("ended", ("ended_at", "job_id")),
    ),
    uuids=frozenset({"job_id"}),
    collection="rowlock_runs",
)


@dataclass(frozen=True, slots=True)
class Alert:
    """A raised alert."""

    name: str
    since: datetime


ALERTS = Kind("alerts", Alert, key=("name",), collection="rowlock_alerts")


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Dead letters of one job name, for a notification."""

    job_name: str
    queue_name: str
    count: int
    first_at: datetime
    last_at: datetime
    attempts: int
    job_ids: tuple[JobId, ...]  # the last three
    reason: str  # of the last one


class Measure(NamedTuple):
    """The name and the labels (a JSON object with sorted keys) of a number that workers add to."""

    name: str
    labels: str = "{}"
