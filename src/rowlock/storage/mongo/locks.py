"""Idempotency locks: a lock is one document, taken by a write that names the state in which it was read."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pymongo.errors import DuplicateKeyError

from rowlock.errors import StoreUnavailable
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.dates import after
from rowlock.storage.mongo.failures import DAY_SECONDS, remove_first
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked
from rowlock.storage.reliability import LockAnswer, LockDecision, LockKey, LockRecord

LOCKS = "job_idempotency_locks"
TRIES_AT_MOST = 100
"""How often taking a lock or a request is tried if others are quicker."""

INDEXES: tuple[Index, ...] = (
    Index(LOCKS, "in_time", (("lockedAt", -1),)),
    Index(LOCKS, "of_company", (("_id.companyId", 1), ("lockedAt", -1))),
    Index(LOCKS, "ended", (("endedAt", 1),), where={"endedAt": {"$exists": True}}),
)


class Locks(Worked):
    """Grants each lock to one holder; a holder that has lost its lock can neither renew nor end it."""

    async def take_lock(self, key: LockKey, payload_hash: str, holder: str, stale_seconds: float) -> LockAnswer:
        async def take(scope: Scope) -> LockAnswer:
            for _ in range(TRIES_AT_MOST):
                found = await scope[LOCKS].find_one({"_id": _id(key)})
                now = await scope.now()
                decision = _decision(found, payload_hash, holder, after(now, -stale_seconds))
                holder_before = None if found is None else found["holder"]
                if found is not None and not decision.go:
                    return LockAnswer(decision, found["token"], holder_before)
                taken = {"status": "running", "payloadHash": payload_hash, "holder": holder, "lockedAt": now}
                token = await _taken(scope, key, found, taken, now)
                if token is not None:
                    return LockAnswer(decision, token, holder_before)
            raise StoreUnavailable(f"{self.url}: others were quicker {TRIES_AT_MOST} times to take the lock {key}")

        return await self._plain(take)

    async def renew_lock(self, key: LockKey, token: int) -> bool:
        async def renew(scope: Scope) -> bool:
            ours = {"_id": _id(key), "token": token, "status": "running"}
            renewed = {"$set": {"lockedAt": await scope.now()}}
            return (await scope[LOCKS].update_one(ours, renewed)).matched_count > 0

        return await self._plain(renew)

    async def end_lock(self, key: LockKey, token: int, completed: bool) -> bool:
        async def end(scope: Scope) -> bool:
            ours = {"_id": _id(key), "token": token, "status": "running"}
            ended = {"status": "completed" if completed else "failed", "endedAt": await scope.now()}
            return (await scope[LOCKS].update_one(ours, {"$set": ended})).matched_count > 0

        return await self._plain(end)

    async def locks(self, job_key: str | None, company_id: str | None, limit: int) -> list[LockRecord]:
        if limit <= 0:
            return []
        asked: dict[str, Any] = {}
        if job_key is not None:
            asked["_id.jobKey"] = job_key
        if company_id is not None:
            asked["_id.companyId"] = company_id
        found = await self._plain(lambda scope: scope[LOCKS].find(asked).sort("lockedAt", -1).limit(limit).to_list())
        return [_record(one) for one in found]

    async def prune_locks(self, days: float, limit: int) -> int:
        async def prune(scope: Scope) -> int:
            old = {"endedAt": {"$lt": after(await scope.now(), -days * DAY_SECONDS)}}  # a running lock has no endedAt
            return await remove_first(scope, LOCKS, old, "endedAt", limit)

        return await self._plain(prune)


def _id(key: LockKey) -> Document:
    return {"companyId": key.company_id, "jobKey": key.job_key, "scopeKey": key.scope_key}


def _decision(found: Document | None, payload_hash: str, holder: str, stale: datetime) -> LockDecision:
    if found is None:
        return LockDecision.PROCEED
    match found["status"]:
        case "running":
            others = found["lockedAt"] > stale and found["holder"] != holder
            return LockDecision.ALREADY_RUNNING if others else LockDecision.TAKE_OVER
        case "failed":
            return LockDecision.RETRY
    return LockDecision.ALREADY_COMPLETED if found["payloadHash"] == payload_hash else LockDecision.RERUN


async def _taken(scope: Scope, key: LockKey, found: Document | None, taken: Document, now: datetime) -> int | None:
    """Take a lock that is still as it was read; returns its new token, or None if another was quicker."""
    if found is None:
        # The first token is the time: higher than any token of a lock with this key that was removed.
        token = int(now.timestamp() * 1000)
        try:
            await scope[LOCKS].insert_one({"_id": _id(key), **taken, "token": token})
        except DuplicateKeyError:
            return None
        return token
    token = found["token"] + 1
    seen = ("_id", "token", "status", "lockedAt")  # a holder that renews it meanwhile keeps it
    as_found = {name: found[name] for name in seen}
    changed = await scope[LOCKS].update_one(as_found, {"$set": {**taken, "token": token}, "$unset": {"endedAt": ""}})
    return token if changed.matched_count else None


def _record(document: Document) -> LockRecord:
    key = document["_id"]
    return LockRecord(
        company_id=key["companyId"],
        job_key=key["jobKey"],
        scope_key=key["scopeKey"],
        status=document["status"],
        payload_hash=document["payloadHash"],
        token=document["token"],
        holder=document["holder"],
        locked_at=document["lockedAt"],
        ended_at=document.get("endedAt"),
    )
