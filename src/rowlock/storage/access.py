"""Records of the HTTP API: tokens and roles, requests with an idempotency key, and recent changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rowlock.storage.kinds import Index, Kind
from rowlock.storage.records import JobId, Status

TokenId = str


class Role(StrEnum):
    """What a token may do; each role includes those before it."""

    VIEWER = "viewer"  # read
    OPERATOR = "operator"  # enqueue, retry, cancel, pause
    ADMIN = "admin"  # see raw payloads, and everything under /api/admin

    def covers(self, wanted: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(wanted)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to record; only its digest is stored."""

    id: TokenId
    digest: str  # SHA-256 of the token, in hex
    name: str
    role: Role
    company_id: str | None = None  # None: all companies
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


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token as stored, with its digest, which is shown to nobody."""

    id: TokenId
    digest: str
    name: str
    role: Role
    company_id: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None

    def shown(self) -> TokenRecord:
        return TokenRecord(*(getattr(self, name) for name in TokenRecord.__slots__))


TOKENS = Kind(
    "tokens",
    StoredToken,
    key=("id",),
    indexes=(Index("digest", ("digest",), unique=True),),
    uuids=frozenset({"id"}),
    collection="rowlock_tokens",
)


class RequestState(StrEnum):
    """What is known of a request under its idempotency key."""

    NEW = "new"  # nothing: the caller runs it
    BROKEN_OFF = "broken_off"  # begun long ago and never ended: the caller runs it, after a check of what exists
    RUNNING = "running"  # another caller runs it
    DONE = "done"  # its response is stored
    OTHER = "other"  # the key was used for another request


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    state: RequestState
    job_id: JobId  # reserved for the job that it enqueues: the same in every try
    begun_at: datetime  # by the store's clock: identifies the current or last try
    status: int | None = None  # of the response, if DONE
    body: str | None = None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request with an idempotency key, as stored."""

    key: str
    fingerprint: str  # of what was asked under this key
    job_id: JobId  # reserved for the job that it enqueues
    begun_at: datetime  # identifies the try
    released: bool  # the try does not know how it ended
    expires_at: datetime
    status: int | None  # of the response; None: not ended
    body: str | None


REQUESTS = Kind(
    "requests",
    RequestRecord,
    key=("key",),
    indexes=(Index("expiring", ("expires_at",), expires=True),),
    uuids=frozenset({"job_id"}),
    collection="rowlock_requests",
)


@dataclass(frozen=True, slots=True)
class JobChange:
    """A job that changed recently, as it is now."""

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
    """What changed since a given time, the oldest change first."""

    jobs: list[JobChange]
    more: bool  # more than `limit` jobs changed: the newest are missing
    looked_at: datetime  # by the store's clock
