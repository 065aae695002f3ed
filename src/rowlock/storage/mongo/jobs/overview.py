"""The overview for operators: running jobs, groups of dead letters, history."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta

from pymongo.errors import DuplicateKeyError

from rowlock.ids import is_uuid
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.documents import DELAYED, JOBS, READY
from rowlock.storage.mongo.jobs.counter_deltas import DELTAS, CounterDeltas
from rowlock.storage.mongo.jobs.counters import EVENTS_ONLY, LAGS, MINUTES, minute_of, rows
from rowlock.storage.mongo.jobs.listing import NEWEST_FIRST, REASON, matching, running
from rowlock.storage.mongo.jobs.progress import with_reports
from rowlock.storage.mongo.work import Worked
from rowlock.storage.overview import MINUTE, DeadGroup, DeadGroups, History, Minute, Running
from rowlock.storage.records import JobFilter, JobId

_SHOWN = dict.fromkeys(
    ("type", "queue", "companyId", "state", "owner", "attempts", "lease", "lockedAt"),
    1,
)
_TOLD = ("succeeded", "failed", "failures")


class Overview(Worked):
    """Running jobs, dead letters by reason, and the history by minute."""

    async def running(self, limit: int) -> list[Running]:
        async def look(scope: Scope) -> list[Running]:
            first = scope[JOBS].find(running(), _SHOWN).sort([("lockedAt", 1), ("_id", 1)]).limit(limit)
            return [_running(job) for job in await with_reports(scope, await first.to_list())]

        return await self._plain(look) if limit > 0 else []

    async def run_now(self, job_id: JobId) -> bool:
        return is_uuid(job_id) and await self._atomic(lambda scope: _run_now(scope, job_id.lower()))

    async def dead_groups(self, where: JobFilter, look_at: int, limit: int) -> DeadGroups:
        return await self._plain(lambda scope: _dead_groups(scope, where, look_at, limit))

    async def history(self, minutes: int) -> History:
        return await self._atomic(lambda scope: _history(scope, minutes))

    async def note_lags(self, lags: Mapping[str, float]) -> bool:
        async def note(scope: Scope) -> bool:
            seconds = [{"queue": queue, "seconds": wait} for queue, wait in lags.items()]
            try:
                await scope[LAGS].insert_one({"_id": minute_of(await scope.now()), "lags": seconds})
            except DuplicateKeyError:
                return False
            return True

        return await self._plain(note)


def _running(job: Document) -> Running:
    return Running(
        job["_id"],
        job["type"],
        job["queue"],
        job.get("companyId"),
        job["owner"],
        job["attempts"],
        job["lockedAt"],
        job.get("progress"),
        job.get("message"),
    )


async def _run_now(scope: Scope, job_id: JobId) -> bool:
    now = await scope.now()
    job = await scope[JOBS].find_one_and_update(
        {"_id": job_id, "state": DELAYED, "availableAt": {"$gt": now}},
        {"$set": {"state": READY, "availableAt": now, "queuedAt": now, "updatedAt": now}},
        {"queue": 1, "type": 1},
        session=scope.session,
    )
    if job is None:
        return False
    deltas = CounterDeltas()
    deltas[job["queue"], job["type"]].rings = True
    await deltas.write(scope, now)
    return True


async def _dead_groups(scope: Scope, where: JobFilter, look_at: int, limit: int) -> DeadGroups:
    groups: list[Document] = [
        {"$match": await matching(scope, where)},
        {"$sort": dict(NEWEST_FIRST)},
        {"$limit": max(look_at, 1)},
        {"$project": {"type": 1, "finishedAt": 1, "reason": REASON}},
        {
            "$group": {
                "_id": {"type": "$type", "reason": "$reason"},
                "count": {"$sum": 1},
                "firstAt": {"$min": "$finishedAt"},
                "lastAt": {"$max": "$finishedAt"},
                "sample": {"$max": "$_id"},
            }
        },
    ]
    found = await rows(scope, JOBS, groups)
    found.sort(key=lambda one: (-one["count"], -one["lastAt"].timestamp(), one["_id"]["type"], one["_id"]["reason"]))
    return DeadGroups(
        [
            DeadGroup(
                one["_id"]["type"], one["_id"]["reason"], one["count"], one["firstAt"], one["lastAt"], one["sample"]
            )
            for one in found[: max(limit, 0)]
        ],
        sum(one["count"] for one in found),
    )


async def _history(scope: Scope, minutes: int) -> History:
    this = minute_of(await scope.now())
    since = this - timedelta(minutes=minutes - 1)
    sums: dict[tuple[datetime, str], Counter[str]] = defaultdict(Counter)
    group = {
        "$group": {
            "_id": {"at": {"$dateTrunc": {"date": "$at", "unit": "minute"}}, "queue": "$queue"},
            **{name: {"$sum": f"${name}"} for name in _TOLD},
        }
    }
    for collection, only in ((MINUTES, ()), (DELTAS, EVENTS_ONLY)):
        for one in await rows(scope, collection, [{"$match": {"at": {"$gte": since}}}, *only, group]):
            sums[one["_id"]["at"], one["_id"]["queue"]].update({name: one[name] for name in _TOLD})
    happened = [
        Minute(at, queue, *(counted[name] for name in _TOLD))
        for (at, queue), counted in sorted(sums.items())
        if any(counted.values())
    ]
    noted = scope[LAGS].find({"_id": {"$gt": since - MINUTE}}, session=scope.session)
    lags = {one["_id"]: {lag["queue"]: lag["seconds"] for lag in one["lags"]} async for one in noted}
    return History(this, happened, lags)
