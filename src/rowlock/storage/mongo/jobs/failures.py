"""Failure records: one document for each failed attempt, written with the attempt's settlement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pymongo import UpdateOne

from rowlock.ids import is_uuid
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.dates import after, floor
from rowlock.storage.mongo.documents import BY_ID, storable
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import Failed, JobId, Settlement, WorkerId
from rowlock.storage.reliability import (
    FailureFilter,
    FailureId,
    FailurePage,
    FailureRecord,
    failure_cursor,
    failure_page,
)

FAILURES = "job_failures"
DAY_SECONDS = 24 * 3600

_IN_TIME = (("firstFailedAt", -1), ("_id", -1))
INDEXES: tuple[Index, ...] = (
    Index(FAILURES, "in_time", _IN_TIME),
    Index(FAILURES, "of_job", (("jobId", 1), *_IN_TIME)),
    Index(FAILURES, "of_name", (("jobName", 1), *_IN_TIME)),
    Index(FAILURES, "of_queue", (("queueName", 1), *_IN_TIME)),
    Index(FAILURES, "of_company", (("companyId", 1), *_IN_TIME), where={"companyId": {"$exists": True}}),
    Index(FAILURES, "unnotified", (("firstFailedAt", 1), ("_id", 1)), where={"unnotified": True}),
    Index(FAILURES, "said", (("noticeId", 1),), where={"noticeId": {"$exists": True}}),
)


class Failures(Worked):
    """Lists, adds and prunes failure records."""

    async def failures(self, where: FailureFilter, limit: int, cursor: str | None = None) -> FailurePage:
        asked = _asked(where)
        if cursor is not None:
            moment, last = failure_cursor(cursor)
            asked["firstFailedAt"] = {"$lte": moment}
            asked["$or"] = [{"firstFailedAt": {"$lt": moment}}, {"_id": {"$lt": last}}]

        async def look(scope: Scope) -> list[Document]:
            found = scope[FAILURES].find(asked).sort([("firstFailedAt", -1), ("_id", -1)]).limit(max(limit, 0) + 1)
            return await found.to_list()

        return failure_page([_record(found) for found in await self._plain(look)], limit)

    async def failure(self, failure_id: FailureId) -> FailureRecord | None:
        if not is_uuid(failure_id):
            return None
        found = await self._plain(lambda scope: scope[FAILURES].find_one({"_id": failure_id.lower()}))
        return None if found is None else _record(found)

    async def add_failure(self, failure: FailureRecord) -> None:
        new = {"$setOnInsert": _document(failure)}
        await self._plain(lambda scope: scope[FAILURES].update_one({"_id": failure.id}, new, upsert=True))

    async def prune_failures(self, days: float, limit: int, *, count: int | None = None) -> int:
        async def prune(scope: Scope) -> int:
            old = {"firstFailedAt": {"$lt": after(await scope.now(), -days * DAY_SECONDS)}}
            removed = await remove_first(scope, FAILURES, old, "firstFailedAt", limit)
            if count is None or removed >= limit:
                return removed
            newest = scope[FAILURES].find({}, {"firstFailedAt": 1}).sort([("firstFailedAt", -1), ("_id", -1)])
            async for first in newest.skip(count).limit(1):
                then = first["firstFailedAt"]
                beyond = [{"firstFailedAt": {"$lt": then}}, {"firstFailedAt": then, "_id": {"$lte": first["_id"]}}]
                removed += await remove_first(scope, FAILURES, {"$or": beyond}, "firstFailedAt", limit - removed)
            return removed

        return await self._plain(prune)


def failure_document(
    failure: Failed, job: Document, end: Settlement, owner: WorkerId, attempt: int, final: bool, now: datetime
) -> Document:
    """Return the failure record of a failed attempt."""
    document: Document = {
        "_id": failure.id,
        "jobId": job["_id"],
        "jobName": job["type"],
        "queueName": job["queue"],
        "payload": failure.payload,
        "attempts": attempt,
        "maxAttempts": job["maxAttempts"],
        "isFinalAttempt": final,
        "failedReason": storable(end.error) or "",
        "firstFailedAt": now,
        "startedAt": None if end.seconds is None else after(now, -end.seconds),
        "owner": owner,
        "occurrences": 1,
    }
    if "companyId" in job:
        document["companyId"] = job["companyId"]
    if failure.stack is not None:
        document["stackTrace"] = storable(failure.stack)
    if final:
        document["unnotified"] = True  # until a notification names it
    return document


def _document(failure: FailureRecord) -> Document:
    document: Document = {
        "jobId": failure.job_id,
        "jobName": failure.job_name,
        "queueName": failure.queue_name,
        "companyId": failure.company_id,
        "payload": failure.payload,
        "attempts": failure.attempts,
        "maxAttempts": failure.max_attempts,
        "isFinalAttempt": failure.is_final_attempt,
        "failedReason": storable(failure.failed_reason),
        "stackTrace": storable(failure.stack_trace),
        "firstFailedAt": floor(failure.first_failed_at),
        "startedAt": failure.started_at and floor(failure.started_at),
        "owner": failure.owner,
        "occurrences": 1,
        "unnotified": failure.is_final_attempt or None,
    }
    unset = {"companyId", "stackTrace", "unnotified"}
    return {name: value for name, value in document.items() if value is not None or name not in unset}


async def record_failures(scope: Scope, failures: Sequence[tuple[Failed, Document]]) -> None:
    """Record these failures; `counted` ones (a storm) increment the record with their id, which the first creates."""
    own = [document for failure, document in failures if not failure.counted]
    if own:
        await scope[FAILURES].insert_many(own, session=scope.session)
    counted: dict[FailureId, UpdateOne] = {}
    counts = Counter(failure.id for failure, _ in failures if failure.counted)
    for failure, document in failures:
        if failure.counted and failure.id not in counted:
            change = {"$inc": {"occurrences": counts[failure.id]}, "$set": {"lastFailedAt": document["firstFailedAt"]}}
            new = {name: value for name, value in document.items() if name not in ("_id", "occurrences")}
            counted[failure.id] = UpdateOne({"_id": failure.id}, change | {"$setOnInsert": new}, upsert=True)
    if counted:
        await scope[FAILURES].bulk_write([*counted.values()], ordered=False, session=scope.session)


async def resolve_failures(scope: Scope, job_ids: list[JobId], now: datetime) -> None:
    """Mark the failures of these jobs as resolved by an operator's retry."""
    open_ones = {"jobId": {"$in": job_ids}, "resolvedAt": None}
    await scope[FAILURES].update_many(open_ones, {"$set": {"resolvedAt": now}}, session=scope.session)


async def remove_first(scope: Scope, collection: str, where: Document, by: str, limit: int) -> int:
    """Remove up to `limit` matching documents, in the order of the field `by`; return how many this call has removed.

    A document that no longer matches at its removal stays: no transaction is needed.
    """
    if limit <= 0:
        return 0
    found = await scope[collection].find(where, {"_id": 1}).sort(by, 1).limit(limit).to_list()
    if not found:
        return 0
    these = {**where, "_id": {"$in": [one["_id"] for one in found]}}
    removed = await scope[collection].delete_many(these, hint=BY_ID)
    return removed.deleted_count


def _asked(where: FailureFilter) -> Document:
    asked: dict[str, Any] = {}
    if where.company_id is not None:
        asked["companyId"] = where.company_id
    if where.job_name is not None:
        asked["jobName"] = where.job_name
    if where.job_id is not None:
        asked["jobId"] = where.job_id.lower()
    if where.final is not None:
        asked["isFinalAttempt"] = where.final
    if where.unresolved:
        asked["resolvedAt"] = None
    return asked


def _record(document: Document) -> FailureRecord:
    return FailureRecord(
        id=document["_id"],
        job_id=document["jobId"],
        job_name=document["jobName"],
        queue_name=document["queueName"],
        company_id=document.get("companyId"),
        payload=document["payload"],
        attempts=document["attempts"],
        max_attempts=document["maxAttempts"],
        is_final_attempt=document["isFinalAttempt"],
        failed_reason=document["failedReason"],
        stack_trace=document.get("stackTrace"),
        first_failed_at=document["firstFailedAt"],
        resolved_at=document.get("resolvedAt"),
        started_at=document["startedAt"],
        owner=document["owner"],
        occurrences=document["occurrences"],
        last_failed_at=document["lastFailedAt"] if document["occurrences"] > 1 else None,
    )
