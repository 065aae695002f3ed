"""From what a handler did to how its attempt ends: the one place that decides."""

from __future__ import annotations

import asyncio
from datetime import datetime

from rowlock.errors import DeadlineExceeded, JobCancelled, LeaseLost, RateLimited, Retry, Snooze
from rowlock.jobs.classify import describe, is_permanent
from rowlock.jobs.policy import Backoff
from rowlock.jobs.registry import JobType
from rowlock.observe.redact import Redactor
from rowlock.storage.records import Claimed, Outcome, Settlement


class ShuttingDown(Exception):
    """The worker stops; the job goes back with its attempt not spent."""


def after_error(
    claimed: Claimed,
    declared: JobType | None,
    fallback: Backoff,
    error: BaseException,
    seconds: float,
    redact: Redactor,
    now: datetime,
) -> Settlement | None:
    """How an attempt that raised ends; None when it has nothing to say, its lease being lost."""
    retry = declared.retry if declared else fallback
    reason = describe(error, redact)

    def settled(outcome: Outcome, delay_seconds: float = 0.0, text: str | None = reason) -> Settlement:
        return Settlement(claimed.id, claimed.lease, outcome, seconds, delay_seconds, None, text)

    match error:
        case LeaseLost():
            return None
        case JobCancelled():
            return settled(Outcome.CANCELLED)
        case ShuttingDown():
            return settled(Outcome.RELEASE, text=None)  # not an error of the job's
        case Snooze():
            return settled(Outcome.RELEASE, max(0.0, error.seconds))
        case RateLimited():
            return settled(Outcome.RELEASE, error.wait_seconds(now))
        case asyncio.CancelledError():
            # Cancelled from inside: a task group or a timeout of the handler's own that leaked.
            reason = "CancelledError: the handler was cancelled from within"
    if is_permanent(error, declared.permanent if declared else ()):
        return settled(Outcome.FAILED, text=reason)
    if claimed.attempt >= claimed.max_attempts:
        return settled(Outcome.FAILED, text=f"{reason} (attempt {claimed.attempt} of {claimed.max_attempts}, the last)")
    delay = (
        error.after if isinstance(error, Retry) and error.after is not None else retry.delay_seconds(claimed.attempt)
    )
    return settled(Outcome.RETRY, max(0.0, delay), reason)


def after_death(
    claimed_attempt: int, max_attempts: int, deaths: int, deaths_max: int, job_id: str, lease: int, reason: str
) -> Settlement:
    """How an attempt ends whose process died under it."""
    if deaths + 1 >= deaths_max:
        text = f"quarantined: {deaths + 1} processes died while they ran this job; the last: {reason}"
        return Settlement(job_id, lease, Outcome.FAILED, error=text)
    if claimed_attempt >= max_attempts:
        text = f"{reason} (attempt {claimed_attempt} of {max_attempts}, the last)"
        return Settlement(job_id, lease, Outcome.FAILED, error=text)
    return Settlement(job_id, lease, Outcome.CRASH, error=reason)


def deadline_error(seconds: float) -> DeadlineExceeded:
    return DeadlineExceeded(f"the handler ran past its deadline of {seconds:g} s")
