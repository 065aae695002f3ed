"""Job counts without counting jobs: the sums of deltas, and of the counters into which deltas are compacted.

    rowlock_notes ──compact──▶ rowlock_totals    by queue and type, of all time
    new jobs ───────┤
                    └────────▶ rowlock_minutes   events by minute, for a day
    rowlock_lags                                 how long jobs had waited, by minute, for a day

A server without a replica set has no transactions, so deltas may be missing: there the jobs are counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from functools import partial

from pymongo import UpdateOne

from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.dates import after
from rowlock.storage.mongo.documents import BY_ID, DELAYED, JOBS, READY, RUNNING
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.jobs import finish
from rowlock.storage.mongo.jobs.claim import QUEUES
from rowlock.storage.mongo.jobs.counter_deltas import DELTAS, NEW
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import QueueRecord, Status
from rowlock.storage.reliability import Activity, Total

TOTALS = "rowlock_totals"
MINUTES = "rowlock_minutes"
LAGS = "rowlock_lags"
KEPT_HOURS = 25

INDEXES: tuple[Index, ...] = (
    Index(TOTALS),
    Index(MINUTES, "in_time", (("at", 1),)),
    Index(LAGS),
    Index(JOBS, "ready_since", (("queue", 1), ("state", 1), ("availableAt", 1)), where={"state": READY}),
)

NEW_AT_MOST = 1_000
"""How many new jobs are compacted at once: other writes to one of them wait that long."""

Kind = tuple[str, str]  # queue, type

_THERE = ("alive", "succeeded", "failed", "cancelled")
_EVENTS = ("succeeded", "failed", "cancelled", "failures", "retries", "rescues")
_HAPPENED = (*_EVENTS, "seconds")
_COUNTED = {"pending": {"$exists": False}}  # deltas that have their numbers


class Counts(Worked):
    """Counts that are exact at every moment."""

    async def counts(self) -> dict[Status, int]:
        async def count(scope: Scope) -> dict[Status, int]:
            sums: Counter[str] = Counter()
            for kind in (await _kinds(scope)).values():
                sums.update(kind)
            running = sum((await _running(scope)).values())
            over = (sums["succeeded"], sums["failed"], sums["cancelled"])
            return dict(zip(Status, (sums["alive"] - running, running, *over), strict=True))

        return await self._atomic(count)

    async def totals(self) -> list[Total]:
        kinds = await self._atomic(_kinds)
        found = [Total(*kind, *(there[name] for name in _THERE)) for kind, there in kinds.items()]
        return sorted(total for total in found if total.type)  # a mere wake-up hint has no type

    async def queues(self) -> list[QueueRecord]:
        return await self._atomic(_queues)

    async def activity(self, seconds: float) -> list[Activity]:
        async def look(scope: Scope) -> list[Activity]:
            since = minute_of(after(await scope.now(), -seconds))
            kinds = await _summed(scope, MINUTES, _HAPPENED, {"$match": {"at": {"$gte": since}}})
            return sorted(Activity(*kind, *(happened[name] for name in _HAPPENED)) for kind, happened in kinds.items())

        return await self._atomic(look)

    async def compact(self, limit: int) -> int:
        await self._plain(_resolve)
        compacted = await self._atomic(lambda scope: _compact(scope, limit))
        new = NEW_AT_MOST
        while compacted < limit and new == NEW_AT_MOST:
            most = min(limit - compacted, NEW_AT_MOST)
            new = await self._atomic(partial(_compact_new, limit=most))
            compacted += new
        return compacted


def _sum(names: tuple[str, ...]) -> Document:
    kind = {"queue": "$queue", "type": "$type"}
    return {"$group": {"_id": kind, **{name: {"$sum": f"${name}"} for name in names}}}


_NEW_BY_KIND: Document = {"$group": {"_id": {"queue": "$queue", "type": "$type"}, "jobs": {"$sum": 1}}}

# Removing or retrying a job does not undo its events: only what is added counts.
EVENTS_ONLY: tuple[Document, ...] = (
    {"$match": {"$or": [{name: {"$gt": 0}} for name in _EVENTS]}},
    {"$set": {name: {"$max": [f"${name}", 0]} for name in _EVENTS}},
)


async def queues_known(scope: Scope) -> list[str]:
    """Return every queue that ever had a job."""
    return sorted({queue for queue, _ in await _summed(scope, TOTALS, _THERE)})


async def _kinds(scope: Scope) -> dict[Kind, Counter[str]]:
    """Return the number of jobs by queue and type."""
    if scope.session is None:
        return await _counted(scope)
    sums = await _summed(scope, TOTALS, _THERE)
    for kind, number in (await finish.under_way(scope)).items():
        sums[kind].update({"alive": -number, "succeeded": number})
    return sums


async def _summed(scope: Scope, compacted: str, names: tuple[str, ...], *steps: Document) -> dict[Kind, Counter[str]]:
    """Return the sums of compacted counters and newer deltas, by queue and type."""
    sums: dict[Kind, Counter[str]] = defaultdict(Counter)
    for collection, only in ((compacted, ()), (DELTAS, EVENTS_ONLY if compacted == MINUTES else ())):
        for one in await rows(scope, collection, [*steps, *only, _sum(names)]):
            kind = (one["_id"]["queue"], one["_id"].get("type", ""))
            sums[kind].update({name: one[name] for name in names})
    if compacted == TOTALS:
        for one in await rows(scope, JOBS, [{"$match": NEW}, _NEW_BY_KIND]):
            sums[one["_id"]["queue"], one["_id"]["type"]]["alive"] += one["jobs"]
    return sums


async def _counted(scope: Scope) -> dict[Kind, Counter[str]]:
    alive = [status.value for status in Status if not status.final]
    is_one = {name: {"$eq": ["$status", name]} for name in _THERE} | {"alive": {"$in": ["$status", alive]}}
    each = {name: {"$cond": [condition, 1, 0]} for name, condition in is_one.items()}
    found = await rows(scope, JOBS, [{"$project": {"queue": 1, "type": 1, **each}}, _sum(_THERE)])
    return {(one["_id"]["queue"], one["_id"]["type"]): Counter({name: one[name] for name in _THERE}) for one in found}


async def _running(scope: Scope) -> dict[str, int]:
    """Return the number of running jobs by queue."""
    steps = [{"$match": {"state": RUNNING, "owner": {"$gt": ""}}}, {"$group": {"_id": "$queue", "number": {"$sum": 1}}}]
    return {one["_id"]: one["number"] for one in await rows(scope, JOBS, steps)}


async def _queues(scope: Scope) -> list[QueueRecord]:
    now = await scope.now()
    paused = {one["_id"] async for one in scope[QUEUES].find({}, {"_id": 1}, session=scope.session)}
    alive: dict[str, int] = defaultdict(int)
    for (queue, _), there in (await _kinds(scope)).items():
        alive[queue] += there["alive"]
    running = await _running(scope)
    found = []
    for name in sorted(paused | {queue for queue, jobs in alive.items() if jobs}):
        delayed = await _delayed(scope, name, now)
        ready = alive[name] - running.get(name, 0) - delayed
        oldest = await _oldest_ready(scope, name, now) if ready else None
        seconds = None if oldest is None else (now - oldest).total_seconds()
        found.append(QueueRecord(name, name in paused, ready, delayed, running.get(name, 0), seconds))
    return found


async def _delayed(scope: Scope, queue: str, now: datetime) -> int:
    """Return the number of delayed jobs that are not due; due ones count as ready even before they are promoted."""
    later = {"queue": queue, "state": DELAYED, "availableAt": {"$gt": now}}
    found = await rows(scope, JOBS, [{"$match": later}, {"$count": "jobs"}])
    return found[0]["jobs"] if found else 0


async def _oldest_ready(scope: Scope, queue: str, now: datetime) -> datetime | None:
    """Return since when the longest waiting job, ready or due, is available; None if no job waits."""
    moments: list[datetime] = []
    for waiting in ({"state": READY}, {"state": DELAYED, "availableAt": {"$lte": now}}):
        first = scope[JOBS].find({"queue": queue, **waiting}, {"availableAt": 1}, session=scope.session)
        found = first.sort([("queue", 1), ("state", 1), ("availableAt", 1)]).limit(1)
        moments += [one["availableAt"] for one in await found.to_list()]
    return min(moments, default=None)


async def _resolve(scope: Scope) -> None:
    await finish.resolve(scope, await scope.now())


async def _compact(scope: Scope, limit: int) -> int:
    """Move deltas into the counters, and prune minutes and lags older than KEPT_HOURS."""
    forgotten = minute_of(await scope.now()) - timedelta(hours=KEPT_HOURS)
    await scope[MINUTES].delete_many({"at": {"$lt": forgotten}}, session=scope.session)
    await scope[LAGS].delete_many({"_id": {"$lt": forgotten}}, session=scope.session)
    deltas = await _take_deltas(scope, limit)
    if not deltas:
        return 0
    there: dict[tuple[str, str], Document] = defaultdict(lambda: defaultdict(int))
    happened: dict[tuple[datetime, str, str], Document] = defaultdict(lambda: defaultdict(int))
    for delta in deltas:
        kind = (delta["queue"], delta.get("type", ""))
        for name in _THERE:
            there[kind][name] += delta.get(name, 0)
        if any(delta.get(name, 0) > 0 for name in _EVENTS):
            for name in _HAPPENED:
                happened[minute_of(delta["at"]), *kind][name] += max(delta.get(name, 0), 0)
    totals = [
        _adding({"queue": queue, "type": type}, added) for (queue, type), added in there.items() if any(added.values())
    ]
    minutes = [
        _adding({"at": at, "queue": queue, "type": type}, added) for (at, queue, type), added in happened.items()
    ]
    for collection, writes in ((TOTALS, totals), (MINUTES, minutes)):
        if writes:
            await scope[collection].bulk_write(writes, session=scope.session)
    return len(deltas)


async def _compact_new(scope: Scope, limit: int) -> int:
    """Move jobs that are their own deltas into the counters, the last first: claims want the first ones.

    Not running jobs: a handler's transaction may be about to settle its job, and would conflict with this.
    """
    found = scope[JOBS].find({**NEW, "state": {"$ne": RUNNING}}, {"queue": 1, "type": 1}, session=scope.session)
    jobs = await found.sort("seq", -1).limit(limit).to_list()
    if not jobs:
        return 0
    known = {"_id": {"$in": [job["_id"] for job in jobs]}, **NEW}
    await scope[JOBS].update_many(known, {"$unset": {"isNew": ""}}, hint=BY_ID, session=scope.session)
    there = Counter((job["queue"], job["type"]) for job in jobs)
    totals = [_adding({"queue": queue, "type": type}, {"alive": added}) for (queue, type), added in there.items()]
    await scope[TOTALS].bulk_write(totals, session=scope.session)
    return len(jobs)


async def _take_deltas(scope: Scope, limit: int) -> list[Document]:
    """Remove and return the first deltas, so that no other process adds them to the counters."""
    if limit <= 0:
        return []
    if scope.session is None:
        return await _take_deltas_alone(scope, limit)
    deltas = await scope[DELTAS].find(_COUNTED, session=scope.session).sort("_id", 1).limit(limit).to_list()
    await scope[DELTAS].delete_many({"_id": {"$in": [delta["_id"] for delta in deltas]}}, session=scope.session)
    return deltas


async def _take_deltas_alone(scope: Scope, limit: int) -> list[Document]:
    """Like `_take_notes`, without a transaction: one by one, so that no delta is taken twice."""
    taken: list[Document] = []
    while len(taken) < limit:
        delta = await scope[DELTAS].find_one_and_delete(_COUNTED, sort=[("_id", 1)])
        if delta is None:
            break
        taken.append(delta)
    return taken


def _adding(kind: Document, added: Document) -> UpdateOne:
    return UpdateOne({"_id": kind}, {"$inc": dict(added), "$setOnInsert": kind}, upsert=True)


def minute_of(moment: datetime) -> datetime:
    """Return the start of the minute that contains a moment."""
    return moment.replace(second=0, microsecond=0)


async def rows(scope: Scope, collection: str, steps: list[Document]) -> list[Document]:
    """Return the documents of an aggregation, run in the transaction of the scope if there is one."""
    return await (await scope[collection].aggregate(steps, session=scope.session)).to_list()
