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

_HELD_SECONDS = (0.25, 4.0)
_TURN_SECONDS = 2.0
_AWAY_SECONDS = 5.0
_REWRITE_SECONDS = 1.0


async def work_one(
    operation: Operation, job: Job, fields: dict[str, Any], line: Line, token: str | None, store: CallVerbs | None
) -> Any:
    """Do one job; without a store, as in resilient mode, nothing is held."""
    full = operation.defaults | fields
    subject = operation.subject(full)
    if store is None or subject is None:
        return await operation.handler(Call(job, line, token, None, subject), **fields)
    try:
        async with line.turns.of(subject, _TURN_SECONDS) as came:
            if not came:
                raise held_elsewhere(job)
            hold = Hold(store, line.key, f"{job.id}/{job.lease}", line.timeout_seconds)
            return await _held(operation, Call(job, line, token, hold, subject), fields, hold, subject)
    except StoreUnavailable as error:
        raise away(error) from error


async def _held(operation: Operation, call: Call, fields: dict[str, Any], hold: Hold, subject: str) -> Any:
    if not await hold.take([subject]):
        raise held_elsewhere(call.job)
    written: dict[str, dict[str, str]] = {}
    try:
        result = await operation.handler(call, **fields)
        if call.written:
            written[subject] = dict.fromkeys(call.written, call.job.id)
    finally:
        lost = await hold.end(written)
    if lost:
        raise rewrite()
    return result


def held_elsewhere(job: Job) -> Snooze:
    """Another job calls about the same: try again soon, less and less soon."""
    low, high = _HELD_SECONDS
    seconds = min(low * 2.0 ** min(job.lease - job.attempt, 10), high)
    return Snooze(seconds * random.uniform(0.8, 1.2), "another job about the same is under way")  # noqa: S311


def rewrite() -> Snooze:
    """An older job may have come in between, not knowing what this one wrote."""
    return Snooze(_REWRITE_SECONDS, "another job took over what this one is about before it was noted; once more")


def away(error: StoreUnavailable) -> Snooze:
    """Nothing is called without the store's word."""
    return Snooze(_AWAY_SECONDS, f"the store is away: {error}")
