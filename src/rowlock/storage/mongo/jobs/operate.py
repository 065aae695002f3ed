"""Operator commands: cancel, retry and discard, each in one transaction with its counter deltas; pause and resume."""

from __future__ import annotations

from datetime import datetime

from pymongo import ReplaceOne

from rowlock.ids import is_uuid
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.documents import BY_ID, FINISHED, JOBS, READY
from rowlock.storage.mongo.jobs import newest, progress
from rowlock.storage.mongo.jobs.claim import QUEUES
from rowlock.storage.mongo.jobs.counter_deltas import DELTAS, Change, CounterDeltas, ring
from rowlock.storage.mongo.jobs.enqueue import KEYS
from rowlock.storage.mongo.jobs.failures import resolve_failures
from rowlock.storage.mongo.jobs.listing import NEWEST_FIRST, look_at, matching
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import LEASES_PER_RETRY, CancelResult, JobFilter, JobId, Retried, Status

# `lease_after_retry` as an expression.
_CLAIMS = {"$mod": ["$lease", LEASES_PER_RETRY]}
_AFTER_RETRY = {"$add": ["$lease", {"$mod": [{"$subtract": [LEASES_PER_RETRY, _CLAIMS]}, LEASES_PER_RETRY]}]}
_DEAD = (Status.FAILED, Status.CANCELLED)
_DEAD_SHOWN = dict.fromkeys(("seq", "queue", "type", "status", "isNew", "uniqueKey", "releasesKey"), 1)


class Operators(Worked):
    """The commands of operators on jobs and queues."""

    async def cancel(self, job_id: JobId) -> CancelResult:
        if not is_uuid(job_id):
            return CancelResult.NOT_FOUND
        return await self._atomic(lambda scope: _cancel(scope, job_id.lower()))

    async def retry(self, where: JobFilter, limit: int) -> Retried:
        return await self._atomic(lambda scope: _retry(scope, where, limit))

    async def discard(self, where: JobFilter, limit: int) -> list[JobId]:
        return await self._atomic(lambda scope: _discard(scope, where, limit))

    async def pause(self, queue: str) -> None:
        async def pause(scope: Scope) -> None:
            first = {"$setOnInsert": {"pausedAt": await scope.now()}}
            await scope[QUEUES].update_one({"_id": queue}, first, upsert=True)

        await self._plain(pause)

    async def resume(self, queue: str) -> None:
        async def resume(scope: Scope) -> None:
            await scope[QUEUES].delete_one({"_id": queue})
            await ring(scope, queue)

        await self._plain(resume)


async def _cancel(scope: Scope, job_id: JobId) -> CancelResult:
    now = await scope.now()
    cancelled = {
        "status": Status.CANCELLED.value,
        "state": FINISHED,
        "finishedAt": now,
        "updatedAt": now,
        "error": "cancelled before it started",
    }
    job = await scope[JOBS].find_one_and_update(
        {"_id": job_id, "status": Status.QUEUED.value},
        {"$set": cancelled, "$unset": {"queuedAt": ""}},
        dict.fromkeys(("queue", "type", "uniqueKey", "releasesKey"), 1),
        session=scope.session,
    )
    if job is None:
        return await _ask_to_stop(scope, job_id, now)
    if job.get("releasesKey"):
        await scope[KEYS].delete_one({"_id": job["uniqueKey"], "jobId": job_id}, session=scope.session)
    deltas = CounterDeltas()
    deltas[job["queue"], job["type"]] = Change(alive=-1, cancelled=1)
    await deltas.write(scope, now)
    return CancelResult.CANCELLED


async def _ask_to_stop(scope: Scope, job_id: JobId, now: datetime) -> CancelResult:
    """Ask the owner of a running job to stop it, once."""
    running = {"_id": job_id, "status": Status.PROCESSING.value}
    asked = await scope[JOBS].find_one_and_update(
        {**running, "cancelRequested": {"$ne": True}},
        {"$set": {"cancelRequested": True, "updatedAt": now}},
        {"queue": 1, "type": 1},
        session=scope.session,
    )
    if asked is not None:
        delta = {"at": now, "queue": asked["queue"], "type": asked["type"], "cancels": job_id}
        await scope[DELTAS].insert_one(delta, session=scope.session)
        return CancelResult.REQUESTED
    found = await scope[JOBS].find_one({"_id": job_id}, {"status": 1}, session=scope.session)
    if found is None:
        return CancelResult.NOT_FOUND
    return CancelResult.ALREADY_FINAL if Status(found["status"]).final else CancelResult.REQUESTED


async def _retry(scope: Scope, where: JobFilter, limit: int) -> Retried:
    """Queue failed or cancelled jobs again, oldest first, unless another job has their key; per key only the newest."""
    now = await scope.now()
    dead = await _dead(scope, where, limit)
    conflicts = await _retake_keys(scope, dead, now)
    jobs = [job for job in dead if job["_id"] not in conflicts]
    if jobs:
        ids = [job["_id"] for job in jobs]
        waiting: Document = {
            "status": Status.QUEUED.value,
            "state": READY,
            "attempts": 0,
            "deaths": 0,
            "lease": _AFTER_RETRY,
            "availableAt": now,
            "queuedAt": now,
            "updatedAt": now,
        }
        change: list[Document] = [{"$set": waiting}, {"$unset": ["startedAt", "finishedAt", "result", "resultText"]}]
        over = {"_id": {"$in": ids}, "state": FINISHED}
        await scope[JOBS].update_many(over, change, hint=BY_ID, session=scope.session)
        await resolve_failures(scope, ids, now)
    deltas = gone(jobs)
    for job in jobs:
        deltas[job["queue"], job["type"]].alive += 1
        deltas[job["queue"], job["type"]].rings = True
    await deltas.write(scope, now)
    return Retried([job["_id"] for job in jobs], [job["_id"] for job in dead if job["_id"] in conflicts])


async def _retake_keys(scope: Scope, jobs: list[Document], now: datetime) -> set[JobId]:
    """Take free keys again for these jobs; return the jobs that may not run because another job has their key."""
    keys = list({job["uniqueKey"] for job in jobs if "uniqueKey" in job})
    if not keys:
        return set()
    found = {key["_id"]: key async for key in scope[KEYS].find({"_id": {"$in": keys}}, session=scope.session)}
    holders = {name: key["jobId"] for name, key in found.items() if "expiresAt" not in key or key["expiresAt"] > now}
    taken, conflicts = [], set()
    for job in reversed(jobs):
        if (key := job.get("uniqueKey")) is None:
            continue
        if key not in holders and job.get("releasesKey"):
            holders[key] = job["_id"]
            # As in enqueue: if another caller has taken it meanwhile, the upsert fails with a duplicate key.
            before = {"_id": key, "jobId": found[key]["jobId"] if key in found else job["_id"]}
            taken.append(ReplaceOne(before, {"jobId": job["_id"]}, upsert=True))
        elif holders.get(key, job["_id"]) != job["_id"]:
            conflicts.add(job["_id"])
    if taken:
        await scope[KEYS].bulk_write(taken, session=scope.session)
    return conflicts


async def _discard(scope: Scope, where: JobFilter, limit: int) -> list[JobId]:
    dead = await _dead(scope, where, limit)
    ids = [job["_id"] for job in dead]
    keys = [job["uniqueKey"] for job in dead if "uniqueKey" in job]
    if keys:
        await scope[KEYS].delete_many({"_id": {"$in": keys}, "jobId": {"$in": ids}}, session=scope.session)
    await remove(scope, dead, await scope.now())
    return ids


async def remove(scope: Scope, jobs: list[Document], now: datetime) -> None:
    """Remove these finished jobs."""
    if jobs:
        ids = [job["_id"] for job in jobs]
        over = {"_id": {"$in": ids}, "state": FINISHED}
        await scope[JOBS].delete_many(over, hint=BY_ID, session=scope.session)
        await progress.forget(scope, ids)
        await newest.forget(scope, ids)
        deltas = gone(jobs)
        for job in jobs:
            deltas[job["queue"], job["type"]].alive += "isNew" in job  # the job was its own delta until now
        await deltas.write(scope, now)


def gone(jobs: list[Document]) -> CounterDeltas:
    """Return the deltas that subtract these jobs from their statuses."""
    deltas = CounterDeltas()
    for job in jobs:
        change = deltas[job["queue"], job["type"]]
        setattr(change, job["status"], getattr(change, job["status"]) - 1)
    return deltas


async def _dead(scope: Scope, where: JobFilter, limit: int) -> list[Document]:
    """Return failed or cancelled jobs that match, oldest first: the newest `limit`, or with ids the oldest `limit`."""
    if (where.status is not None and where.status not in _DEAD) or limit <= 0:
        return []
    asked = await matching(scope, where) | {"state": FINISHED}
    asked.setdefault("status", {"$in": [status.value for status in _DEAD]})
    found = look_at(scope, where, asked, _DEAD_SHOWN)
    if where.ids is None:
        found = found.sort(list(NEWEST_FIRST)).limit(limit)
    return sorted(await found.to_list(), key=lambda job: job["seq"])[:limit]
