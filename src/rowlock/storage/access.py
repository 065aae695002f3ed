"""What passes between the HTTP API and a store: who may ask, what was asked before, and what has changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rowlock.storage.records import JobId, Status

TokenId = str


class Role(StrEnum):
    """What a token may do; each may do what the one before it may."""

    VIEWER = "viewer"  # look
    OPERATOR = "operator"  # enqueue, retry, cancel, pause
    ADMIN = "admin"  # see raw payloads, and everything under /api/admin

    def covers(self, wanted: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(wanted)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to record: its digest, never itself."""

    id: TokenId
    digest: str  # SHA-256 of the token, in hex
    name: str
    role: Role
    company_id: str | None = None  # None: of all companies
    expires_in_seconds: float | None = None  # None: never


@dataclass(frozen=True, slots=True)
class TokenRecord:
    id: TokenId
    name: str
    role: Role
    company_id: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class RequestState(StrEnum):
    """What is known of a request under its key."""

    NEW = "new"  # nothing: it is the caller's to do
    BROKEN_OFF = "broken_off"  # someone began it long ago and never ended it: the caller's to do, looking first
    RUNNING = "running"  # someone does it now
    DONE = "done"  # its answer is known
    OTHER = "other"  # the key was used for another request


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    state: RequestState
    job_id: JobId  # reserved for the job that it enqueues: the same at every try
    begun_at: datetime  # by the store's clock: names the try that does it, or did
    status: int | None = None  # of the answer, where it is known
    body: str | None = None


@dataclass(frozen=True, slots=True)
class JobChange:
    """A job as it is now, which changed not long ago."""

    id: JobId
    type: str
    queue: str
    status: Status
    attempts: int
    max_attempts: int
    lease: int
    progress: int | None
    message: str | None
    error: str | None
    company_id: str | None
    changed_at: datetime  # by the store's clock


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed since some moment, the oldest change first."""

    jobs: list[JobChange]
    more: bool  # there were more than were asked for: the newest are missing
    looked_at: datetime  # the store's time
