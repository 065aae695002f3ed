"""Lists jobs by filter, newest first, and counts them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from pymongo.asynchronous.cursor import AsyncCursor

from rowlock.ids import first_id, is_uuid
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.documents import BY_ID, DELAYED, FINISHED, JOBS, READY, RUNNING, job_record, storable
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.jobs.counters import queues_known
from rowlock.storage.mongo.jobs.newest import with_newest
from rowlock.storage.mongo.jobs.progress import with_reports
from rowlock.storage.mongo.jobs.workers import WORKERS
from rowlock.storage.mongo.work import Worked
from rowlock.storage.overview import REASON_LENGTH_MAX
from rowlock.storage.records import JobFilter, JobId, JobRecord, Page, Status

Found = AsyncCursor[Document]

NEWEST_FIRST = (("createdAt", -1), ("seq", -1))
_FIRST_LINE = {"$arrayElemAt": [{"$split": [{"$ifNull": ["$error", ""]}, "\n"]}, 0]}
REASON = {"$substrCP": [{"$arrayElemAt": [{"$split": [_FIRST_LINE, " (attempt "]}, 0]}, 0, REASON_LENGTH_MAX]}
"""`overview.reason_of` as an expression."""

# `over` costs nothing until a job has finished; the claim's indexes find jobs in other states. Its keys include the
# state: a scan of a partial index reads every document unless the index itself has what the query asks for. The type of
# a job never changes: `of_type` costs work on inserts, but not on claims or settlements.
INDEXES: tuple[Index, ...] = (
    Index(JOBS, "in_time", NEWEST_FIRST),
    Index(JOBS, "of_type", (("type", 1), *NEWEST_FIRST)),
    Index(JOBS, "of_company", (("companyId", 1), *NEWEST_FIRST), where={"companyId": {"$exists": True}}),
    Index(JOBS, "over", (("status", 1), ("state", 1), *NEWEST_FIRST), where={"state": FINISHED}),
)


class Listing(Worked):
    """Reads single jobs, pages and counts."""

    async def get(self, job_id: JobId) -> JobRecord | None:
        if not is_uuid(job_id):
            return None

        async def find(scope: Scope) -> JobRecord | None:
            found = await scope[JOBS].find_one({"_id": job_id.lower()})
            return (await records(scope, [found]))[0] if found else None

        return await self._plain(find)

    async def page(self, where: JobFilter, limit: int, cursor: str | None = None) -> Page:
        # The cursor is the id of the last job seen: its seq would reveal how many jobs others have.
        if cursor is not None and not is_uuid(cursor):
            raise ValueError(f"{cursor[:40]!r} is not a cursor of this list: omit it to start with the first page")

        async def look(scope: Scope) -> Page:
            asked = await matching(scope, where)
            if cursor is not None:
                after = await _after(scope, cursor.lower())
                if after is None:
                    return Page([], None)
                asked = {"$and": [asked, after]}
            wanted = max(limit, 0)
            found = await look_at(scope, where, asked).sort(list(NEWEST_FIRST)).limit(wanted + 1).to_list()
            jobs = await records(scope, found[:wanted])
            return Page(jobs, jobs[-1].id if len(found) > wanted and jobs else None)

        return await self._plain(look)

    async def count(self, where: JobFilter, at_most: int) -> int:
        if at_most <= 0:
            return 0

        async def count(scope: Scope) -> int:
            by_id: dict[str, Any] = {} if where.ids is None else {"hint": BY_ID}
            return await scope[JOBS].count_documents(await matching(scope, where), limit=at_most, **by_id)

        return await self._plain(count)


def look_at(scope: Scope, where: JobFilter, asked: Document, shown: Document | None = None) -> Found:
    """Find matching jobs; a filter with ids uses the index on `_id`, whatever other indexes exist."""
    found = scope[JOBS].find(asked, shown, session=scope.session)
    return found if where.ids is None else found.hint(BY_ID)


async def records(scope: Scope, found: list[Document]) -> list[JobRecord]:
    """Return complete documents as records; running jobs with their last report and their worker's last heartbeat."""
    owners = list({job["owner"] for job in found if job["state"] == RUNNING})
    seen: dict[str, datetime] = {}
    if owners:
        workers = scope[WORKERS].find({"_id": {"$in": owners}}, {"seenAt": 1}, session=scope.session)
        seen = {worker["_id"]: worker["seenAt"] async for worker in workers}
    return [
        job_record(job, seen.get(job.get("owner", "")))
        for job in await with_newest(scope, await with_reports(scope, found))
    ]


async def matching(scope: Scope, where: JobFilter) -> Document:
    """Return the query for a filter, phrased so that existing indexes serve it."""
    asked: Document = {}
    if where.queue is not None:
        asked["queue"] = where.queue
    if where.type is not None:
        asked["type"] = where.type
    elif where.type_prefix is not None:
        asked["type"] = {"$regex": f"^{re.escape(where.type_prefix)}"}
    if where.company_id is not None:
        asked["companyId"] = where.company_id
    if where.ids is not None:
        asked["_id"] = {"$in": [job_id.lower() for job_id in where.ids if is_uuid(job_id)]}
    if where.since is not None:
        asked.setdefault("_id", {})["$gte"] = first_id(where.since)
    if where.until is not None:
        asked.setdefault("_id", {})["$lt"] = first_id(where.until)
    if where.reason is not None:
        asked["$expr"] = {"$eq": [REASON, {"$literal": storable(where.reason)}]}
    match where.status:
        case None:
            return asked
        case Status.QUEUED:
            # Each state has an index of its own that begins with the queue.
            known = {"queue": {"$in": await queues_known(scope)}} if where.queue is None else {}
            return asked | {"$or": [{"state": state, **known} for state in (READY, DELAYED)]}
        case Status.PROCESSING:
            return asked | running()
    return asked | {"status": where.status.value, "state": FINISHED}


def running() -> Document:
    """Return the query for running jobs, which uses the index on owners."""
    return {"state": RUNNING, "owner": {"$gt": ""}}


async def _after(scope: Scope, job_id: JobId) -> Document | None:
    """Return the query for jobs older than this one (if it was deleted, from the next older one on); None: no jobs."""
    shown = {"createdAt": 1, "seq": 1}
    found = await scope[JOBS].find({"_id": {"$lte": job_id}}, shown).sort("_id", -1).limit(1).to_list()
    if not found:
        return None
    (last,) = found
    before = "$lt" if last["_id"] == job_id else "$lte"
    moment = last["createdAt"]
    return {"createdAt": {"$lte": moment}, "$or": [{"createdAt": {"$lt": moment}}, {"seq": {before: last["seq"]}}]}
