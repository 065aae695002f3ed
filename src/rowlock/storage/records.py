"""What passes between the engine and a store: plain values, no behaviour.

Tuples where one is made per job on the busy path, frozen dataclasses elsewhere.
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
    """Where a job is in its life. The last three are final except by an operator."""

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
    """How one attempt ends. Up to CANCELLED, and with FATAL, the job is over; otherwise it waits again."""

    SUCCEEDED = 1
    FAILED = 2
    CANCELLED = 3
    RETRY = 4  # the attempt counts
    RELEASE = 5  # the attempt is given back
    CRASH = 6  # the attempt counts, and so does the death of its process
    SUSPECT = 7  # its process died, perhaps of another job: the death counts, the attempt is given back
    FATAL = 8  # failed for good by the death of its process, which counts

    @property
    def final(self) -> bool:
        return self <= Outcome.CANCELLED or self is Outcome.FATAL


class OnConflict(StrEnum):
    REJECT = "reject"
    RETURN_EXISTING = "return_existing"


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A key that at most one job holds, forever, for a while, or until that job is over."""

    key: str
    seconds: float | None = None  # None: does not expire
    while_active: bool = False  # True: freed when its job is over
    on_conflict: OnConflict = OnConflict.REJECT


class NewJob(NamedTuple):
    """A job to enqueue; everything is checked and filled in before it reaches a store."""

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


class Receipt(NamedTuple):
    """What enqueue answers: the job's id, and whether this call created it."""

    job_id: JobId
    created: bool


class Claimed(NamedTuple):
    """A job as its new owner gets it."""

    id: JobId
    lease: int  # the fencing token: grows by one at every claim, never reset
    attempt: int  # this one, counted from 1
    max_attempts: int
    deaths: int  # how many processes died while they ran it
    priority: int
    type: str
    payload: str  # JSON text
    company_id: str | None
    limit_key: str | None
    trace: str | None


class Failed(NamedTuple):
    """What is kept of an attempt that failed, besides its error."""

    id: str
    payload: str  # JSON text, redacted
    stack: str | None


class Settlement(NamedTuple):
    """The end of one attempt, as its owner reports it."""

    job_id: JobId
    lease: int
    outcome: int = Outcome.SUCCEEDED
    seconds: float = 0.0  # how long the handler ran
    delay_seconds: float = 0.0  # before it is available again, where it waits again
    result: str | None = None  # JSON text
    error: str | None = None
    type: str = ""  # of the job; this and its queue are for the counts
    queue: str = ""
    failure: Failed | None = None  # where the attempt failed


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
    """A job whose lease ran out, and what became of it."""

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


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    id: WorkerId
    name: str
    queues: tuple[str, ...]
    started_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class Glance:
    """Whether a queue has something to claim now, or when it will."""

    queue: str
    ready: bool
    due_in_seconds: float | None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The durable record of a job, whole."""

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
    type_prefix: str | None = None  # instead of a type: all that begin with it
    reason: str | None = None  # the first line of the error, see overview.reason_of; of failed jobs alone
    since: datetime | None = None  # enqueued at or after this, by the time in their ids
    until: datetime | None = None  # enqueued before this

    def __post_init__(self) -> None:
        if self.reason is not None and self.status is not Status.FAILED:
            raise ValueError("a reason is looked for among failed jobs alone: give the status failed")


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first, and the cursor of the next page."""

    jobs: list[JobRecord]
    next_cursor: str | None


class CancelResult(StrEnum):
    """What asking for a cancellation did."""

    CANCELLED = "cancelled"  # it was waiting and will not run
    REQUESTED = "requested"  # it runs; its handler is told
    ALREADY_FINAL = "already_final"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class Retried:
    """What an operator's retry did: re-queued ids, and ids whose unique key another job holds now."""

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
    """How many jobs of one key may run at once, and how many may start in any window.

    A job's limit key is the limit's name, or `name:part`, each part counted on its own.
    """

    name: str
    concurrency: int | None = None
    rate: int | None = None
    per_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class KeepPolicy:
    """Which finished jobs go: those older than `days`, and those beyond the newest `count`. None: no such limit."""

    days: float | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class SchemaState:
    current: int
    wanted: int


class Severity(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """What `doctor` found, and what to do about it."""

    check: str
    severity: Severity
    message: str
    advice: str = ""
