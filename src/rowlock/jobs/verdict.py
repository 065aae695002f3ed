"""From what a handler did to how its attempt ends: the one place that decides."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from datetime import datetime

from rowlock.errors import DeadlineExceeded, JobCancelled, LeaseLost, RateLimited, Retry, Snooze
from rowlock.ids import uuid7
from rowlock.jobs.classify import describe, is_permanent, stack_of
from rowlock.jobs.policy import Backoff
from rowlock.jobs.registry import JobType
from rowlock.observe.redact import Redactor
from rowlock.storage.records import Claimed, Failed, Held, JobId, Outcome, Settlement


class ShuttingDown(Exception):
    """The worker stops; the job goes back with its attempt not spent."""


def after_error(
    claimed: Claimed,
    queue: str,
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
        failure = None
        if outcome in (Outcome.FAILED, Outcome.RETRY):
            failure = Failed(uuid7(), redact.payload(claimed.payload), stack_of(error, redact))
        return Settlement(
            claimed.id, claimed.lease, outcome, seconds, delay_seconds, None, text, claimed.type, queue, failure
        )

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
    held: Sequence[Held], begun: Container[tuple[JobId, int]], deaths_max: int, reason: str
) -> list[Settlement]:
    """How the attempts end that a process held when it died.

    What had not begun goes back. The culprit is whoever ran alone, or was the only one there that one more death would
    condemn; where that says nothing, all are suspects: the death counts for each, the attempt for none.
    """
    ran = [lease for lease in held if (lease.job_id, lease.lease) in begun]
    tried = [lease for lease in ran if on_trial(lease.deaths, deaths_max)]
    culprits = ran if len(ran) == 1 else tried if len(tried) == 1 else []
    ends = []
    for lease in held:
        if lease in culprits:
            ends.append(_of_culprit(lease, deaths_max, reason))
        elif lease in ran and not culprits:
            ends.append(_of(lease, Outcome.SUSPECT, f"{reason}, beside other jobs"))
        else:
            ends.append(_of(lease, Outcome.RELEASE))
    return ends


def on_trial(deaths: int, deaths_max: int) -> bool:
    """Whether the next death would condemn this job: then it starts alone in its process, so that it is fair."""
    return deaths >= max(1, deaths_max - 1)


def _of_culprit(lease: Held, deaths_max: int, reason: str) -> Settlement:
    if lease.deaths + 1 >= deaths_max:
        text = f"quarantined: {lease.deaths + 1} processes died while they ran this job; the last: {reason}"
        return _of(lease, Outcome.FATAL, text)
    if lease.attempt >= lease.max_attempts:
        text = f"{reason} (attempt {lease.attempt} of {lease.max_attempts}, the last)"
        return _of(lease, Outcome.FATAL, text)
    return _of(lease, Outcome.CRASH, reason)


def _of(lease: Held, outcome: Outcome, error: str | None = None) -> Settlement:
    return Settlement(lease.job_id, lease.lease, outcome, error=error, type=lease.type, queue=lease.queue)


def deadline_error(seconds: float) -> DeadlineExceeded:
    return DeadlineExceeded(f"the handler ran past its deadline of {seconds:g} s")
