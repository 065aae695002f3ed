"""Idempotency locks: work that runs once at a time. The state of the lock decides, and its token fences the holder."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from datetime import datetime

from rowlock.control.decide import Decision, days_before, decide, later
from rowlock.storage.contract import Store
from rowlock.storage.kinds import Records
from rowlock.storage.reliability import LOCKS, LockAnswer, LockDecision, LockKey, LockRecord, LockStatus


@dataclass(frozen=True, slots=True)
class LockRequest:
    key: LockKey
    payload_hash: str
    holder: str
    stale_seconds: float


def decision(lock: LockRecord | None, request: LockRequest, now: datetime) -> LockDecision:
    """Returns what the state of the lock means for this caller."""
    if lock is None:
        return LockDecision.PROCEED
    match lock.status:
        case LockStatus.RUNNING:
            stale = lock.locked_at <= later(now, -request.stale_seconds)
            return LockDecision.TAKE_OVER if stale or lock.holder == request.holder else LockDecision.ALREADY_RUNNING
        case LockStatus.FAILED:
            return LockDecision.RETRY
    return LockDecision.ALREADY_COMPLETED if lock.payload_hash == request.payload_hash else LockDecision.RERUN


def taken(lock: LockRecord | None, request: LockRequest, now: datetime) -> Decision[LockRecord, LockAnswer]:
    """Returns the lock as it is after the request, and the answer."""
    found = decision(lock, request, now)
    if lock is not None and not found.go:
        return Decision(lock, LockAnswer(found, lock.token, lock.holder))
    # The first token is the time: higher than any token of a lock with this key that was removed.
    token = int(now.timestamp() * 1000) if lock is None else lock.token + 1
    key = request.key
    held = LockRecord(
        *(key.company_id, key.job_key, key.scope_key, LockStatus.RUNNING, request.payload_hash),
        *(token, request.holder, now, None),
    )
    return Decision(held, LockAnswer(found, token, None if lock is None else lock.holder))


def renewed(lock: LockRecord | None, token: int, now: datetime) -> Decision[LockRecord, bool]:
    if lock is None or not _is_held(lock, token):
        return Decision(lock, False)
    return Decision(replace(lock, locked_at=now), True)


def ended(lock: LockRecord | None, token: int, completed: bool, now: datetime) -> Decision[LockRecord, bool]:
    if lock is None or not _is_held(lock, token):
        return Decision(lock, False)
    status = LockStatus.COMPLETED if completed else LockStatus.FAILED
    return Decision(replace(lock, status=status, ended_at=now), True)


def _is_held(lock: LockRecord, token: int) -> bool:
    return lock.token == token and lock.status is LockStatus.RUNNING


async def take(records: Records, key: LockKey, payload_hash: str, holder: str, stale_seconds: float) -> LockAnswer:
    """Takes the lock if its state allows, with a token one higher than its last; one of two callers gets it.

    Takes a lock that is free, failed, or completed with other data. Takes a running lock from the same holder, or if it
    was taken or last renewed more than `stale_seconds` ago. Otherwise changes nothing and returns why.
    """
    request = LockRequest(key, payload_hash, holder, stale_seconds)
    return await decide(records, LOCKS, astuple(key), lambda lock, now: taken(lock, request, now))


async def renew(records: Records, key: LockKey, token: int) -> bool:
    """Resets the age of a running lock. Returns False and changes nothing if it was taken over or has ended."""
    return await decide(records, LOCKS, astuple(key), lambda lock, now: renewed(lock, token, now))


async def end(records: Records, key: LockKey, token: int, *, completed: bool) -> bool:
    """Marks the work completed or failed. Returns False and changes nothing if the lock was taken over."""
    return await decide(records, LOCKS, astuple(key), lambda lock, now: ended(lock, token, completed, now))


async def listed(records: Records, job_key: str | None, company_id: str | None, limit: int) -> list[LockRecord]:
    """Returns locks, the last taken first."""
    asked = {"job_key": job_key, "company_id": company_id}
    equal = {name: value for name, value in asked.items() if value is not None}
    return await records.scan(LOCKS, "in_time", equal=equal, limit=limit)


async def prune(store: Store, days: float, limit: int) -> int:
    """Removes up to `limit` locks that ended over `days` ago, oldest first, and no running ones; counts them."""
    return await store.remove(LOCKS, "ended", days_before(await store.now(), days), limit)
