"""Rowlock: durable jobs on the database that you already run."""

import importlib
import typing

from rowlock.clock import FakeClock
from rowlock.errors import (
    BadCursor,
    BadPayload,
    CallError,
    CallFailed,
    CallRefused,
    CallUncertain,
    CompanyMismatch,
    DeadlineExceeded,
    DuplicateImport,
    DuplicateJob,
    FileRefused,
    ImportFault,
    ImportIsOver,
    ImportNotFound,
    ImportNotResumable,
    IntegrationDisabled,
    IntegrationNotFound,
    JobCancelled,
    JobError,
    JobFailed,
    JobIsOver,
    JobNotFound,
    JobNotRetryable,
    JobNotWaiting,
    LeaseLost,
    NoticeFailed,
    NoTransactions,
    OperationNotFound,
    Outcome,
    PayloadTooLarge,
    Permanent,
    QueueFull,
    RateLimited,
    RequestFailed,
    Retry,
    RowlockError,
    ScheduleNotFound,
    SchemaMissing,
    SchemaTampered,
    SchemaTooNew,
    SettingsError,
    Snooze,
    StatementRefused,
    StoreConflict,
    StoreError,
    StoreUnavailable,
    SyncError,
    TokenNotFound,
    TransactionTooLarge,
    UnknownImportType,
    UnknownJobType,
    ValueRefused,
)

if typing.TYPE_CHECKING:
    from rowlock.app import Handler, IdempotencyLock, Rowlock
    from rowlock.imports.formats import Formats
    from rowlock.imports.importer import Duplicates, Importer, Policy
    from rowlock.imports.run import Run
    from rowlock.jobs.job import Job
    from rowlock.jobs.locks import Lock
    from rowlock.jobs.policy import Backoff, QueueProfile, Unique
    from rowlock.jobs.schedule import Missed, Schedule
    from rowlock.jobs.transaction import JobTransaction
    from rowlock.settings import Settings
    from rowlock.storage.records import CancelResult, JobRecord, Limit, Page, Receipt, Status
    from rowlock.storage.reliability import FailurePage, FailureRecord
    from rowlock.storage.tables import Loaded, Mode
    from rowlock.sync.call import Call, Calls
    from rowlock.sync.integration import Integration
    from rowlock.sync.operation import Operation, Update
    from rowlock.sync.rate_limit import RateLimit
    from rowlock.sync.response import Answer

__all__ = [
    "Answer",
    "Backoff",
    "BadCursor",
    "BadPayload",
    "Call",
    "CallError",
    "CallFailed",
    "CallRefused",
    "CallUncertain",
    "Calls",
    "CancelResult",
    "CompanyMismatch",
    "DeadlineExceeded",
    "DuplicateImport",
    "DuplicateJob",
    "Duplicates",
    "FailurePage",
    "FailureRecord",
    "FakeClock",
    "FileRefused",
    "Formats",
    "Handler",
    "IdempotencyLock",
    "ImportFault",
    "ImportIsOver",
    "ImportNotFound",
    "ImportNotResumable",
    "Importer",
    "Integration",
    "IntegrationDisabled",
    "IntegrationNotFound",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobIsOver",
    "JobNotFound",
    "JobNotRetryable",
    "JobNotWaiting",
    "JobRecord",
    "JobTransaction",
    "LeaseLost",
    "Limit",
    "Loaded",
    "Lock",
    "Missed",
    "Mode",
    "NoTransactions",
    "NoticeFailed",
    "Operation",
    "OperationNotFound",
    "Outcome",
    "Page",
    "PayloadTooLarge",
    "Permanent",
    "Policy",
    "QueueFull",
    "QueueProfile",
    "RateLimit",
    "RateLimited",
    "Receipt",
    "RequestFailed",
    "Retry",
    "Rowlock",
    "RowlockError",
    "Run",
    "Schedule",
    "ScheduleNotFound",
    "SchemaMissing",
    "SchemaTampered",
    "SchemaTooNew",
    "Settings",
    "SettingsError",
    "Snooze",
    "StatementRefused",
    "Status",
    "StoreConflict",
    "StoreError",
    "StoreUnavailable",
    "SyncError",
    "TokenNotFound",
    "TransactionTooLarge",
    "Unique",
    "UnknownImportType",
    "UnknownJobType",
    "Update",
    "ValueRefused",
]

# All are loaded when the first is used, since an application uses most of them. Loading takes 0.4 s of CPU.
_MODULES = {
    "IdempotencyLock": "rowlock.app",
    "Handler": "rowlock.app",
    "Rowlock": "rowlock.app",
    "Formats": "rowlock.imports.formats",
    "Duplicates": "rowlock.imports.importer",
    "Importer": "rowlock.imports.importer",
    "Policy": "rowlock.imports.importer",
    "Run": "rowlock.imports.run",
    "Lock": "rowlock.jobs.locks",
    "Job": "rowlock.jobs.job",
    "Backoff": "rowlock.jobs.policy",
    "QueueProfile": "rowlock.jobs.policy",
    "Unique": "rowlock.jobs.policy",
    "Missed": "rowlock.jobs.schedule",
    "Schedule": "rowlock.jobs.schedule",
    "JobTransaction": "rowlock.jobs.transaction",
    "Settings": "rowlock.settings",
    "CancelResult": "rowlock.storage.records",
    "JobRecord": "rowlock.storage.records",
    "Limit": "rowlock.storage.records",
    "Page": "rowlock.storage.records",
    "Receipt": "rowlock.storage.records",
    "Status": "rowlock.storage.records",
    "FailurePage": "rowlock.storage.reliability",
    "FailureRecord": "rowlock.storage.reliability",
    "Loaded": "rowlock.storage.tables",
    "Mode": "rowlock.storage.tables",
    "RateLimit": "rowlock.sync.rate_limit",
    "Answer": "rowlock.sync.response",
    "Call": "rowlock.sync.call",
    "Calls": "rowlock.sync.call",
    "Integration": "rowlock.sync.integration",
    "Operation": "rowlock.sync.operation",
    "Update": "rowlock.sync.operation",
}


if not typing.TYPE_CHECKING:  # a type checker would take any name for public

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals().update({each: getattr(importlib.import_module(home), each) for each, home in _MODULES.items()})
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
