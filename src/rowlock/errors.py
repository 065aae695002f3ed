"""Every error that Rowlock raises, in one tree.

RowlockError
├── SettingsError            a setting is missing, malformed or out of its limits
├── StoreError               the store said no
│   ├── StoreUnavailable     it cannot be reached, is read-only or has no space left
│   ├── SchemaTooNew         a newer Rowlock has migrated it
│   ├── SchemaMissing        it has not been migrated (far enough)
│   └── SchemaTampered       a migration that ran differs from the one in this release
├── NoticeFailed             a message to staff did not reach every target
├── BadCursor                no page came with this cursor
├── ScheduleNotFound         no schedule has this name
├── TokenNotFound            no token has this id
├── RequestFailed            a server answered with an error
├── ImportFault              about one import
│   ├── UnknownImportType    no importer is declared under this name
│   ├── FileRefused          the file cannot be imported; the code and the message say why
│   ├── DuplicateImport      the same file was imported before
│   ├── ImportNotFound       no import has this id
│   ├── ImportIsOver         there is nothing left to cancel
│   └── ImportNotResumable   only failed and cancelled imports whose files are there can go on
├── SyncError                about an integration, or a call of its service
│   ├── IntegrationNotFound  no integration is declared under this name
│   ├── OperationNotFound    the integration has no operation of this name
│   ├── IntegrationDisabled  it is switched off; the message names the setting that switches it on
│   └── CallError            a call did not end as it should
│       ├── CallFailed       the service answered with an error, or could not be reached
│       ├── CallRefused      the service does not let us: the credential, or a scope that it lacks
│       └── CallUncertain    no whole answer came: the service may have done it, or not
├── JobError                 about one job
│   ├── UnknownJobType       no handler is registered under this name
│   ├── BadPayload           the payload is not what the handler takes
│   │   └── PayloadTooLarge  the payload exceeds the limit
│   ├── CompanyMismatch      the job is for another company than the one that asks
│   ├── DuplicateJob         the unique key is taken
│   ├── QueueFull            the queue holds as many waiting jobs as it may
│   ├── JobNotFound          no job has this id
│   ├── JobNotRetryable      only failed and cancelled jobs can be retried
│   ├── JobIsOver            there is nothing left to cancel
│   ├── JobNotWaiting        it runs or has ended, so it cannot be run sooner
│   ├── JobFailed            it ran at once, in resilient mode, and failed
│   ├── LeaseLost            another attempt owns the job
│   ├── DeadlineExceeded     the handler ran past its deadline
│   └── JobCancelled         someone asked the job to stop
└── Outcome                  what a handler raises to choose how its attempt ends
    ├── Retry                try again, after a delay of the handler's choice
    ├── Snooze               try again later; the attempt does not count
    ├── Permanent            never try again
    └── RateLimited          the key is out of calls: pause it for the whole fleet
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

KEY_LENGTH_MAX = 200
DELAY_SECONDS_MAX = 10 * 366 * 86_400.0


class RowlockError(Exception):
    """Something that Rowlock can name went wrong."""

    code = "error"


class SettingsError(RowlockError):
    """A setting is missing, malformed or out of its limits."""

    code = "bad_setting"


class StoreError(RowlockError):
    """The store refused or failed an operation."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The store cannot be reached, is read-only or has no space left; nothing was recorded."""

    code = "store_unavailable"


class SchemaTooNew(StoreError):
    """The store was migrated by a newer Rowlock; upgrade this one before it touches the data."""

    code = "schema_too_new"


class SchemaMissing(StoreError):
    """The store lacks migrations that this Rowlock needs; run `rowlock migrate`."""

    code = "schema_missing"


class SchemaTampered(StoreError):
    """A migration recorded in the store differs from the one in this release."""

    code = "schema_tampered"


class NoticeFailed(RowlockError):
    """A message to staff did not reach every target; it names those that failed, without their secrets."""

    code = "notice_failed"


class BadCursor(RowlockError):
    """No page came with this cursor; leave it out to begin with the newest."""

    code = "bad_cursor"


class ScheduleNotFound(RowlockError):
    """No schedule has this name."""

    code = "schedule_not_found"


class TokenNotFound(RowlockError):
    """No token has this id."""

    code = "token_not_found"


class RequestFailed(RowlockError):
    """A server answered with an error; its code and status tell which."""

    code = "request_failed"

    def __init__(self, message: str, *, code: str = "request_failed", status: int | None = None) -> None:
        super().__init__(message)
        self.code = code  # of the answer
        self.status = status


class ImportFault(RowlockError):
    """A file could not be imported, or an import not be found or changed."""

    code = "import_error"


class UnknownImportType(ImportFault):
    """No importer is declared under this name."""

    code = "unknown_import_type"


class FileRefused(ImportFault):
    """The file cannot be imported; nothing of it was loaded. The code and the message say why."""

    code = "file_refused"

    def __init__(self, message: str, *, code: str = "file_refused", more: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.more = more or {}  # what a program may want to know: columns found, the nearest names


class DuplicateImport(ImportFault):
    """The same file was imported before, for the same type and company; force it to import it again."""

    code = "duplicate_import"

    def __init__(self, message: str, *, existing_import_id: str) -> None:
        super().__init__(message)
        self.existing_import_id = existing_import_id


class ImportNotFound(ImportFault):
    """No import has this id; it may have been removed by retention."""

    code = "import_not_found"


class ImportIsOver(ImportFault):
    """The import has ended already: there is nothing to cancel."""

    code = "import_is_over"


class ImportNotResumable(ImportFault):
    """Only failed and cancelled imports whose files are still there can be resumed."""

    code = "import_not_resumable"


class SyncError(RowlockError):
    """An integration could not be used, or a call of its service has failed."""

    code = "sync_error"


class IntegrationNotFound(SyncError):
    """No integration is declared under this name."""

    code = "integration_not_found"


class OperationNotFound(SyncError):
    """The integration has no operation of this name."""

    code = "operation_not_found"


class IntegrationDisabled(SyncError):
    """The integration is switched off; nothing was enqueued. The message says what switches it on."""

    code = "integration_disabled"


class CallError(SyncError):
    """A call of a service did not end as it should; the answer, where one came, is with it."""

    code = "call_error"

    def __init__(self, message: str, *, answer: Any = None) -> None:
        super().__init__(message)
        self.answer = answer  # an Answer, where one came
        self.status: int | None = None if answer is None else answer.status
        self.category: str | None = None if answer is None else answer.category
        self.request_id: str | None = None if answer is None else answer.request_id


class CallFailed(CallError):
    """The service answered with an error, or could not be reached: it has not done what was asked."""

    code = "call_failed"


class CallRefused(CallError):
    """The service does not let us: the credential is wrong, or lacks a scope. Trying again does not help."""

    code = "call_refused"


class CallUncertain(CallError):
    """No whole answer came in time: the service may have done it, or not. Look before doing it again."""

    code = "call_uncertain"


class JobError(RowlockError):
    """A job could not be enqueued, found or settled."""

    code = "job_error"


class UnknownJobType(JobError):
    """No handler is registered for this job type."""

    code = "unknown_job_type"


class BadPayload(JobError):
    """The payload is not the JSON object that the handler's signature asks for."""

    code = "bad_payload"


class PayloadTooLarge(BadPayload):
    """The payload is larger than the limit; store the data elsewhere and pass a reference."""

    code = "payload_too_large"


class CompanyMismatch(JobError):
    """The job is for another company than the one that asks; nothing was enqueued."""

    code = "company_scope"


class DuplicateJob(JobError):
    """A job with the same unique key exists already."""

    code = "duplicate_job"

    def __init__(self, message: str, *, existing_job_id: str) -> None:
        super().__init__(message)
        self.existing_job_id = existing_job_id


class QueueFull(JobError):
    """The queue holds as many waiting jobs as its limit allows; nothing was enqueued."""

    code = "queue_full"


class JobNotFound(JobError):
    """No job has this id; it may have been removed by retention."""

    code = "job_not_found"


class JobNotRetryable(JobError):
    """Only failed and cancelled jobs can be retried."""

    code = "job_not_retryable"


class JobIsOver(JobError):
    """The job has ended already: there is nothing to cancel."""

    code = "job_is_over"


class JobNotWaiting(JobError):
    """The job runs or has ended: only a waiting one can be run now."""

    code = "job_not_waiting"


class JobFailed(JobError):
    """The job ran at once, in resilient mode, and failed; nothing was recorded."""

    code = "job_failed"


class LeaseLost(JobError):
    """Another attempt owns this job; this one's result was not recorded."""

    code = "lease_lost"


class DeadlineExceeded(JobError):
    """The handler ran past its deadline and was stopped."""

    code = "deadline_exceeded"


class JobCancelled(JobError):
    """The job was cancelled while it ran."""

    code = "job_cancelled"


def _seconds(what: str, value: float) -> float:
    """A delay that any store takes; raises where a handler gives nonsense, so that it fails like any handler."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{what} takes a number of seconds, not {value!r}")
    return min(max(0.0, float(value)), DELAY_SECONDS_MAX)


class Outcome(RowlockError):
    """A handler chooses how its attempt ends."""

    code = "outcome"


class Retry(Outcome):
    """Try again; `after` in seconds replaces the type's backoff. The attempt counts."""

    code = "retry"

    def __init__(self, reason: str = "retry requested", *, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = None if after is None else _seconds("Retry(after=...)", after)


class Snooze(Outcome):
    """Try again after `seconds`; the attempt is given back."""

    code = "snooze"

    def __init__(self, seconds: float, reason: str = "snoozed") -> None:
        super().__init__(reason)
        self.seconds = _seconds("Snooze(...)", seconds)


class Permanent(Outcome):
    """Never try again: the job goes to the dead-letter queue with this reason."""

    code = "permanent"


class RateLimited(Outcome):
    """Pause `key` for the whole fleet until then, and try this job again; the attempt is given back."""

    code = "rate_limited"

    def __init__(
        self,
        key: str,
        *,
        until: datetime | None = None,
        seconds: float | None = None,
        reason: str = "rate limited",
    ) -> None:
        super().__init__(f"{reason} ({key})")
        if (until is None) == (seconds is None):
            raise TypeError("RateLimited takes exactly one of until= and seconds=")
        if not isinstance(key, str) or not 0 < len(key) <= KEY_LENGTH_MAX or not key.isprintable():
            raise ValueError(f"RateLimited: the key must be 1 to {KEY_LENGTH_MAX} printable characters")
        if until is not None and until.tzinfo is None:
            raise ValueError("RateLimited: `until` needs a time zone")
        self.key = key
        self._until = until
        self._seconds = None if seconds is None else _seconds("RateLimited(seconds=...)", seconds)

    @property
    def absolute(self) -> bool:
        """Whether it names a moment, which the store's clock must judge."""
        return self._until is not None

    def wait_seconds(self, now: datetime) -> float:
        """How long from `now`, the store's time."""
        if self._until is None:
            return max(0.0, self._seconds or 0.0)
        return max(0.0, (self._until - now) / timedelta(seconds=1))
