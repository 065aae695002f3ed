"""Settle: records the end of an attempt, for its owner or for the rescue of an expired lease."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from pymongo.errors import OperationFailure

from rowlock.errors import StoreError, StoreUnavailable
from rowlock.ids import uuid7
from rowlock.storage.mongo.connection import BUSY_SECONDS, Document, Scope
from rowlock.storage.mongo.dates import after, now_of
from rowlock.storage.mongo.documents import (
    DELAYED,
    JOBS,
    READY,
    RUNNING,
    json_text,
    storable,
)
from rowlock.storage.mongo.jobs import attempts
from rowlock.storage.mongo.jobs.counter_deltas import CounterDeltas
from rowlock.storage.mongo.jobs.endings import RUNNING_ONLY, SEEN, Changes, look, over
from rowlock.storage.mongo.jobs.enqueue import KEYS
from rowlock.storage.mongo.jobs.failures import failure_document, record_failures
from rowlock.storage.mongo.jobs.finish import finish, is_plain
from rowlock.storage.mongo.jobs.limits import take_back_starts
from rowlock.storage.mongo.jobs.workers import WORKERS
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import Attempt, Failed, JobId, Outcome, Rescued, Settlement, Status, WorkerId

AWAY_SECONDS = 0.5
"""A search for expired leases that takes longer has waited for a server to come back."""

_RESCUE_SECONDS = 10.0  # a rescue writes up to 1,000 jobs in one transaction

_GIVEN_BACK = (Outcome.RELEASE, Outcome.SUSPECT)
_FAILURES = (Outcome.FAILED, Outcome.RETRY, Outcome.CRASH, Outcome.FATAL)
_DEATHS = (Outcome.CRASH, Outcome.SUSPECT, Outcome.FATAL)
_STATUS = {Outcome.SUCCEEDED: Status.SUCCEEDED, Outcome.FAILED: Status.FAILED, Outcome.CANCELLED: Status.CANCELLED}

_LOST = {**SEEN, **dict.fromkeys(("owner", "lockedAt", "payload", "payloadText", "now"), 1)}


class Settling(Worked):
    """Records how attempts end."""

    async def settle(self, owner: WorkerId, settlements: Sequence[Settlement]) -> list[JobId]:
        if not settlements:
            return []
        if dead := [Attempt(end.job_id, end.lease) for end in settlements if end.outcome in _DEATHS]:
            await self._plain(lambda scope: attempts.end(scope.db, dead), BUSY_SECONDS)  # their processes are gone
        left = settlements
        if all(map(is_plain, settlements)):
            left = await self._plain(lambda scope: finish(scope, owner, settlements), BUSY_SECONDS)

        async def work(scope: Scope) -> list[JobId]:
            try:
                return await settle(scope, owner, left)
            except OperationFailure:  # a transaction of these attempts may conflict; the attempts have ended
                await attempts.end(scope.db, [Attempt(end.job_id, end.lease) for end in left])
                raise

        return await self._atomic(work, BUSY_SECONDS) if left else []

    async def rescue(
        self, limit: int, delay_seconds: Mapping[str, float], redact: Callable[[str], str]
    ) -> list[Rescued]:
        if limit <= 0:
            return []
        heard_at = time.monotonic()  # the server's last answer
        expired = await self._plain(lambda scope: _expired(scope, limit, {"_id": 1}), BUSY_SECONDS)
        if not expired:
            return []  # the usual case

        lost: list[Attempt] = []

        async def work(scope: Scope) -> list[Rescued]:
            nonlocal heard_at, lost
            # The driver waits while the server is away, and workers send no heartbeats. They must come before a rescue.
            if time.monotonic() - heard_at > AWAY_SECONDS:
                raise StoreUnavailable(f"MongoDB at {self.url} was away: its workers are heard before jobs are rescued")
            try:
                rescued, lost = await _rescue(scope, limit, delay_seconds, redact)
            except OperationFailure:  # a conflict with another rescue or a lost attempt: the server did answer
                heard_at = time.monotonic()
                still = await _expired(Scope(scope.db, None, scope.clock), limit, {"lease": 1})
                await attempts.end(scope.db, [Attempt(job["_id"], job["lease"]) for job in still])
                raise
            heard_at = time.monotonic()
            return rescued

        rescued = await self._atomic(work, _RESCUE_SECONDS)
        with suppress(StoreError):  # if it fails, the next attempts end them
            await self._plain(lambda scope: attempts.end(scope.db, lost), BUSY_SECONDS)
        return rescued


async def settle(scope: Scope, owner: WorkerId, settlements: Sequence[Settlement]) -> list[JobId]:
    """Settle these attempts; return the jobs whose lease was lost, which stay as they are."""
    deltas = CounterDeltas()
    lost, now = await _settle(scope, owner, settlements, deltas)
    if now is not None:
        await deltas.write(scope, now)
    return lost


async def _settle(
    scope: Scope, owner: WorkerId, settlements: Sequence[Settlement], deltas: CounterDeltas
) -> tuple[list[JobId], datetime | None]:
    ended, lost, now = await look(scope, owner, settlements)
    # In a transaction, a concurrent change of one of these jobs is a conflict, and all of it is retried.
    together = [ended] if scope.session is not None else [[one] for one in ended]
    for some in together:
        if some and now is not None:
            changes = CounterDeltas()
            if await _place(scope, now, owner, some, changes):
                deltas.add(changes)
            else:
                lost += [end.job_id for _, end in some]
    return lost, now


async def _place(
    scope: Scope, now: datetime, owner: WorkerId, ended: Sequence[tuple[Document, Settlement]], deltas: CounterDeltas
) -> bool:
    """Apply each outcome to its job; returns False, and does nothing else, if a lease is lost."""
    changes, failures, keys, unstarted = Changes(owner), [], [], []
    for job, end in ended:
        outcome = Outcome(end.outcome)
        change = deltas[end.queue, end.type]
        change.failures += outcome in _FAILURES
        attempts = job["attempts"] - (outcome in _GIVEN_BACK)
        deaths = job["deaths"] + (outcome in _DEATHS)
        if outcome is Outcome.FATAL:
            outcome = Outcome.FAILED
        elif job.get("cancelRequested") and outcome > Outcome.CANCELLED:
            outcome = Outcome.CANCELLED  # a job with a requested cancel must not run again
        if outcome not in _GIVEN_BACK:  # a released attempt does not count, nor does its time
            change.seconds += end.seconds or 0.0
        reason = storable(end.error)
        if end.failure is not None:
            final = outcome is Outcome.FAILED
            failures.append((end.failure, failure_document(end.failure, job, end, owner, attempts, final, now)))
        fields: Document = {"attempts": attempts, "deaths": deaths, "updatedAt": now}
        gone: Document = dict(RUNNING_ONLY)
        if end.seconds is None:
            gone["startedAt"] = ""
            if job.get("limitKey"):
                unstarted.append((job["limitKey"], job["_id"], job["lease"]))
        if outcome <= Outcome.CANCELLED:
            change.alive -= 1
            change.succeeded += outcome is Outcome.SUCCEEDED
            change.failed += outcome is Outcome.FAILED
            change.cancelled += outcome is Outcome.CANCELLED
            fields |= over(end, _STATUS[outcome], now)
            if job.get("releasesKey"):
                keys.append({"_id": job["uniqueKey"], "jobId": job["_id"]})
        else:
            available_at = after(now, max(0.0, end.delay_seconds))
            change.retries += outcome is Outcome.RETRY
            change.rings = True
            fields |= {
                "state": DELAYED if available_at > now else READY,
                "status": Status.QUEUED.value,
                "queuedAt": now,
            }
            if end.seconds is not None or available_at > now:  # a job that did not start keeps its old time
                fields["availableAt"] = available_at
            gone["startedAt"] = ""
        if reason is not None:
            fields["error"] = reason
        changes.add(job["_id"], job["lease"], fields, gone)
    result = await scope[JOBS].bulk_write(changes.updates(), ordered=False, session=scope.session)
    if result.matched_count < len(ended):
        return False
    if failures:
        await record_failures(scope, failures)
    if keys:
        await scope[KEYS].delete_many({"$or": keys}, session=scope.session)
    await take_back_starts(scope, unstarted)
    return True


async def _rescue(
    scope: Scope, limit: int, delay_seconds: Mapping[str, float], redact: Callable[[str], str]
) -> tuple[list[Rescued], list[Attempt]]:
    """Settle the attempts with expired leases in place of their owners; also returns these attempts."""
    rescued = []
    deltas = CounterDeltas()
    by_owner: dict[WorkerId, list[Settlement]] = defaultdict(list)
    expired = await _expired(scope, limit, _LOST)
    for job in expired:
        queue, type, owner, attempts = job["queue"], job["type"], job["owner"], job["attempts"]
        deltas[queue, type].rescues += 1
        cancelled = bool(job.get("cancelRequested"))
        if cancelled:
            outcome = Outcome.CANCELLED
        elif attempts >= job["maxAttempts"]:
            outcome = Outcome.FAILED
        else:
            outcome = Outcome.RETRY
        payload = json_text(job, "payload") or "{}"
        by_owner[owner].append(
            Settlement(
                job["_id"],
                job["lease"],
                outcome,
                seconds=(job["now"] - job["lockedAt"]).total_seconds(),
                delay_seconds=delay_seconds.get(queue, 0.0),
                error=f"lease expired: its worker sends no heartbeats\nthe worker: {owner}",
                type=type,
                queue=queue,
                failure=None if cancelled else Failed(uuid7(), redact(payload), None),
            )
        )
        status = _STATUS.get(outcome, Status.QUEUED)
        rescued.append(Rescued(job["_id"], type, queue, owner, attempts, job["maxAttempts"], status))
    if not rescued:
        return [], []
    # Conflict with concurrent heartbeats of these owners, so that one comes before the other.
    await scope[WORKERS].update_many({"_id": {"$in": list(by_owner)}}, {"$inc": {"rescues": 1}}, session=scope.session)
    for owner, settlements in by_owner.items():
        await _settle(scope, owner, settlements, deltas)
    for change in deltas.values():
        change.retries, change.seconds = 0, 0.0  # a rescue is no retry, and the handler's run time is not known
    await deltas.write(scope, expired[0]["now"])
    return rescued, [Attempt(job["_id"], job["lease"]) for job in expired]


async def _expired(scope: Scope, limit: int, fields: Document) -> list[Document]:
    """Return running jobs whose claim, and whose owner's last heartbeat, are older than their visibility timeout."""
    now: Any = now_of(scope.clock)
    late: Document = {"$lt": [{"$add": ["$lockedAt", "$visibilityMs"]}, now]}
    seen: Document = {"$ifNull": [{"$first": "$worker.seenAt"}, "$lockedAt"]}
    found = await scope[JOBS].aggregate(
        [
            {"$match": {"state": RUNNING, "$expr": late}},
            {"$lookup": {"from": WORKERS, "localField": "owner", "foreignField": "_id", "as": "worker"}},
            {"$match": {"$expr": {"$lt": [{"$add": [seen, "$visibilityMs"]}, now]}}},
            {"$sort": {"seq": 1}},
            {"$limit": limit},
            {"$set": {"now": now}},
            {"$project": fields},
        ],
        session=scope.session,
        hint="running",
    )
    return await found.to_list()
