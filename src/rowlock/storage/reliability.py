"""What passes between the engine and a store about what went wrong, what must not run twice, and what runs when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from rowlock.ids import is_uuid
from rowlock.storage.records import JobId, NewJob, WorkerId

FailureId = str


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """One failed attempt, as it is kept."""

    id: FailureId
    job_id: JobId
    job_name: str
    queue_name: str
    company_id: str | None
    payload: str  # JSON text, redacted
    attempts: int  # the number of the one that failed
    max_attempts: int
    is_final_attempt: bool
    failed_reason: str
    stack_trace: str | None
    first_failed_at: datetime
    resolved_at: datetime | None  # when an operator had the job retried
    started_at: datetime | None = None  # None: noted by an older release
    owner: WorkerId | None = None  # the worker that ran it


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
    """A page of what was found, one more having been asked for."""
    kept = found[:limit]
    if len(found) <= limit or not kept:
        return FailurePage(kept, None)
    return FailurePage(kept, f"{kept[-1].first_failed_at.isoformat()}_{kept[-1].id}")


def failure_cursor(cursor: str) -> tuple[datetime, FailureId]:
    """Where the last page ended; a cursor that no page came with is a ValueError."""
    text, _, failure_id = cursor.partition("_")
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None and is_uuid(failure_id):
            return moment.astimezone(UTC), failure_id
    except (ValueError, OverflowError):
        pass  # said below
    raise ValueError(f"{cursor[:80]!r} is not a cursor that a page of failures came with")


class Activity(NamedTuple):
    """What happened to the jobs of one queue and type in some time."""

    queue: str
    type: str
    succeeded: int
    failed: int  # for good
    cancelled: int
    failures: int  # attempts
    retries: int
    rescues: int
    seconds: float  # that handlers ran


class Total(NamedTuple):
    """How many jobs of one queue and type there are."""

    queue: str
    type: str
    alive: int  # waiting or running
    succeeded: int
    failed: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class LockKey:
    """What may be done once at a time: for this company, this work, in this scope."""

    company_id: str  # "": none
    job_key: str
    scope_key: str


class LockVerdict(StrEnum):
    """What the state of a lock means for who asks."""

    PROCEED = "proceed"  # nobody has been here
    TAKE_OVER = "take_over"  # whoever was has not been seen for long, or was an earlier attempt of the same job
    RERUN = "rerun"  # it was completed with other data
    RETRY = "retry"  # it failed
    ALREADY_RUNNING = "already_running"
    ALREADY_COMPLETED = "already_completed"

    @property
    def go(self) -> bool:
        return self not in (LockVerdict.ALREADY_RUNNING, LockVerdict.ALREADY_COMPLETED)


@dataclass(frozen=True, slots=True)
class LockAnswer:
    verdict: LockVerdict
    token: int  # the fencing token: grows whenever the lock is taken
    holder: str | None  # the job that holds it, or held it last


@dataclass(frozen=True, slots=True)
class LockRecord:
    company_id: str
    job_key: str
    scope_key: str
    status: str  # running, completed, failed
    payload_hash: str
    token: int
    holder: str | None
    locked_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """One schedule, as the store knows it."""

    name: str
    spec: str  # how it was declared: a change makes the next tick count anew
    next_at: datetime
    last_tick: datetime | None
    paused_at: datetime | None


@dataclass(frozen=True, slots=True)
class Tick:
    """One moment of a schedule, and what to do at it."""

    name: str
    at: datetime
    expected: datetime | None  # the next tick that the schedule has; None: run out of turn, by an operator
    next_at: datetime  # of the schedule, afterwards
    job: NewJob | None  # None: missed, and not made up for


class RunStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    MISSED = "missed"
    UNKNOWN = "unknown"  # its job was removed before its end was noted


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


@dataclass(frozen=True, slots=True)
class Deaths:
    """Jobs of one name that have failed for good, for a message about them."""

    job_name: str
    queue_name: str
    count: int
    first_at: datetime
    last_at: datetime
    attempts: int
    job_ids: tuple[JobId, ...]  # of the last three
    reason: str  # of the last


class Measure(NamedTuple):
    """The name and the labels (a JSON object with sorted keys) of one number that workers add to."""

    name: str
    labels: str = "{}"
