"""Recently changed jobs, for the event stream: each is found once, as it is, in one snapshot of the store."""

from __future__ import annotations

from datetime import datetime

from rowlock.storage.access import Changes, JobChange
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.dates import MILLISECOND, floor
from rowlock.storage.mongo.documents import DELAYED, FINISHED, JOBS, READY, RUNNING
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.jobs.progress import WITH_REPORT
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import JobId, Status

INDEXES: tuple[Index, ...] = (
    # Jobs that wait again, which are few. Other waiting jobs have not changed since they were created.
    Index(JOBS, "again", (("queuedAt", 1), ("seq", 1)), where={"queuedAt": {"$exists": True}}),
)

_IN_ORDER = [("updatedAt", 1), ("seq", 1)]
_WAITING = {"$in": [READY, DELAYED]}
_FINAL = [status.value for status in Status if status.final]
_SHOWN = dict.fromkeys(
    (
        "seq", "type", "queue", "status", "state", "attempts", "maxAttempts", "lease", "progress", "message", "error",
        "companyId", "updatedAt",
    ),
    1,
)  # fmt: skip


class Changing(Worked):
    """Lists recently changed jobs."""

    async def changes(self, since: datetime, limit: int) -> Changes:
        return await self._atomic(lambda scope: _changes(scope, since, max(limit, 0)))


async def _changes(scope: Scope, since: datetime, limit: int) -> Changes:
    first = floor(since)
    if first < since:
        first += MILLISECOND  # rounded up to MongoDB's milliseconds
    now = await scope.now()
    jobs: dict[JobId, Document] = {}
    # In the order of a job's states: without a transaction, a job that moves on meanwhile is found again, not missed.
    for where, order in _waiting(first):
        some = scope[JOBS].find(where, _SHOWN, session=scope.session)
        jobs |= {job["_id"]: job for job in await some.sort(order).limit(limit + 1).to_list()}
    jobs |= {job["_id"]: job for job in await _running(scope, first, limit + 1)}
    over = {"status": {"$in": _FINAL}, "state": FINISHED, "updatedAt": {"$gte": first}}
    ended = scope[JOBS].find(over, _SHOWN, session=scope.session).sort(_IN_ORDER).limit(limit + 1)
    jobs |= {job["_id"]: job for job in await ended.to_list()}
    found = sorted(jobs.values(), key=lambda job: (job["updatedAt"], job["seq"]))
    return Changes([_change(job) for job in found[:limit]], len(found) > limit, now)


def _waiting(since: datetime) -> list[tuple[Document, list[tuple[str, int]]]]:
    """Return the queries for waiting jobs that have changed since then, each with the order of its index."""
    lately = {"$gte": since}
    return [
        ({"createdAt": lately, "state": _WAITING, "queuedAt": None}, [("createdAt", 1), ("seq", 1)]),
        ({"queuedAt": lately, "state": _WAITING}, [("queuedAt", 1), ("seq", 1)]),
    ]


async def _running(scope: Scope, since: datetime, limit: int) -> list[Document]:
    """Return running jobs that were claimed or have reported since then."""
    steps: list[Document] = [
        {"$match": {"owner": {"$gt": ""}, "state": RUNNING}},
        *WITH_REPORT,
        {"$match": {"updatedAt": {"$gte": since}}},
        {"$sort": dict(_IN_ORDER)},
        {"$limit": limit},
        {"$project": _SHOWN},
    ]
    return await (await scope[JOBS].aggregate(steps, session=scope.session, hint="running")).to_list()


def _change(job: Document) -> JobChange:
    running = job["state"] == RUNNING
    return JobChange(
        id=job["_id"],
        type=job["type"],
        queue=job["queue"],
        status=Status(job["status"]),
        attempts=job["attempts"],
        max_attempts=job["maxAttempts"],
        lease=job["lease"],
        progress=job.get("progress") if running else None,
        message=job.get("message") if running else None,
        error=job.get("error"),
        company_id=job.get("companyId"),
        changed_at=job["updatedAt"],
    )
