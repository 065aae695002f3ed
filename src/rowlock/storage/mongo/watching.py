"""The state of sync queues: counts, lag, failing jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rowlock.storage import watching
from rowlock.storage.calls import SyncCounts
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.dates import after
from rowlock.storage.mongo.documents import DELAYED, FINISHED, JOBS, READY
from rowlock.storage.mongo.jobs.failures import FAILURES
from rowlock.storage.mongo.jobs.listing import records
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import JobId, JobRecord, Status
from rowlock.storage.watching import DAY_SECONDS, FAILURES_LOOKED_AT, is_failing

READ_AT_ONCE = 100
_TOOK = {"$subtract": ["$finishedAt", "$startedAt"]}
_EVER = {"$gt": datetime(1970, 1, 1, tzinfo=UTC)}


class Watching(watching.Watching, Worked):
    """Answers what operators ask about a sync."""

    async def failing(self, queues: Sequence[str], limit: int, company_id: str | None = None) -> list[JobRecord]:
        return await self._plain(lambda scope: _failing(scope, queues, limit, company_id))

    async def _retrying(self, queues: Sequence[str]) -> int:
        again = {
            "queuedAt": _EVER,  # for the index of jobs that wait again, which are few
            "queue": {"$in": list(queues)},
            "state": {"$in": [READY, DELAYED]},
            "attempts": {"$gt": 0},
        }
        return await self._plain(lambda scope: scope[JOBS].count_documents(again, hint="again"))

    async def _mean_completed(self, queues: Sequence[str]) -> float | None:
        async def mean(scope: Scope) -> float | None:
            lately = {"$gt": after(await scope.now(), -DAY_SECONDS)}
            mine = {
                "status": Status.SUCCEEDED.value,
                "state": FINISHED,
                "updatedAt": lately,  # the same time as finishedAt, with an index
                "finishedAt": lately,
                "queue": {"$in": list(queues)},
            }
            steps: list[Document] = [{"$match": mine}, {"$group": {"_id": None, "ms": {"$avg": _TOOK}}}]
            found = await (await scope[JOBS].aggregate(steps)).to_list()
            return found[0]["ms"] if found else None

        return await self._plain(mean)

    async def _counts_of_company(self, queues: Sequence[str], company_id: str) -> SyncCounts:
        async def count(scope: Scope) -> SyncCounts:
            now = await scope.now()
            mine = {"companyId": company_id, "queue": {"$in": list(queues)}}
            steps = [{"$match": mine}, {"$group": {"_id": None, **_standing(now)}}]
            found = await (await scope[JOBS].aggregate(steps)).to_list()
            if not found:
                return SyncCounts(0, 0, 0, 0, 0, None, None)
            (sums,) = found
            since = sums.pop("since")
            del sums["_id"]
            return SyncCounts(**sums, lag_seconds=None if since is None else (now - since).total_seconds())

        return await self._plain(count)


def _standing(now: datetime) -> Document:
    """Return sums over jobs, by the names of SyncCounts."""

    def number(*conditions: Any) -> Document:
        return {"$sum": {"$cond": [{"$and": list(conditions)}, 1, 0]}}

    def is_now(status: Status) -> Document:
        return {"$eq": ["$status", status.value]}

    completed = [is_now(Status.SUCCEEDED), {"$gt": ["$finishedAt", after(now, -DAY_SECONDS)]}]
    tried = {"$gt": ["$attempts", 0]}
    due = {"$and": [is_now(Status.QUEUED), {"$lte": ["$availableAt", now]}]}
    return {
        "pending": number(is_now(Status.QUEUED), {"$not": [tried]}),
        "processing": number(is_now(Status.PROCESSING)),
        "retrying": number(is_now(Status.QUEUED), tried),
        "dead": number(is_now(Status.FAILED)),
        "completed_24h": number(*completed),
        "mean_ms": {"$avg": {"$cond": [{"$and": completed}, _TOOK, None]}},
        "since": {"$min": {"$cond": [due, "$availableAt", None]}},
    }


async def _failing(scope: Scope, queues: Sequence[str], limit: int, company_id: str | None) -> list[JobRecord]:
    ids = await _failed_lately(scope, queues, company_id)
    found: list[JobRecord] = []
    for start in range(0, len(ids), READ_AT_ONCE):
        if len(found) >= limit:
            break
        some = ids[start : start + READ_AT_ONCE]
        jobs = await records(scope, await scope[JOBS].find({"_id": {"$in": some}}).to_list())
        found += sorted(filter(is_failing, jobs), key=lambda job: some.index(job.id))
    return found[: max(limit, 0)]


async def _failed_lately(scope: Scope, queues: Sequence[str], company_id: str | None) -> list[JobId]:
    """Return the jobs of the last failures of each queue, or of the company, the latest first."""
    if company_id is None:
        asked: list[Document] = [{"queueName": queue} for queue in queues]
    else:
        asked = [{"companyId": company_id, "queueName": {"$in": list(queues)}}]
    rows: list[Document] = []
    for where in asked:
        last = scope[FAILURES].find(where, {"jobId": 1, "firstFailedAt": 1})
        rows += await last.sort([("firstFailedAt", -1), ("_id", -1)]).limit(FAILURES_LOOKED_AT).to_list()
    rows.sort(key=lambda row: (row["firstFailedAt"], row["jobId"]), reverse=True)
    return list(dict.fromkeys(row["jobId"] for row in rows))
