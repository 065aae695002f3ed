"""Rowlock: durable jobs on the database that you already run."""

from rowlock.app import Guard, Handler, Rowlock
from rowlock.clock import FakeClock
from rowlock.errors import (
    BadPayload,
    DeadlineExceeded,
    DuplicateJob,
    JobCancelled,
    JobError,
    JobNotFound,
    JobNotRetryable,
    LeaseLost,
    NoticeFailed,
    Outcome,
    PayloadTooLarge,
    Permanent,
    QueueFull,
    RateLimited,
    Retry,
    RowlockError,
    SchemaMissing,
    SchemaTampered,
    SchemaTooNew,
    SettingsError,
    Snooze,
    StoreError,
    StoreUnavailable,
    UnknownJobType,
)
from rowlock.jobs.guard import Lock
from rowlock.jobs.job import Job
from rowlock.jobs.policy import Backoff, QueueProfile, Unique
from rowlock.jobs.schedule import Missed, Schedule
from rowlock.jobs.transaction import JobTransaction
from rowlock.settings import Settings
from rowlock.storage.records import CancelResult, JobRecord, Limit, Page, Receipt, Status
from rowlock.storage.reliability import FailurePage, FailureRecord

__all__ = [
    "Backoff",
    "BadPayload",
    "CancelResult",
    "DeadlineExceeded",
    "DuplicateJob",
    "FailurePage",
    "FailureRecord",
    "FakeClock",
    "Guard",
    "Handler",
    "Job",
    "JobCancelled",
    "JobError",
    "JobNotFound",
    "JobNotRetryable",
    "JobRecord",
    "JobTransaction",
    "LeaseLost",
    "Limit",
    "Lock",
    "Missed",
    "NoticeFailed",
    "Outcome",
    "Page",
    "PayloadTooLarge",
    "Permanent",
    "QueueFull",
    "QueueProfile",
    "RateLimited",
    "Receipt",
    "Retry",
    "Rowlock",
    "RowlockError",
    "Schedule",
    "SchemaMissing",
    "SchemaTampered",
    "SchemaTooNew",
    "Settings",
    "SettingsError",
    "Snooze",
    "Status",
    "StoreError",
    "StoreUnavailable",
    "Unique",
    "UnknownJobType",
]
