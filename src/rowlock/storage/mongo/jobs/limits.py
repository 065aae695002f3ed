"""Limits: how many jobs of a key may run at once, how many may start in a window, and which keys are paused.

    rowlock_limits      {_id: name, concurrency, rate, perMs}
    rowlock_limit_keys  {_id: key, turn, starts: [{at: date, job: id, lease: number}, …], pausedUntil}

A claim that starts jobs of a limited key increments the key's `turn` in its transaction: of two concurrent claims one
conflicts, and looks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pymongo import ReplaceOne, UpdateOne
from pymongo.errors import DuplicateKeyError

from rowlock.errors import StoreUnavailable
from rowlock.ids import uuid7
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.dates import after, millis
from rowlock.storage.mongo.documents import JOBS, RUNNING
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import JobId, Limit

LIMITS = "rowlock_limits"
LIMIT_KEYS = "rowlock_limit_keys"

INDEXES = (
    Index(LIMITS),
    Index(LIMIT_KEYS),
    Index(JOBS, "running_of_key", (("limitKey", 1), ("state", 1)), where={"state": RUNNING, "limitKey": {"$gt": ""}}),
)

LOCK_MS = 5_000
LOCK_NAP_SECONDS = 0.005
LOCK_TRIES_AT_MOST = 500
_LOCK = ""  # the lock's `_id`; no limit key is empty
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Limiting(Worked):
    """Defines limits and pauses keys."""

    async def define_limits(self, limits: Sequence[Limit]) -> None:
        documents = [
            {
                "_id": limit.name,
                "concurrency": limit.concurrency,
                "rate": limit.rate,
                "perMs": millis(limit.per_seconds),
            }
            for limit in limits
        ]
        replaced = [ReplaceOne({"_id": document["_id"]}, document, upsert=True) for document in documents]
        if replaced:
            await self._plain(lambda scope: scope[LIMITS].bulk_write(replaced))

    async def pause_key(self, key: str, seconds: float) -> None:
        async def work(scope: Scope) -> None:
            until = after(await scope.now(), seconds)
            await scope[LIMIT_KEYS].update_one({"_id": key}, {"$max": {"pausedUntil": until}}, upsert=True)

        await self._plain(work)


@dataclass(frozen=True, slots=True)
class Room:
    """How many more jobs of a key may start now."""

    jobs: int
    limited: bool  # whether starting one needs the key's turn
    window_start: datetime | None = None  # of the rate limit


async def rooms(scope: Scope, keys: Iterable[str], now: datetime, at_most: int) -> dict[str, Room]:
    """Return how many jobs of each key may start, up to `at_most`."""
    wanted = set(keys)
    named = {key: key.partition(":")[0] for key in wanted}
    names = set(named.values())
    session = scope.session
    limits = {one["_id"]: one async for one in scope[LIMITS].find({"_id": {"$in": list(names)}}, session=session)}
    known = {
        one["_id"]: one async for one in scope[LIMIT_KEYS].find({"_id": {"$in": list(wanted | names)}}, session=session)
    }
    counted = [key for key, name in named.items() if _has(limits, name, "concurrency")]
    running = await _running(scope, counted) if counted else {}
    return {
        key: _room(key, name, limits.get(name, {}), known, running.get(key, 0), now, at_most)
        for key, name in named.items()
    }


@asynccontextmanager
async def turns(scope: Scope, keys: Iterable[str]) -> AsyncIterator[None]:
    """Keep others from starting jobs of these keys until the transaction ends, or without one, the block."""
    if scope.session is None:
        holder = await _lock(scope)
        try:
            yield
        finally:
            free = {"$set": {"until": _LONG_AGO}}
            await asyncio.shield(scope[LIMIT_KEYS].update_one({"_id": _LOCK, "holder": holder}, free))
        return
    taken = [UpdateOne({"_id": key}, {"$inc": {"turn": 1}}, upsert=True) for key in sorted(keys)]
    await scope[LIMIT_KEYS].bulk_write(taken, session=scope.session)
    yield


async def _lock(scope: Scope) -> str:
    """Without transactions: take one lock for all keys, which expires after LOCK_MS; return the holder's id."""
    holder = uuid7()
    until = {"$add": ["$$NOW", LOCK_MS]}
    for _ in range(LOCK_TRIES_AT_MOST):
        try:
            await scope[LIMIT_KEYS].update_one(
                {"_id": _LOCK, "$expr": {"$lte": ["$until", "$$NOW"]}},
                [{"$set": {"holder": holder, "until": until}}],
                upsert=True,
            )
        except DuplicateKeyError:
            await asyncio.sleep(LOCK_NAP_SECONDS)
        else:
            return holder
    raise StoreUnavailable("others have held the lock of the limits for too long; try again")


async def count_starts(
    scope: Scope, started: Mapping[str, Sequence[tuple[JobId, int]]], rooms: Mapping[str, Room], now: datetime
) -> None:
    """Record the starts of keys with a rate, and drop starts that have left the window."""
    updates = []
    for key, jobs in started.items():
        window_start = rooms[key].window_start
        if window_start is not None and jobs:
            kept = {"$filter": {"input": {"$ifNull": ["$starts", []]}, "cond": {"$gt": ["$$this.at", window_start]}}}
            new = [{"at": now, "job": job, "lease": lease} for job, lease in jobs]
            updates.append(UpdateOne({"_id": key}, [{"$set": {"starts": {"$concatArrays": [kept, new]}}}]))
    if updates:
        await scope[LIMIT_KEYS].bulk_write(updates, session=scope.session)


async def take_back_starts(scope: Scope, unstarted: Iterable[tuple[str, JobId, int]]) -> None:
    """Remove the starts of these claims (key, job, lease): their jobs did not start."""
    updates = [
        UpdateOne({"_id": key, "starts.job": job}, {"$pull": {"starts": {"job": job, "lease": lease}}})
        for key, job, lease in unstarted
    ]
    if updates:
        await scope[LIMIT_KEYS].bulk_write(updates, session=scope.session)


async def forget(scope: Scope, now: datetime) -> None:
    """Remove the keys whose pause is over and whose starts have left every window."""
    longest = await scope[LIMITS].find_one({}, {"perMs": 1}, sort=[("perMs", -1)], session=scope.session)
    old = now - timedelta(milliseconds=longest["perMs"] if longest else 0)
    resting, started = {"pausedUntil": {"$gt": now}}, {"starts.at": {"$gt": old}}
    idle = {"_id": {"$ne": _LOCK}, "$nor": [resting, started]}
    await scope[LIMIT_KEYS].delete_many(idle, session=scope.session)


def _room(
    key: str, name: str, limit: Document, known: Mapping[str, Document], running: int, now: datetime, at_most: int
) -> Room:
    concurrency, rate = limit.get("concurrency"), limit.get("rate")
    limited = concurrency is not None or rate is not None
    window_start = None if rate is None else now - timedelta(milliseconds=limit["perMs"])
    for one in {key, name}:
        until = known.get(one, {}).get("pausedUntil")
        if until is not None and until > now:
            return Room(0, limited, window_start)
    left = at_most
    if concurrency is not None:
        left = min(left, concurrency - running)
    if rate is not None and window_start is not None:
        starts = known.get(key, {}).get("starts", ())
        left = min(left, rate - sum(start["at"] > window_start for start in starts))
    return Room(max(0, left), limited, window_start)


def _has(limits: Mapping[str, Document], name: str, field: str) -> bool:
    return limits.get(name, {}).get(field) is not None


async def _running(scope: Scope, keys: list[str]) -> dict[str, int]:
    found = await scope[JOBS].aggregate(
        [
            {"$match": {"state": RUNNING, "limitKey": {"$in": keys, "$gt": ""}}},
            {"$group": {"_id": "$limitKey", "jobs": {"$sum": 1}}},
        ],
        session=scope.session,
    )
    return {one["_id"]: one["jobs"] async for one in found}
