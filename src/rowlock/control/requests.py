"""Idempotency keys of HTTP requests: a request with a key runs once, and later callers get its response."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from rowlock.control.decide import Decision, decide, later
from rowlock.storage.access import REQUESTS, RequestAnswer, RequestRecord, RequestState
from rowlock.storage.contract import Store
from rowlock.storage.kinds import MOMENT, Records
from rowlock.storage.records import JobId


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request with an idempotency key, and the job id to reserve for it."""

    key: str
    fingerprint: str
    job_id: JobId
    keep_seconds: float
    stale_seconds: float


def state(request: RequestRecord | None, new: NewRequest, now: datetime) -> RequestState:
    """Returns what is known of the request."""
    if request is None or request.expires_at <= now:
        return RequestState.NEW
    if request.fingerprint != new.fingerprint:
        return RequestState.OTHER
    if request.status is not None:
        return RequestState.DONE
    broken_off = request.released or request.begun_at < later(now, -new.stale_seconds)
    return RequestState.BROKEN_OFF if broken_off else RequestState.RUNNING


def begun(request: RequestRecord | None, new: NewRequest, now: datetime) -> Decision[RequestRecord, RequestAnswer]:
    """A request that is new or was broken off is reserved for this caller."""
    found = state(request, new, now)
    if request is not None and found in (RequestState.OTHER, RequestState.DONE, RequestState.RUNNING):
        response = (request.status, request.body) if found is RequestState.DONE else ()
        return Decision(request, RequestAnswer(found, request.job_id, request.begun_at, *response))
    # The time identifies the try, so that of each is later than any before, even if the clock stands still.
    begun_at = now if request is None else max(now, request.begun_at + MOMENT)
    job_id = request.job_id if request is not None and found is RequestState.BROKEN_OFF else new.job_id
    taken = RequestRecord(
        *(new.key, new.fingerprint, job_id, begun_at, False, later(now, new.keep_seconds), None, None),
    )
    return Decision(taken, RequestAnswer(found, job_id, begun_at))


def is_open(request: RequestRecord | None, begun_at: datetime) -> bool:
    """Returns whether this try still has the request, without a response."""
    return request is not None and request.begun_at == begun_at and request.status is None


async def begin(
    records: Records, key: str, fingerprint: str, job_id: JobId, *, keep_seconds: float, stale_seconds: float
) -> RequestAnswer:
    """Returns what is known of the request with this idempotency key, and reserves it if the caller may run it.

    Of concurrent callers one gets NEW. A request begun more than `stale_seconds` ago and not ended is BROKEN_OFF for
    one caller, which gets the job id reserved first. After `keep_seconds` the key is NEW again. A key that was used
    with another fingerprint is OTHER. Each try that reserves the key gets a `begun_at` that no earlier try had, even
    if the clock stands still.
    """
    new = NewRequest(key, fingerprint, job_id, keep_seconds, stale_seconds)
    return await decide(records, REQUESTS, (key,), lambda request, now: begun(request, new, now))


async def end(records: Records, key: str, begun_at: datetime, status: int, body: str) -> None:
    """Stores the response of the try that began at `begun_at`.

    Does nothing if another try has taken the request over, it has ended, or the key is unknown.
    """

    def rule(request: RequestRecord | None, now: datetime) -> Decision[RequestRecord, None]:
        if request is None or not is_open(request, begun_at):
            return Decision(request, None)
        return Decision(replace(request, status=status, body=body), None)

    await decide(records, REQUESTS, (key,), rule)


async def release(records: Records, key: str, begun_at: datetime) -> None:
    """Lets the next try take the request at once, as BROKEN_OFF, because this try does not know how it ended.

    Does nothing if another try has taken it over or it has ended.
    """

    def rule(request: RequestRecord | None, now: datetime) -> Decision[RequestRecord, None]:
        if request is None or not is_open(request, begun_at):
            return Decision(request, None)
        return Decision(replace(request, released=True), None)

    await decide(records, REQUESTS, (key,), rule)


async def prune(store: Store, limit: int) -> int:
    """Removes up to `limit` expired requests, oldest first; returns how many."""
    return await store.remove(REQUESTS, "expiring", await store.now() + MOMENT, limit)
