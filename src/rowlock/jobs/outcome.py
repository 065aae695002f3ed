"""Decide the outcome of an attempt, from the handler's exception or from the death of its process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from rowlock.errors import DeadlineExceeded, JobCancelled, LeaseLost, RateLimited, Retry, Snooze
from rowlock.ids import uuid7
from rowlock.jobs.classify import describe, is_permanent, stack_of
from rowlock.jobs.registry import JobType
from rowlock.observe.redaction import Redactor
from rowlock.settings import ERROR_LENGTH_MAX
from rowlock.storage.records import Claimed, Failed, Held, JobId, Outcome, Settlement

_RESULT_REFUSED = "the store refused the job's result: see settle.refused in the worker's log"
_ERROR_REFUSED = "the store refused the job's error: see settle.refused in the worker's log"


class ShuttingDown(Exception):
    """Raised when the worker stops; the job is released and its attempt does not count."""


def after_error(
    claimed: Claimed,
    queue: str,
    declared: JobType,
    error: BaseException,
    seconds: float,
    redact: Redactor,
    now: datetime,
) -> Settlement | None:
    """Return the settlement of an attempt that raised; None if its lease is lost, so that nothing is settled."""
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
            return settled(Outcome.RELEASE, text=None)  # not the job's error
        case Snooze():
            return settled(Outcome.RELEASE, max(0.0, error.seconds))
        case RateLimited():
            return settled(Outcome.RELEASE, error.wait_seconds(now))
        case asyncio.CancelledError():
            # Cancelled from within: a task group or timeout of the handler leaked.
            reason = "CancelledError: the handler was cancelled from within"
    if is_permanent(error, declared.permanent):
        return settled(Outcome.FAILED, text=reason)
    if claimed.attempt >= claimed.max_attempts:
        return settled(Outcome.FAILED, text=_last(reason, claimed.attempt, claimed.max_attempts))
    delay = (
        error.after
        if isinstance(error, Retry) and error.after is not None
        else declared.retry.wait_seconds(claimed.attempt)
    )
    return settled(Outcome.RETRY, max(0.0, delay), reason)


def fails_for_good(claimed: Claimed, permanent: tuple[type[BaseException], ...], error: BaseException) -> bool:
    """Return whether the job fails if its attempt raises this, instead of waiting for another attempt."""
    if isinstance(error, LeaseLost | JobCancelled | ShuttingDown | Snooze | RateLimited):
        return False
    return is_permanent(error, permanent) or claimed.attempt >= claimed.max_attempts


def without_refused(end: Settlement) -> Settlement | None:
    """Return the next shorter form of a settlement that the store refused, or None if no value of the job is left.

    A refused result makes a succeeded attempt a failed one. Every other outcome stays: its error and its failure record
    are replaced, then the failure record is left out.
    """
    bare = Failed(uuid7(), "{}", None)
    if end.result is not None:
        return end._replace(outcome=Outcome.FAILED, result=None, error=_RESULT_REFUSED, failure=bare)
    failure = end.failure
    replaceable = end.error not in (None, _RESULT_REFUSED, _ERROR_REFUSED)
    if replaceable or (failure is not None and (failure.payload, failure.stack) != ("{}", None)):
        error = _ERROR_REFUSED if replaceable else end.error
        return end._replace(error=error, failure=None if failure is None else bare)
    return None if failure is None else end._replace(failure=None)


def after_death(
    held: Sequence[Held], ran_seconds: Mapping[tuple[JobId, int], float], deaths_max: int, reason: str
) -> list[Settlement]:
    """Return the settlements of the jobs that a process held when it died.

    Jobs that had not started are released. The culprit is the job that ran alone, or the only running one that one more
    death would quarantine. Without a culprit, the death counts for each job that ran, the attempt for none.
    `ran_seconds` has the seconds since each started attempt began.
    """
    ran = [lease for lease in held if (lease.job_id, lease.lease) in ran_seconds]
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
    return [end._replace(seconds=ran_seconds.get((end.job_id, end.lease), 0.0)) for end in ends]


def on_trial(deaths: int, deaths_max: int) -> bool:
    """Return whether one more death would quarantine this job; if so, it starts alone in its process, to be fair."""
    return deaths >= max(1, deaths_max - 1)


def _of_culprit(lease: Held, deaths_max: int, reason: str) -> Settlement:
    if lease.deaths + 1 >= deaths_max:
        text = f"quarantined: {lease.deaths + 1} processes died while they ran this job; the last: {reason}"
        return _of(lease, Outcome.FATAL, text)
    if lease.attempt >= lease.max_attempts:
        return _of(lease, Outcome.FATAL, _last(reason, lease.attempt, lease.max_attempts))
    return _of(lease, Outcome.CRASH, reason)


def _last(reason: str, attempt: int, max_attempts: int) -> str:
    """Return the reason of a last attempt with a note appended, cut to ERROR_LENGTH_MAX characters in all."""
    note = f" (attempt {attempt} of {max_attempts}, the last)"
    return reason[: ERROR_LENGTH_MAX - len(note)] + note


def _of(lease: Held, outcome: Outcome, error: str | None = None) -> Settlement:
    return Settlement(lease.job_id, lease.lease, outcome, error=error, type=lease.type, queue=lease.queue)


def deadline_error(seconds: float) -> DeadlineExceeded:
    return DeadlineExceeded(f"the handler ran past its deadline of {seconds:g} s")
