"""Run one job of an operation: lock its subject, call the service, mark the properties written."""

from __future__ import annotations

import random
from typing import Any

from rowlock.errors import Snooze, StoreUnavailable
from rowlock.jobs.job import Job
from rowlock.storage.call_verbs import CallVerbs
from rowlock.sync.call import Call
from rowlock.sync.client import Client
from rowlock.sync.operation import Operation
from rowlock.sync.subject_lock import SubjectLock

_HELD_SECONDS = (0.25, 4.0)
_TURN_SECONDS = 2.0
_AWAY_SECONDS = 5.0
_REWRITE_SECONDS = 1.0


async def work_one(
    operation: Operation,
    job: Job,
    place: str,
    fields: dict[str, Any],
    client: Client,
    token: str | None,
    store: CallVerbs | None,
) -> Any:
    """Run one job and return its result. Without a store, as in resilient mode, its subject is not locked."""
    full = operation.defaults | fields
    subject = operation.subject(full)
    if store is None or subject is None:
        return await operation.handler(Call(job, place, client, token, None, subject), **fields)
    try:
        async with client.subject_queue.of(subject, _TURN_SECONDS) as came:
            if not came:
                raise held_elsewhere(job)
            subject_lock = SubjectLock(store, client.key, f"{job.id}/{job.lease}", client.timeout_seconds)
            return await _held(
                operation, Call(job, place, client, token, subject_lock, subject), fields, subject_lock, subject
            )
    except StoreUnavailable as error:
        raise away(error) from error


async def _held(
    operation: Operation, call: Call, fields: dict[str, Any], subject_lock: SubjectLock, subject: str
) -> Any:
    if not await subject_lock.take([subject]):
        raise held_elsewhere(call.job)
    written: dict[str, dict[str, str]] = {}
    try:
        result = await operation.handler(call, **fields)
        if call.written:
            written[subject] = dict.fromkeys(call.written, call.place)
    finally:
        lost = await subject_lock.end(written)
    if lost:
        raise rewrite()
    return result


def held_elsewhere(job: Job) -> Snooze:
    """Return the Snooze for a subject that another job holds: 0.25 s, doubled with each release up to 4 s, ±20 %."""
    low, high = _HELD_SECONDS
    seconds = min(low * 2.0 ** min(job._claimed.releases, 10), high)
    return Snooze(seconds * random.uniform(0.8, 1.2), "another job about the same is under way")  # noqa: S311


def rewrite() -> Snooze:
    """Return the Snooze after a lost lock: an older job, unaware of this write, may have overwritten it."""
    return Snooze(_REWRITE_SECONDS, "another job took over what this one is about before it was noted; once more")


def away(error: StoreUnavailable) -> Snooze:
    """Return the Snooze for an unreachable store: no call is made without its permission."""
    return Snooze(_AWAY_SECONDS, f"the store is away: {error}")
