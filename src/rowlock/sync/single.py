"""One job of an operation: hold what it is about, call, mark what was written."""

from __future__ import annotations

import random
from typing import Any

from rowlock.errors import Snooze, StoreUnavailable
from rowlock.jobs.job import Job
from rowlock.storage.call_verbs import CallVerbs
from rowlock.sync.call import Call
from rowlock.sync.hold import Hold
from rowlock.sync.line import Line
from rowlock.sync.operation import Operation

HELD_SECONDS = (0.25, 10.0)
_AWAY_SECONDS = 5.0
_REWRITE_SECONDS = 1.0


async def work_one(operation: Operation, job: Job, fields: dict[str, Any], line: Line, store: CallVerbs | None) -> Any:
    """Do one job; without a store, as in resilient mode, nothing is held."""
    full = operation.defaults | fields
    subject = operation.subject(full)
    if store is None or subject is None:
        return await operation.handler(Call(job, line, None, subject), **fields)
    hold = Hold(store, line.key, f"{job.id}/{job.lease}", line.timeout_seconds)
    written: dict[str, dict[str, str]] = {}
    try:
        if not await hold.take([subject]):
            raise held_elsewhere(job)
        call = Call(job, line, hold, subject)
        try:
            result = await operation.handler(call, **fields)
            if call.written:
                written[subject] = dict.fromkeys(call.written, job.id)
        finally:
            lost = await hold.end(written)
    except StoreUnavailable as error:
        raise away(error) from error
    if lost:
        raise Snooze(_REWRITE_SECONDS, "its subject was taken over before it was marked as written; once more")
    return result


def held_elsewhere(job: Job) -> Snooze:
    """Another job calls about the same: try again soon, less and less soon."""
    low, high = HELD_SECONDS
    seconds = min(low * 2.0 ** min(job.lease - job.attempt, 10), high)
    return Snooze(seconds * random.uniform(0.8, 1.2), "another job about the same is under way")  # noqa: S311


def away(error: StoreUnavailable) -> Snooze:
    """Nothing is called without the store's word."""
    return Snooze(_AWAY_SECONDS, f"the store is away: {error}")
