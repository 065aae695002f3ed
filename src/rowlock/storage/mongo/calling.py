"""Limits of outbound calls: one document for each key, with the calls that count against it.

    permits   {id, freeAt, seconds, step, running, taker}: running calls, and ended calls that count on their own
    sums      {freeAt, calls}: of a long window, calls that ended in the same step
    restsUntil, at: no call begins before restsUntil; a call was last taken or ended at `at`

One write of one document decides and counts a call. A call with several keys takes them in the order of keys; if one
has no room, those before it are released. Times in here are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bson.int64 import Int64
from pymongo import ReturnDocument

from rowlock.clock import Clock
from rowlock.ids import uuid7
from rowlock.storage.calls import (
    CallBudget,
    CallLimit,
    PermitId,
    checked_key,
    checked_limits,
    checked_seconds,
    ended,
)
from rowlock.storage.mongo import subjects
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.dates import after, millis, now_of
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.subjects import Subjects
from rowlock.storage.mongo.watching import Watching

CALLS = "rowlock_calls"

INDEXES: tuple[Index, ...] = (Index(CALLS, "of_permit", (("permits.id", 1),)), *subjects.INDEXES)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = 1
"""The clock has whole milliseconds: what ended at one may have lasted until the next."""
_DAY_SECONDS = 24 * 3600

_PERMITS: Document = {"$ifNull": ["$permits", []]}
_SUMS: Document = {"$ifNull": ["$sums", []]}


class Calling(Watching, Subjects):
    """Keeps outbound calls within their limits, and calls about one subject apart and in order."""

    async def take_call(self, permit_id: PermitId, limits: Sequence[CallLimit], hold_seconds: float) -> float:
        wanted, hold = checked_limits(limits), millis(checked_seconds(hold_seconds))
        return await self._plain(lambda scope: _take(scope, permit_id, wanted, hold)) / 1000

    async def end_call(self, permit_id: PermitId, *, made: bool = True) -> None:
        running = {"permits": {"$elemMatch": {"id": permit_id, "running": True}}}
        change: Any = _ending(permit_id, self.clock)
        if not made:
            change = {"$pull": {"permits": {"id": permit_id, "running": True}}}
        await self._plain(lambda scope: scope[CALLS].update_many(running, change))

    async def rest_calls(self, key: str, seconds: float) -> None:
        asked, rest = checked_key(key), millis(checked_seconds(seconds))
        until = {"$add": [_now(self.clock), Int64(rest)]}
        change = [{"$set": {"permits": _PERMITS, "sums": _SUMS, "restsUntil": {"$max": ["$restsUntil", until]}}}]
        await self._plain(lambda scope: scope[CALLS].update_one({"_id": asked}, change, upsert=True))

    async def call_budget(self, keys: Sequence[str]) -> list[CallBudget]:
        async def look(scope: Scope) -> list[CallBudget]:
            found = await _found(scope, keys)
            now = _millis_of(await scope.now())
            return [_budget(key, found.get(key, {}), now) for key in keys]

        return await self._plain(look)

    async def prune_calls(self, days: float, limit: int) -> int:
        async def prune(scope: Scope) -> int:
            now = await scope.now()
            calls = await _prune(scope, _millis_of(now), limit)
            return calls + await subjects.prune(scope, now, after(now, -days * _DAY_SECONDS), limit)

        return await self._plain(prune)


async def _take(scope: Scope, permit_id: PermitId, limits: list[CallLimit], hold: int) -> int:
    """Take the call; returns 0, or the milliseconds to wait."""
    found = await _found(scope, [limit.key for limit in limits])
    there = [_permit(document, permit_id) for document in found.values()]
    if any(permit and not permit["running"] for permit in there):
        raise ended(permit_id)
    if not any(there):
        now = _millis_of(await scope.now())
        if wait := max((_wait(found.get(limit.key, {}), limit.count, now) for limit in limits), default=0):
            return wait
    taker = uuid7()
    for place, limit in enumerate(limits):
        document = await scope[CALLS].find_one_and_update(
            {"_id": limit.key},
            _taking(permit_id, taker, limit, hold, scope.clock),
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        assert document is not None  # upsert creates a missing document
        permit = _permit(document, permit_id)
        if permit is not None and permit["running"]:
            continue
        before = {"_id": {"$in": [each.key for each in limits[:place]]}}
        # Only what this try has taken: a concurrent try of the same call keeps its permits.
        await scope[CALLS].update_many(before, {"$pull": {"permits": {"id": permit_id, "taker": taker}}})
        if permit is not None:
            raise ended(permit_id)
        return max(_wait(document, limit.count, document["at"]), 1)
    return 0


def _taking(permit_id: PermitId, taker: str, limit: CallLimit, hold: int, clock: Clock) -> list[Document]:
    """Drop what no longer counts, and take the call if it has a permit already or there is room for it."""
    now, step = _now(clock), millis(limit.step_seconds)
    counted = millis(limit.seconds) + _TICK
    permit = {
        "id": {"$literal": permit_id},
        "freeAt": {"$add": ["$at", Int64(hold + counted)]},
        "seconds": Int64(counted),
        "step": Int64(step),
        "running": True,
        "taker": taker,
    }
    renewed = {"freeAt": {"$add": ["$at", Int64(hold), "$$each.seconds"]}, "taker": taker}
    own: Document = {"$eq": ["$$each.id", {"$literal": permit_id}]}
    counts: Document = {"$gt": ["$$each.freeAt", "$at"]}
    permits = {"$filter": {"input": _PERMITS, "as": "each", "cond": {"$or": [own, counts]}}}
    in_use = {"$add": [{"$size": "$permits"}, {"$sum": "$sums.calls"}]}
    room = {"$and": [{"$lt": [in_use, limit.count]}, {"$lte": [{"$ifNull": ["$restsUntil", 0]}, "$at"]}]}
    same = {"$cond": [{"$and": [own, "$$each.running"]}, {"$mergeObjects": ["$$each", renewed]}, "$$each"]}
    return [
        {"$set": {"at": now}},
        {"$set": {"permits": permits, "sums": {"$filter": {"input": _SUMS, "as": "each", "cond": counts}}}},
        {
            "$set": {
                "permits": {
                    "$switch": {
                        "branches": [
                            {
                                "case": {"$in": [{"$literal": permit_id}, "$permits.id"]},
                                "then": {"$map": {"input": "$permits", "as": "each", "in": same}},
                            },
                            {"case": room, "then": {"$concatArrays": ["$permits", [permit]]}},
                        ],
                        "default": "$permits",
                    }
                }
            }
        },
    ]


def _ending(permit_id: PermitId, clock: Clock) -> list[Document]:
    """Let the call count for its seconds from now on: on its own, or in the sum of its step."""
    own: Document = {"$and": [{"$eq": ["$$each.id", {"$literal": permit_id}]}, "$$each.running"]}
    over = {"freeAt": {"$add": ["$at", "$$each.seconds"]}, "running": False}
    # The sum of calls that expire at the end of the same step; no call counts for too short a time.
    until = {"$add": ["$at", "$ending.seconds"]}
    steps = {"$toLong": {"$ceil": {"$divide": [until, "$ending.step"]}}}
    same: Document = {"$eq": ["$$each.freeAt", "$ending.freeAt"]}
    more = {"$mergeObjects": ["$$each", {"calls": {"$add": ["$$each.calls", 1]}}]}
    return [
        {
            "$set": {
                "at": _now(clock),
                "ending": {"$first": {"$filter": {"input": "$permits", "as": "each", "cond": own}}},
            }
        },
        {"$set": {"ending.freeAt": {"$cond": ["$ending.step", {"$multiply": [steps, "$ending.step"]}, None]}}},
        {
            "$set": {
                "permits": {
                    "$cond": [
                        "$ending.step",
                        {"$filter": {"input": "$permits", "as": "each", "cond": {"$not": own}}},
                        {
                            "$map": {
                                "input": "$permits",
                                "as": "each",
                                "in": {"$cond": [own, {"$mergeObjects": ["$$each", over]}, "$$each"]},
                            }
                        },
                    ]
                },
                "sums": {
                    "$switch": {
                        "branches": [
                            {"case": {"$not": "$ending.step"}, "then": "$sums"},
                            {
                                "case": {"$in": ["$ending.freeAt", "$sums.freeAt"]},
                                "then": {
                                    "$map": {
                                        "input": "$sums",
                                        "as": "each",
                                        "in": {"$cond": [same, more, "$$each"]},
                                    }
                                },
                            },
                        ],
                        "default": {"$concatArrays": ["$sums", [{"freeAt": "$ending.freeAt", "calls": 1}]]},
                    }
                },
            }
        },
        {"$unset": "ending"},
    ]


async def _found(scope: Scope, keys: Sequence[str]) -> dict[str, Document]:
    if not keys:
        return {}
    found = scope[CALLS].find({"_id": {"$in": list(keys)}})
    return {document["_id"]: document async for document in found}


def _permit(document: Document, permit_id: PermitId) -> Document | None:
    return next((permit for permit in document["permits"] if permit["id"] == permit_id), None)


def _counted(document: Document, now: int) -> Iterable[tuple[int, int]]:
    """Yield (free at, calls) of what counts; a running call is assumed to end now: it cannot be free sooner."""
    for permit in document.get("permits", ()):
        if permit["freeAt"] > now:
            yield min(permit["freeAt"], now + permit["seconds"]) if permit["running"] else permit["freeAt"], 1
    for together in document.get("sums", ()):
        if together["freeAt"] > now:
            yield together["freeAt"], together["calls"]


def _wait(document: Document, count: int, now: int) -> int:
    """Return the milliseconds until a call of this key may begin."""
    until: int = max(document.get("restsUntil", 0), now)
    calls = 0
    for free_at, more in sorted(_counted(document, now), reverse=True):
        calls += more
        if calls >= count:
            until = max(until, free_at)
            break
    return until - now


def _budget(key: str, document: Document, now: int) -> CallBudget:
    rests_until = document.get("restsUntil", 0)
    in_use = sum(calls for _, calls in _counted(document, now))
    return CallBudget(key, in_use, _EPOCH + timedelta(milliseconds=rests_until) if rests_until > now else None)


async def _prune(scope: Scope, now: int, limit: int) -> int:
    """Remove up to `limit` calls and sums that no longer count, and documents without any; return how many."""
    over = {"freeAt": {"$lte": Int64(now)}}
    past = {"$or": [{"permits": {"$elemMatch": over}}, {"sums": {"$elemMatch": over}}]}
    removed = 0
    async for document in scope[CALLS].find(past).limit(max(limit, 1)):
        if removed >= limit:
            break
        doomed = {name: _over(document, name, now) for name in ("permits", "sums")}
        permits = [permit["id"] for permit in doomed["permits"]][: limit - removed]
        sums = [together["freeAt"] for together in doomed["sums"]][: max(limit - removed - len(permits), 0)]
        gone = {"permits": {"id": {"$in": permits}, **over}, "sums": {"freeAt": {"$in": sums}}}
        before = await scope[CALLS].find_one_and_update({"_id": document["_id"]}, {"$pull": gone})
        if before is not None:
            removed += sum(permit["id"] in permits for permit in _over(before, "permits", now))
            removed += sum(together["freeAt"] in sums for together in _over(before, "sums", now))
    awake = [{"restsUntil": {"$exists": False}}, {"restsUntil": {"$lte": Int64(now)}}]
    await scope[CALLS].delete_many({"permits": [], "sums": [], "$or": awake})
    return removed


def _over(document: Document, name: str, now: int) -> list[Document]:
    return [each for each in document[name] if each["freeAt"] <= now]


def _now(clock: Clock) -> Any:
    """Return the time in milliseconds, for a pipeline."""
    now = now_of(clock)
    return {"$toLong": now} if isinstance(now, str) else Int64(_millis_of(now))


def _millis_of(moment: datetime) -> int:
    return round((moment - _EPOCH) / timedelta(milliseconds=1))
