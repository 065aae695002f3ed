"""Retention: prunes finished jobs, oldest first, in bounded batches, and records that nothing refers to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.dates import MILLISECOND, after
from rowlock.storage.mongo.documents import FINISHED, JOBS, RUNNING
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.jobs import limits
from rowlock.storage.mongo.jobs.counter_deltas import DELTAS
from rowlock.storage.mongo.jobs.enqueue import KEYS
from rowlock.storage.mongo.jobs.failures import DAY_SECONDS, remove_first
from rowlock.storage.mongo.jobs.operate import remove
from rowlock.storage.mongo.jobs.workers import WORKERS
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import KeepPolicy, Status, WorkerRecord

WORKER_KEPT_HOURS = 1
_LAST_SEQ = 2**63 - 1

# `updatedAt` of a finished job is when it finished: the same index finds recently finished jobs.
INDEXES: tuple[Index, ...] = (
    Index(
        JOBS,
        "over_in_time",
        (("status", 1), ("state", 1), ("updatedAt", 1), ("seq", 1)),
        where={"state": FINISHED},
    ),
)


class Retention(Worked):
    """Prunes what is no longer needed; lists workers."""

    async def prune(self, policies: Mapping[Status, KeepPolicy], limit: int) -> dict[Status, int]:
        pruned = {}
        for status, policy in policies.items():
            if status.final:
                pruned[status] = await self._prune_jobs(status, policy, limit)
        await self._plain(lambda scope: _forget(scope, limit))
        return pruned

    async def _prune_jobs(self, status: Status, policy: KeepPolicy, limit: int) -> int:
        async def prune(scope: Scope) -> int:
            now = await scope.now()
            jobs = await _let_go(scope, status, policy, now, limit)
            await remove(scope, jobs, now)
            return len(jobs)

        # One transaction for each status: less to retry if another caller prunes at the same time.
        return await self._atomic(prune)

    async def workers(self) -> list[WorkerRecord]:
        found = await self._plain(lambda scope: scope[WORKERS].find().sort([("startedAt", 1), ("_id", 1)]).to_list())
        return [
            WorkerRecord(
                one["_id"],
                one["name"],
                tuple(one["queues"]),
                tuple(one.get("types", ())),
                one["startedAt"],
                one["seenAt"],
            )
            for one in found
        ]


async def _let_go(scope: Scope, status: Status, policy: KeepPolicy, now: datetime, limit: int) -> list[Document]:
    """Return the oldest jobs of this status that its policy does not keep."""
    ended = {"status": status.value, "state": FINISHED}
    # Age and count both prune a first part of the same order, so the longer part is pruned.
    bounds: list[tuple[datetime, int]] = []
    if policy.days is not None:
        bounds.append((after(now, -policy.days * DAY_SECONDS) - MILLISECOND, _LAST_SEQ))
    if policy.count is not None:
        newest = scope[JOBS].find(ended, {"_id": 0, "updatedAt": 1, "seq": 1}, session=scope.session)
        kept_out = await newest.sort([("updatedAt", -1), ("seq", -1)]).skip(policy.count).limit(1).to_list()
        bounds += [(last["updatedAt"], last["seq"]) for last in kept_out]
    if not bounds or limit <= 0:
        return []
    moment, seq = max(bounds)
    # The jobs of a pending delta must stay: they are counted by their existence.
    pending = await scope[DELTAS].distinct("_id", {"pending": {"$exists": True}}, session=scope.session)
    asked = {**ended, "updatedAt": {"$lte": moment}, "$nor": [{"updatedAt": moment, "seq": {"$gt": seq}}]}
    if pending:
        asked["note"] = {"$nin": pending}
    found = scope[JOBS].find(asked, {"queue": 1, "type": 1, "status": 1, "isNew": 1}, session=scope.session)
    return await found.sort([("updatedAt", 1), ("seq", 1)]).limit(limit).to_list()


async def _forget(scope: Scope, limit: int) -> None:
    """Prune expired unique keys, idle limit keys, and workers that hold no lease and were not seen for an hour."""
    now = await scope.now()
    await remove_first(scope, KEYS, {"expiresAt": {"$lte": now}}, "expiresAt", limit)
    await limits.forget(scope, now)
    silent = {"seenAt": {"$lt": now - timedelta(hours=WORKER_KEPT_HOURS)}}
    for worker in await scope[WORKERS].find(silent, {"_id": 1}).limit(max(limit, 1)).to_list():
        if not await scope[JOBS].find_one({"owner": worker["_id"], "state": RUNNING}, {"_id": 1}):
            await scope[WORKERS].delete_one({**silent, "_id": worker["_id"]})
