"""Every error that Rowlock raises, in one tree.

RowlockError
├── SettingsError            a setting or declaration is missing, malformed or out of range
├── StoreError               the store refused or failed an operation
│   ├── StoreUnavailable     the store is unreachable, read-only or out of space
│   │   └── StoreConflict    a deadlock, write conflict or lock; the store rolled the transaction back
│   ├── ValueRefused         the store cannot hold a value of the request
│   ├── StatementRefused     a right, a table or a column is missing for the statement
│   ├── NoTransactions       the store has no transactions: MongoDB without a replica set
│   ├── TransactionTooLarge  the writes do not fit in one transaction: MongoDB
│   ├── SchemaTooNew         a newer Rowlock has migrated the store
│   ├── SchemaMissing        the store lacks migrations
│   └── SchemaTampered       an applied migration differs from the one in this release
├── NoticeFailed             a notification did not reach every target
├── BadCursor                the cursor is unknown
├── ScheduleNotFound         no schedule has this name
├── TokenNotFound            no token has this id
├── RequestFailed            a server answered with an error
├── ImportFault              base class of errors about imports
│   ├── UnknownImportType    no importer is declared under this name
│   ├── FileRefused          the file cannot be imported; the code and the message say why
│   ├── DuplicateImport      the same file was imported before
│   ├── ImportNotFound       no import has this id
│   ├── ImportIsOver         the import has ended and cannot be cancelled
│   └── ImportNotResumable   the import cannot be resumed; the message says why
├── SyncError                base class of errors about integrations and their calls
│   ├── IntegrationNotFound  no integration is declared under this name
│   ├── OperationNotFound    the integration has no operation of this name
│   ├── IntegrationDisabled  the integration is disabled; the message gives the reason
│   └── CallError            base class of errors about one call
│       ├── CallFailed       the service answered with an error or was unreachable
│       ├── CallRefused      the service rejected the credential, or it lacks a scope
│       └── CallUncertain    no complete answer arrived: the service may have acted or not
├── JobError                 base class of errors about jobs
│   ├── UnknownJobType       no handler is registered under this name
│   ├── BadPayload           the payload does not match the handler
│   │   └── PayloadTooLarge  the payload exceeds the limit
│   ├── CompanyMismatch      the request reaches beyond the caller's company
│   ├── DuplicateJob         the unique key is taken
│   ├── QueueFull            the queue has reached its limit of waiting jobs
│   ├── JobNotFound          no job has this id
│   ├── JobNotRetryable      only failed and cancelled jobs can be retried
│   ├── JobIsOver            the job has ended and cannot be cancelled
│   ├── JobNotWaiting        the job runs or has ended and cannot be run now
│   ├── JobFailed            the job ran at once, in resilient mode, and failed
│   ├── LeaseLost            another attempt owns the job
│   ├── DeadlineExceeded     the handler ran past its deadline
│   └── JobCancelled         the job was cancelled while it ran
└── Outcome                  base class of what a handler raises to choose its outcome
    ├── Retry                try again, after a delay of the handler's choice
    ├── Snooze               try again later; the attempt does not count
    ├── Permanent            never try again
    └── RateLimited          pause a limit key for the whole fleet, then try again
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

KEY_LENGTH_MAX = 200
DELAY_SECONDS_MAX = 10 * 366 * 86_400.0


class RowlockError(Exception):
    """Base class of all errors that Rowlock raises; `code` is stable."""

    code = "error"


class SettingsError(RowlockError):
    """Raised when a setting or declaration is missing, malformed or out of range."""

    code = "bad_setting"


class StoreError(RowlockError):
    """Raised when the store refuses or fails an operation."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """Raised when the store is unreachable, read-only or out of space.

    If the connection breaks during a commit, the change may have been recorded.
    """

    code = "store_unavailable"


class StoreConflict(StoreUnavailable):
    """Raised when a deadlock, write conflict or lock stops a transaction; nothing of it was recorded.

    The same transaction can be tried again at once.
    """

    code = "store_conflict"


class ValueRefused(StoreError):
    """Raised when the store cannot hold a value of the request: too large, malformed or against a constraint.

    The same request would be refused again. Stores raise it only for error codes that can have no other cause;
    timeouts, cancelled statements, conflicts and internal errors are plain StoreErrors or StoreUnavailable.
    """

    code = "value_refused"


class StatementRefused(StoreError):
    """Raised when a statement lacks a right, a table or a column, or is wrong.

    The same request is refused again until that changes; the message says what to change.
    """

    code = "statement_refused"


class NoTransactions(StoreError):
    """Raised when an operation needs a transaction and the store has none: MongoDB without a replica set.

    Trying again does not help.
    """

    code = "no_transactions"


class TransactionTooLarge(StoreError):
    """Raised when the writes do not fit in one transaction: MongoDB keeps open transactions in its cache.

    The same transaction fails again; several smaller ones do not.
    """

    code = "transaction_too_large"


class SchemaTooNew(StoreError):
    """Raised when a newer Rowlock has migrated the store; upgrade this one before it touches the data."""

    code = "schema_too_new"


class SchemaMissing(StoreError):
    """Raised when the store lacks migrations that this Rowlock needs; run `rowlock migrate`."""

    code = "schema_missing"


class SchemaTampered(StoreError):
    """Raised when a migration recorded in the store differs from the one in this release."""

    code = "schema_tampered"


class NoticeFailed(RowlockError):
    """Raised when a notification did not reach every target; names the failed ones, without their secrets."""

    code = "notice_failed"


class BadCursor(RowlockError):
    """Raised for an unknown cursor; omit the cursor to start with the newest."""

    code = "bad_cursor"


class ScheduleNotFound(RowlockError):
    """Raised when no schedule has this name."""

    code = "schedule_not_found"


class TokenNotFound(RowlockError):
    """Raised when no token has this id."""

    code = "token_not_found"


class RequestFailed(RowlockError):
    """Raised when a server answers with an error; `code` and `status` are those of the answer."""

    code = "request_failed"

    def __init__(self, message: str, *, code: str = "request_failed", status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class ImportFault(RowlockError):
    """Raised when a file cannot be imported, or an import cannot be found or changed."""

    code = "import_error"


class UnknownImportType(ImportFault):
    """Raised when no importer is declared under this name."""

    code = "unknown_import_type"


class FileRefused(ImportFault):
    """Raised when a file cannot be imported; nothing of it was loaded. The code and the message say why."""

    code = "file_refused"

    def __init__(self, message: str, *, code: str = "file_refused", more: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.more = more or {}  # details for programs: columns found, nearest names


class DuplicateImport(ImportFault):
    """Raised when the same file was imported before for the same type and company; use force to import it again."""

    code = "duplicate_import"

    def __init__(self, message: str, *, existing_import_id: str) -> None:
        super().__init__(message)
        self.existing_import_id = existing_import_id


class ImportNotFound(ImportFault):
    """Raised when no import has this id; retention may have removed it."""

    code = "import_not_found"


class ImportIsOver(ImportFault):
    """Raised when an import cannot be cancelled because it has ended."""

    code = "import_is_over"


class ImportNotResumable(ImportFault):
    """Raised when an import cannot be resumed, for example because its files are gone; the message says why."""

    code = "import_not_resumable"


class SyncError(RowlockError):
    """Raised when an integration cannot be used or a call of its service fails."""

    code = "sync_error"


class IntegrationNotFound(SyncError):
    """Raised when no integration is declared under this name."""

    code = "integration_not_found"


class OperationNotFound(SyncError):
    """Raised when the integration has no operation of this name."""

    code = "operation_not_found"


class IntegrationDisabled(SyncError):
    """Raised when the integration is disabled; nothing was enqueued. The message gives the declared reason."""

    code = "integration_disabled"


class CallError(SyncError):
    """Base class of errors about one call of a service; `answer` is the service's answer, or None."""

    code = "call_error"

    def __init__(self, message: str, *, answer: Any = None) -> None:
        super().__init__(message)
        self.answer = answer  # an Answer or None
        self.status: int | None = None if answer is None else answer.status
        self.category: str | None = None if answer is None else answer.category
        self.request_id: str | None = None if answer is None else answer.request_id


class CallFailed(CallError):
    """Raised when the service answers with an error or is unreachable: it has not done what was asked."""

    code = "call_failed"


class CallRefused(CallError):
    """Raised when the service rejects the credential, or the credential lacks a scope. Trying again does not help."""

    code = "call_refused"


class CallUncertain(CallError):
    """Raised when no complete answer arrived in time: the service may have acted or not. Check before trying again."""

    code = "call_uncertain"


class JobError(RowlockError):
    """Raised when a job cannot be enqueued, found or settled."""

    code = "job_error"


class UnknownJobType(JobError):
    """Raised when no handler is registered for this job type."""

    code = "unknown_job_type"


class BadPayload(JobError):
    """Raised when the payload is not the JSON object that the handler's signature requires."""

    code = "bad_payload"


class PayloadTooLarge(BadPayload):
    """Raised when the payload exceeds the limit; store the data elsewhere and pass a reference."""

    code = "payload_too_large"


class CompanyMismatch(JobError):
    """Raised when a request of one company concerns another company or all of them; nothing was done."""

    code = "company_scope"


class DuplicateJob(JobError):
    """Raised when another job holds the same unique key; a key may outlive its job."""

    code = "duplicate_job"

    def __init__(self, message: str, *, existing_job_id: str, removed: bool = False) -> None:
        super().__init__(message)
        self.existing_job_id = existing_job_id
        self.removed = removed  # retention has removed that job; only its key is left


class QueueFull(JobError):
    """Raised when the queue has reached its limit of waiting jobs; nothing was enqueued."""

    code = "queue_full"


class JobNotFound(JobError):
    """Raised when no job has this id; retention may have removed it."""

    code = "job_not_found"


class JobNotRetryable(JobError):
    """Raised when a job cannot be retried: it has not failed or been cancelled, or its unique key is taken."""

    code = "job_not_retryable"


class JobIsOver(JobError):
    """Raised when a job cannot be cancelled because it has ended."""

    code = "job_is_over"


class JobNotWaiting(JobError):
    """Raised when a job cannot be run now because it runs or has ended."""

    code = "job_not_waiting"


class JobFailed(JobError):
    """Raised when a job ran at once, in resilient mode, and failed; it does not run again."""

    code = "job_failed"


class LeaseLost(JobError):
    """Raised when another attempt owns the job; the result of this attempt was not recorded."""

    code = "lease_lost"


class DeadlineExceeded(JobError):
    """Raised when a handler ran past its deadline and was stopped."""

    code = "deadline_exceeded"


class JobCancelled(JobError):
    """Raised when a job is cancelled while it runs."""

    code = "job_cancelled"


def _seconds(what: str, value: float) -> float:
    """Return the delay, clamped to what every store accepts.

    Raises ValueError for anything but a finite number, so that the attempt fails like any other.
    """
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{what} takes a number of seconds, not {value!r}")
    return min(max(0.0, float(value)), DELAY_SECONDS_MAX)


class Outcome(RowlockError):
    """Base class of the exceptions with which a handler chooses the outcome of its attempt."""

    code = "outcome"


class Retry(Outcome):
    """Raised by a handler to try again; `after` in seconds replaces the type's backoff. The attempt counts."""

    code = "retry"

    def __init__(self, reason: str = "retry requested", *, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = None if after is None else _seconds("Retry(after=...)", after)


class Snooze(Outcome):
    """Raised by a handler to try again after `seconds`; the attempt does not count."""

    code = "snooze"

    def __init__(self, seconds: float, reason: str = "snoozed") -> None:
        super().__init__(reason)
        self.seconds = _seconds("Snooze(...)", seconds)


class Permanent(Outcome):
    """Raised by a handler to never try again: the job becomes a dead letter with this reason."""

    code = "permanent"


class RateLimited(Outcome):
    """Raised by a handler to pause the limit key `key` for the whole fleet and try this job again after the pause.

    The pause ends at `until` or after `seconds`; the attempt does not count.
    """

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
        """Whether `until` was given, which is compared with the store's clock."""
        return self._until is not None

    def wait_seconds(self, now: datetime) -> float:
        """Return the length of the pause in seconds from `now`, the store's time."""
        if self._until is None:
            return max(0.0, self._seconds or 0.0)
        return max(0.0, (self._until - now) / timedelta(seconds=1))
