"""The record of failed attempts: one document each, written with the settlement that it belongs to."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rowlock.ids import is_uuid
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.documents import BY_ID, storable
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.moments import after
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

FAILURES = "rowlock_failures"
DAY_SECONDS = 24 * 3600

_IN_TIME = (("firstFailedAt", -1), ("_id", -1))
INDEXES: tuple[Index, ...] = (
    Index(FAILURES, "in_time", _IN_TIME),
    Index(FAILURES, "of_job", (("jobId", 1), *_IN_TIME)),
    Index(FAILURES, "of_name", (("jobName", 1), *_IN_TIME)),
    Index(FAILURES, "of_queue", (("queueName", 1), *_IN_TIME)),
    Index(FAILURES, "of_company", (("companyId", 1), *_IN_TIME), where={"companyId": {"$exists": True}}),
    Index(FAILURES, "unsaid", (("firstFailedAt", 1), ("_id", 1)), where={"unsaid": True}),
    Index(FAILURES, "said", (("noticeId", 1),), where={"noticeId": {"$exists": True}}),
)


class Failures(Worked):
    """What operators ask about attempts that failed."""

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

    async def prune_failures(self, days: float, limit: int) -> int:
        async def prune(scope: Scope) -> int:
            old = {"firstFailedAt": {"$lt": after(await scope.now(), -days * DAY_SECONDS)}}
            return await remove_first(scope, FAILURES, old, "firstFailedAt", limit)

        return await self._plain(prune)


def failure_document(
    failure: Failed, job: Document, end: Settlement, owner: WorkerId, attempt: int, final: bool, now: datetime
) -> Document:
    """What is kept of an attempt of this job that failed."""
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
        "startedAt": after(now, -end.seconds),
        "owner": owner,
    }
    if "companyId" in job:
        document["companyId"] = job["companyId"]
    if failure.stack is not None:
        document["stackTrace"] = storable(failure.stack)
    if final:
        document["unsaid"] = True  # until a message names it
    return document


async def resolve_failures(scope: Scope, job_ids: list[JobId], now: datetime) -> None:
    """Note that an operator had these jobs retried."""
    open_ones = {"jobId": {"$in": job_ids}, "resolvedAt": None}
    await scope[FAILURES].update_many(open_ones, {"$set": {"resolvedAt": now}}, session=scope.session)


async def remove_first(scope: Scope, collection: str, where: Document, by: str, limit: int) -> int:
    """Remove up to `limit` documents that match, the first by this field first, and count those that this call has.

    What matches no more when its turn comes stays: no transaction is needed.
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
    )
