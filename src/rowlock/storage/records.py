"""Records of jobs: plain values without behaviour.

NamedTuples if one is made per job on the hot path, frozen dataclasses elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import NamedTuple

JobId = str
WorkerId = str


class Status(StrEnum):
    """The status of a job. Only an operator changes one of the last three."""

    QUEUED = "queued"
    PROCESSING = "processing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})


class Outcome(IntEnum):
    """How an attempt ends. SUCCEEDED, FAILED, CANCELLED and FATAL end the job; after the others it waits again."""

    SUCCEEDED = 1
    FAILED = 2
    CANCELLED = 3
    RETRY = 4  # the attempt counts
    RELEASE = 5  # the attempt does not count
    CRASH = 6  # the attempt counts, and so does the death of its process
    SUSPECT = 7  # its process died, perhaps of another job: the death counts, the attempt does not
    FATAL = 8  # its process died, which counts, and the job fails

    @property
    def final(self) -> bool:
        return self <= Outcome.CANCELLED or self is Outcome.FATAL


class OnConflict(StrEnum):
    REJECT = "reject"
    RETURN_EXISTING = "return_existing"


class Attempt(NamedTuple):
    """One run of a job; its lease distinguishes it from the runs before and after it."""

    job_id: JobId
    lease: int


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A key that at most one job holds: forever, for `seconds`, or until that job is over."""

    key: str
    seconds: float | None = None  # None: does not expire
    while_active: bool = False  # True: freed when the job is over
    on_conflict: OnConflict = OnConflict.REJECT
    newest_wins: bool = False  # the holder takes over the payload of a newer duplicate


class NewJob(NamedTuple):
    """A job to enqueue, validated and completed before it reaches a store."""

    id: JobId
    type: str
    payload: str  # JSON text of an object
    queue: str = "default"
    priority: int = 100
    max_attempts: int = 5
    visibility_ms: int = 30_000
    delay_seconds: float = 0.0
    available_at: datetime | None = None  # instead of a delay
    company_id: str | None = None
    limit_key: str | None = None
    trace: str | None = None  # W3C traceparent of the producer
    unique: UniqueKey | None = None


class Newest(NamedTuple):
    """The newest enqueue that a job took over: the payload that the job runs with, and its place in the order."""

    id: JobId  # of the enqueue that created no job: its place in the order
    payload: str  # JSON text


class Receipt(NamedTuple):
    """The answer of enqueue: the job's id, and whether this call created it."""

    job_id: JobId
    created: bool
    removed: bool = False  # retention removed the job: a unique key can outlive it


LEASES_PER_RETRY = 65_536
"""An operator's retry rounds the lease number up to a multiple of this: the remainder counts the claims since."""


def lease_after_retry(lease: int) -> int:
    """Returns the lease number of a job that an operator retries; its next claim gets the number after it."""
    return -(-lease // LEASES_PER_RETRY) * LEASES_PER_RETRY


class Claimed(NamedTuple):
    """A claimed job, as its owner receives it."""

    id: JobId
    lease: int  # the fencing token: grows by one at every claim, never reset
    attempt: int  # counted from 1
    max_attempts: int
    deaths: int  # how many processes died while running it
    priority: int
    type: str
    payload: str  # JSON text
    company_id: str | None
    limit_key: str | None
    trace: str | None

    @property
    def releases(self) -> int:
        """How often the job was released since it was enqueued or last retried by an operator."""
        return max(0, self.lease % LEASES_PER_RETRY - self.attempt)


class Failed(NamedTuple):
    """What is recorded of a failed attempt, besides its error."""

    id: str
    payload: str  # JSON text, redacted
    stack: str | None
    counted: bool = False  # add to the record with this id, if any; never for the last attempt


class Settlement(NamedTuple):
    """The end of one attempt, as its owner reports it."""

    job_id: JobId
    lease: int
    outcome: int = Outcome.SUCCEEDED
    seconds: float | None = 0.0  # run time of the handler; None: it did not start, and no rate counts it
    delay_seconds: float = 0.0  # until the job is available again, if it waits again
    result: str | None = None  # JSON text
    error: str | None = None
    type: str = ""  # of the job; type and queue are for the counters
    queue: str = ""
    failure: Failed | None = None  # if the attempt failed


class Progress(NamedTuple):
    job_id: JobId
    lease: int
    percent: int
    message: str | None


class Held(NamedTuple):
    """A lease that a worker holds, as the store sees it."""

    job_id: JobId
    lease: int
    owner: WorkerId
    attempt: int
    max_attempts: int
    deaths: int
    cancel_requested: bool
    type: str
    queue: str


class Rescued(NamedTuple):
    """A job whose lease expired, and its status now."""

    job_id: JobId
    type: str
    queue: str
    owner: WorkerId
    attempt: int
    max_attempts: int
    status: Status  # queued, failed or cancelled


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker process, from its start to its end."""

    id: WorkerId
    name: str
    queues: tuple[str, ...]
    types: tuple[str, ...] = ()  # with a handler; empty: unknown, the recorded types stay


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    id: WorkerId
    name: str
    queues: tuple[str, ...]
    types: tuple[str, ...]  # with a handler; empty until the worker reports them
    started_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class Peek:
    """Whether a queue has a job to claim now, or when it will."""

    queue: str
    ready: bool
    due_in_seconds: float | None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job with all of its fields."""

    id: JobId
    type: str
    queue: str
    status: Status
    payload: str  # JSON text
    priority: int
    attempts: int
    max_attempts: int
    deaths: int
    lease: int
    visibility_timeout_ms: int
    created_at: datetime
    available_at: datetime
    updated_at: datetime
    locked_at: datetime | None = None
    lock_owner: WorkerId | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: int | None = None
    message: str | None = None
    cancel_requested: bool = False
    result: str | None = None  # JSON text
    error: str | None = None
    company_id: str | None = None
    limit_key: str | None = None
    unique_key: str | None = None
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list, retry or discard; empty fields match all."""

    status: Status | None = None
    type: str | None = None
    queue: str | None = None
    company_id: str | None = None
    ids: Sequence[JobId] | None = None
    type_prefix: str | None = None  # instead of `type`: all types that begin with it
    reason: str | None = None  # see overview.reason_of; only with status FAILED
    since: datetime | None = None  # enqueued at or after this, by the time in the id
    until: datetime | None = None  # enqueued before this

    def __post_init__(self) -> None:
        if self.reason is not None and self.status is not Status.FAILED:
            raise ValueError("a reason can only be searched for among failed jobs: add the status failed")


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first, and the cursor of the next page."""

    jobs: list[JobRecord]
    next_cursor: str | None


class CancelResult(StrEnum):
    """The effect of a cancellation request."""

    CANCELLED = "cancelled"  # it waited and will not run
    REQUESTED = "requested"  # it runs; its owner is asked to stop
    ALREADY_FINAL = "already_final"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class Retried:
    """The effect of an operator's retry: queued ids, and ids whose unique key another job now holds."""

    retried: list[JobId]
    conflicts: list[JobId] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class QueueRecord:
    name: str
    paused: bool
    ready: int
    delayed: int
    processing: int
    oldest_ready_seconds: float | None


@dataclass(frozen=True, slots=True)
class Limit:
    """How many jobs of one key may run at once, and how many may start in any window of `per_seconds`.

    A job's limit key is the limit's name, or `name:part`; each part is counted separately.
    """

    name: str
    concurrency: int | None = None
    rate: int | None = None
    per_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class KeepPolicy:
    """Which finished jobs are removed: older than `days`, or beyond the newest `count`. None: no such limit."""

    days: float | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The schema version of a store, and that of this release."""

    current: int  # 0: none
    wanted: int
    oldest: int = 0  # releases whose schema is older than this no longer work with the current one

    @property
    def usable(self) -> bool:
        """Whether this release works with the schema: its own version, or a later compatible one."""
        return self.oldest <= self.wanted <= self.current

    @property
    def newer(self) -> bool:
        return self.current > self.wanted


class Severity(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """A result of `doctor`, with advice."""

    check: str
    severity: Severity
    message: str
    advice: str = ""
