"""Dead letters by reason, the results of changing many at once, and failed attempts."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from rowlock.management.schemas.base import EXAMPLE_ID, Schema, Time, plain_value
from rowlock.observe.redaction import Redactor
from rowlock.storage.reliability import FailureRecord


class DeadGroupSchema(Schema):
    """Failed jobs of one type that failed for the same reason."""

    type: str
    reason: str = Field(description="The first line of the error, at most 200 characters; filter by it with `reason`.")
    count: int
    first_at: Time
    last_at: Time
    sample_id: str = Field(description="The newest job of the group.", examples=[EXAMPLE_ID])
    guidance: list[str] = Field(description="Guidance: what to do about them.")


class DeadGroupsSchema(Schema):
    """Failed jobs by type and reason, the largest group first."""

    groups: list[DeadGroupSchema]
    more: bool = Field(description="True: there are more than 200 groups; only 200 are listed.")
    looked_at: int = Field(description="Number of failed jobs that were counted, newest first.")
    complete: bool = Field(description="False: not all failed jobs were counted, so counts may be larger.")


class RetriedSchema(Schema):
    dry_run: bool
    matched: int = Field(
        description="Number of jobs examined; in a dry run, number of jobs that match (at most 1,000,000)."
    )
    retried: int
    conflicts: list[str] = Field(description="Jobs that stay failed because another job has their unique key.")
    next_cursor: str | None


class DiscardedSchema(Schema):
    dry_run: bool
    matched: int
    discarded: int
    next_cursor: str | None


class FailureSchema(Schema):
    """A failed attempt; its payload redacted."""

    id: str
    job_id: str
    job_name: str
    queue_name: str
    company_id: str | None
    payload: dict[str, Any]
    attempts: int
    max_attempts: int
    is_final_attempt: bool
    failed_reason: str
    stack_trace: str | None
    first_failed_at: Time
    occurrences: int = Field(description="Number of identical failures in this record.")
    last_failed_at: Time = Field(description="Time of the last of them.")
    resolved_at: Time | None
    started_at: Time | None = Field(description="Null if an older release recorded it.")
    lock_owner: str | None = Field(description="The worker that ran it.")

    @classmethod
    def of(cls, failure: FailureRecord, redact: Redactor) -> Self:
        return cls(
            id=failure.id,
            job_id=failure.job_id,
            job_name=failure.job_name,
            queue_name=failure.queue_name,
            company_id=failure.company_id,
            payload=plain_value(failure.payload, redact),
            attempts=failure.attempts,
            max_attempts=failure.max_attempts,
            is_final_attempt=failure.is_final_attempt,
            failed_reason=redact.message(failure.failed_reason),
            stack_trace=redact.stack(failure.stack_trace),
            first_failed_at=failure.first_failed_at,
            occurrences=failure.occurrences,
            last_failed_at=failure.last_failed_at or failure.first_failed_at,
            resolved_at=failure.resolved_at,
            started_at=failure.started_at,
            lock_owner=failure.owner,
        )


class FailuresSchema(Schema):
    failures: list[FailureSchema]
    next_cursor: str | None


class RetrySchema(Schema):
    failure_id: str
    job_id: str
