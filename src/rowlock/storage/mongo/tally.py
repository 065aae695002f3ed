"""How many jobs there are, without counting them: the sums of the notes, and of what was folded out of them.

    rowlock_notes ──fold──▶ rowlock_totals    by queue and type, of all time
    new jobs ───────┤
                    └─────▶ rowlock_minutes   what happened, by minute, for a day
    rowlock_lags                         how long jobs had waited, by minute, for a day

A server without a replica set has no transactions, so that notes may lack there: what there is is counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from functools import partial

from pymongo import UpdateOne

from rowlock.storage.mongo import finish
from rowlock.storage.mongo.claim import QUEUES
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.documents import BY_ID, DELAYED, JOBS, READY, RUNNING
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.moments import after
from rowlock.storage.mongo.notes import NEW, NOTES
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import QueueRecord, Status
from rowlock.storage.reliability import Activity, Total

TOTALS = "rowlock_totals"
MINUTES = "rowlock_minutes"
LAGS = "rowlock_lags"
KEPT_HOURS = 25
PRIORITIES_AT_MOST = 100
"""Of how many priorities the oldest job is looked for."""

INDEXES: tuple[Index, ...] = (Index(TOTALS), Index(MINUTES, "in_time", (("at", 1),)), Index(LAGS))

NEW_AT_MOST = 1_000
"""How many jobs are folded at once: who wants one of them waits for as long."""

Kind = tuple[str, str]  # queue, type

_THERE = ("alive", "succeeded", "failed", "cancelled")
_EVENTS = ("succeeded", "failed", "cancelled", "failures", "retries", "rescues")
_HAPPENED = (*_EVENTS, "seconds")
_COUNTED = {"pending": {"$exists": False}}  # notes that have their numbers


class Counts(Worked):
    """Numbers that are exact at every moment."""

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
        return sorted(total for total in found if total.type)  # a mere hint has none

    async def queues(self) -> list[QueueRecord]:
        return await self._atomic(_queues)

    async def activity(self, seconds: float) -> list[Activity]:
        async def look(scope: Scope) -> list[Activity]:
            since = minute_of(after(await scope.now(), -seconds))
            kinds = await _summed(scope, MINUTES, _HAPPENED, {"$match": {"at": {"$gte": since}}})
            return sorted(Activity(*kind, *(happened[name] for name in _HAPPENED)) for kind, happened in kinds.items())

        return await self._atomic(look)

    async def fold(self, limit: int) -> int:
        await self._plain(_resolve)
        folded = await self._atomic(lambda scope: _fold(scope, limit))
        new = NEW_AT_MOST
        while folded < limit and new == NEW_AT_MOST:
            most = min(limit - folded, NEW_AT_MOST)
            new = await self._atomic(partial(_fold_new, limit=most))
            folded += new
        return folded


def _sum(names: tuple[str, ...]) -> Document:
    kind = {"queue": "$queue", "type": "$type"}
    return {"$group": {"_id": kind, **{name: {"$sum": f"${name}"} for name in names}}}


_NEW_BY_KIND: Document = {"$group": {"_id": {"queue": "$queue", "type": "$type"}, "jobs": {"$sum": 1}}}

# A job that was removed or retried has happened all the same: only what is added counts.
EVENTS_ONLY: tuple[Document, ...] = (
    {"$match": {"$or": [{name: {"$gt": 0}} for name in _EVENTS]}},
    {"$set": {name: {"$max": [f"${name}", 0]} for name in _EVENTS}},
)


async def queues_known(scope: Scope) -> list[str]:
    """Every queue that a job was ever in."""
    return sorted({queue for queue, _ in await _summed(scope, TOTALS, _THERE)})


async def _kinds(scope: Scope) -> dict[Kind, Counter[str]]:
    """How many jobs there are of each queue and type."""
    if scope.session is None:
        return await _counted(scope)
    sums = await _summed(scope, TOTALS, _THERE)
    for kind, number in (await finish.under_way(scope)).items():
        sums[kind].update({"alive": -number, "succeeded": number})
    return sums


async def _summed(scope: Scope, folded: str, names: tuple[str, ...], *steps: Document) -> dict[Kind, Counter[str]]:
    """What was folded and what is noted since, by queue and type."""
    sums: dict[Kind, Counter[str]] = defaultdict(Counter)
    for collection, only in ((folded, ()), (NOTES, EVENTS_ONLY if folded == MINUTES else ())):
        for one in await rows(scope, collection, [*steps, *only, _sum(names)]):
            kind = (one["_id"]["queue"], one["_id"].get("type", ""))
            sums[kind].update({name: one[name] for name in names})
    if folded == TOTALS:
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
    """How many jobs run, by queue."""
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
    """How many jobs of a queue are not due; those that are count as ready, though nobody has promoted them."""
    later = {"queue": queue, "state": DELAYED, "availableAt": {"$gt": now}}
    found = await rows(scope, JOBS, [{"$match": later}, {"$count": "jobs"}])
    return found[0]["jobs"] if found else 0


async def _oldest_ready(scope: Scope, queue: str, now: datetime) -> datetime | None:
    """Since when the longest waits: the first of one of the priorities, or the first of those that are due."""
    due: list[Document] = [
        {"$match": {"queue": queue, "state": DELAYED, "availableAt": {"$lte": now}}},
        {"$sort": {"queue": 1, "state": 1, "availableAt": 1}},
        {"$limit": 1},
        {"$project": {"since": "$availableAt"}},
    ]
    found = await rows(scope, JOBS, due)
    moments = [one["since"] for one in found]
    for limit_key in ("", {"$gt": ""}):
        moments += await _firsts(scope, {"queue": queue, "state": READY, "limitKey": limit_key})
    return min(moments, default=None)


async def _firsts(scope: Scope, waiting: Document) -> list[datetime]:
    """Since when the first of each priority waits: from one to the next by the index, not job by job."""
    moments: list[datetime] = []
    while len(moments) < PRIORITIES_AT_MOST:
        jobs = scope[JOBS].find(waiting, {"priority": 1, "availableAt": 1}, session=scope.session)
        first = await jobs.sort([("priority", 1), ("seq", 1)]).limit(1).to_list()
        if not first:
            break
        moments.append(first[0]["availableAt"])
        waiting = {**waiting, "priority": {"$gt": first[0]["priority"]}}
    return moments


async def _resolve(scope: Scope) -> None:
    await finish.resolve(scope, await scope.now())


async def _fold(scope: Scope, limit: int) -> int:
    """Move notes into the sums, and let go of what is more than a day old."""
    forgotten = minute_of(await scope.now()) - timedelta(hours=KEPT_HOURS)
    await scope[MINUTES].delete_many({"at": {"$lt": forgotten}}, session=scope.session)
    await scope[LAGS].delete_many({"_id": {"$lt": forgotten}}, session=scope.session)
    notes = await _take_notes(scope, limit)
    if not notes:
        return 0
    there: dict[tuple[str, str], Document] = defaultdict(lambda: defaultdict(int))
    happened: dict[tuple[datetime, str, str], Document] = defaultdict(lambda: defaultdict(int))
    for note in notes:
        kind = (note["queue"], note.get("type", ""))
        for name in _THERE:
            there[kind][name] += note.get(name, 0)
        if any(note.get(name, 0) > 0 for name in _EVENTS):
            for name in _HAPPENED:
                happened[minute_of(note["at"]), *kind][name] += max(note.get(name, 0), 0)
    totals = [
        _adding({"queue": queue, "type": type}, added) for (queue, type), added in there.items() if any(added.values())
    ]
    minutes = [
        _adding({"at": at, "queue": queue, "type": type}, added) for (at, queue, type), added in happened.items()
    ]
    for collection, writes in ((TOTALS, totals), (MINUTES, minutes)):
        if writes:
            await scope[collection].bulk_write(writes, session=scope.session)
    return len(notes)


async def _fold_new(scope: Scope, limit: int) -> int:
    """Move jobs that are their own notes into the sums, the last first: others want the first ones.

    Not those that run: their handlers may be in a transaction that ends the job, and this would be in its way.
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


async def _take_notes(scope: Scope, limit: int) -> list[Document]:
    """Remove the first notes, which nobody else adds to the sums then."""
    if limit <= 0:
        return []
    if scope.session is None:
        return await _take_notes_alone(scope, limit)
    notes = await scope[NOTES].find(_COUNTED, session=scope.session).sort("_id", 1).limit(limit).to_list()
    await scope[NOTES].delete_many({"_id": {"$in": [note["_id"] for note in notes]}}, session=scope.session)
    return notes


async def _take_notes_alone(scope: Scope, limit: int) -> list[Document]:
    """The same without a transaction, one by one: else two would take the same."""
    taken: list[Document] = []
    while len(taken) < limit:
        note = await scope[NOTES].find_one_and_delete(_COUNTED, sort=[("_id", 1)])
        if note is None:
            break
        taken.append(note)
    return taken


def _adding(kind: Document, added: Document) -> UpdateOne:
    return UpdateOne({"_id": kind}, {"$inc": dict(added), "$setOnInsert": kind}, upsert=True)


def minute_of(moment: datetime) -> datetime:
    """The minute that a moment is in."""
    return moment.replace(second=0, microsecond=0)


async def rows(scope: Scope, collection: str, steps: list[Document]) -> list[Document]:
    """What an aggregation gives, in the transaction of the scope if there is one."""
    return await (await scope[collection].aggregate(steps, session=scope.session)).to_list()
