"""How the work of some queues stands, in the MongoDB store."""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.storage import watching
from rowlock.storage.calls import SyncCounts
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.documents import DELAYED, FINISHED, JOBS, READY, RUNNING
from rowlock.storage.mongo.failures import FAILURES
from rowlock.storage.mongo.listing import records
from rowlock.storage.mongo.moments import after
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import JobRecord, Status
from rowlock.storage.watching import DAY_SECONDS, FAILURES_LOOKED_AT, is_failing

_LATEST = [("firstFailedAt", -1), ("_id", -1)]


class Watching(watching.Watching, Worked):
    """What operators of a sync ask."""

    async def failing(self, queues: Sequence[str], limit: int, company_id: str | None = None) -> list[JobRecord]:
        if limit <= 0 or not queues:
            return []
        return await self._plain(lambda scope: _failing(scope, queues, limit, company_id))

    async def _retrying(self, queues: Sequence[str]) -> int:
        # Only a job that waits again has the field, and these are few: its index finds them.
        again = {"queuedAt": {"$exists": True}, "queue": {"$in": list(queues)}, "attempts": {"$gt": 0}}
        return await self._plain(lambda scope: scope[JOBS].count_documents(again))

    async def _counts_of_company(self, queues: Sequence[str], company_id: str) -> SyncCounts:
        async def count(scope: Scope) -> SyncCounts:
            now = await scope.now()
            lately = {"$gt": ["$finishedAt", after(now, -DAY_SECONDS)]}
            waits = {"$in": ["$state", [READY, DELAYED]]}
            fresh = {"$eq": ["$attempts", 0]}
            due = {"$and": [waits, {"$lte": ["$availableAt", now]}]}
            groups: Document = {
                "_id": None,
                "pending": _number({"$and": [waits, fresh]}),
                "processing": _number({"$eq": ["$state", RUNNING]}),
                "retrying": _number({"$and": [waits, {"$not": fresh}]}),
                "dead": _number({"$eq": ["$status", Status.FAILED.value]}),
                "completed": _number({"$and": [{"$eq": ["$status", Status.SUCCEEDED.value]}, lately]}),
                "mean": {
                    "$avg": {
                        "$cond": [
                            {"$and": [{"$eq": ["$state", FINISHED]}, lately]},
                            {"$subtract": ["$finishedAt", "$startedAt"]},
                            None,
                        ]
                    }
                },
                "oldest": {"$min": {"$cond": [due, "$availableAt", None]}},
            }
            of_company = {"companyId": company_id, "queue": {"$in": list(queues)}}
            cursor = await scope[JOBS].aggregate([{"$match": of_company}, {"$group": groups}])
            for found in await cursor.to_list():
                return SyncCounts(
                    found["pending"],
                    found["processing"],
                    found["retrying"],
                    found["dead"],
                    found["completed"],
                    found["mean"],
                    None if found["oldest"] is None else (now - found["oldest"]).total_seconds(),
                )
            return SyncCounts(0, 0, 0, 0, 0, None, None)

        return await self._plain(count)


def _number(condition: Document) -> Document:
    return {"$sum": {"$cond": [condition, 1, 0]}}


async def _failing(scope: Scope, queues: Sequence[str], limit: int, company_id: str | None) -> list[JobRecord]:
    asked: list[Document] = [{"queueName": queue} for queue in dict.fromkeys(queues)]
    if company_id is not None:
        asked = [{"companyId": company_id, "queueName": {"$in": list(queues)}}]
    shown = {"jobId": 1, "firstFailedAt": 1}
    failed: list[Document] = []
    for where in asked:
        failed += await scope[FAILURES].find(where, shown).sort(_LATEST).limit(FAILURES_LOOKED_AT).to_list()
    failed.sort(key=lambda one: (one["firstFailedAt"], one["_id"]), reverse=True)
    ids = list(dict.fromkeys(one["jobId"] for one in failed))
    found: list[JobRecord] = []
    for start in range(0, len(ids), limit):
        part = ids[start : start + limit]
        jobs = {job.id: job for job in await records(scope, await scope[JOBS].find({"_id": {"$in": part}}).to_list())}
        found += [jobs[job_id] for job_id in part if job_id in jobs and is_failing(jobs[job_id])]
        if len(found) >= limit:
            break
    return found[:limit]
