"""Progress reports of running jobs, in documents beside theirs.

A handler's transaction settles its job, and would be rolled back if a report had changed the job since it began.
A report names its lease, and is shown only while the job has that lease: reports of lost attempts never appear.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from rowlock.storage.mongo.connection import BUSY_SECONDS, Document, Scope
from rowlock.storage.mongo.documents import BY_ID, JOBS, RUNNING, storable
from rowlock.storage.mongo.errors import DUPLICATE
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import JobId, Progress, WorkerId

REPORTS = "rowlock_progress"
INDEXES = (Index(REPORTS),)

WITH_REPORT: list[Document] = [
    {"$lookup": {"from": REPORTS, "localField": "_id", "foreignField": "_id", "as": "report"}},
    {"$set": {"report": {"$first": "$report"}}},
    {"$set": {"report": {"$cond": [{"$eq": ["$report.lease", "$lease"]}, "$report", None]}}},
    {
        "$set": {
            "progress": "$report.percent",
            "message": "$report.message",
            "updatedAt": {"$max": ["$updatedAt", "$report.at"]},
        }
    },
]
"""Stages that add to running jobs their last report and its time."""


class Progressing(Worked):
    """Records the progress that attempts report."""

    async def progress(self, owner: WorkerId, reports: Sequence[Progress]) -> list[JobId]:
        async def work(scope: Scope) -> list[JobId]:
            mine = {"_id": {"$in": [report.job_id for report in reports]}, "state": RUNNING, "owner": owner}
            leases = {job["_id"]: job["lease"] async for job in scope[JOBS].find(mine, {"lease": 1}, hint=BY_ID)}
            await _write(scope, [report for report in reports if leases.get(report.job_id) == report.lease])
            return [report.job_id for report in reports if leases.get(report.job_id) != report.lease]

        return await self._plain(work, BUSY_SECONDS) if reports else []


async def with_reports(scope: Scope, jobs: Iterable[Document]) -> list[Document]:
    """Return the jobs; running ones with their last report."""
    found = list(jobs)
    running = [job["_id"] for job in found if job["state"] == RUNNING]
    if not running:
        return found
    reports = scope[REPORTS].find({"_id": {"$in": running}}, session=scope.session)
    said = {report["_id"]: report async for report in reports}
    return [_told(job, said.get(job["_id"])) for job in found]


async def forget(scope: Scope, jobs: Sequence[JobId]) -> None:
    """Remove the reports of removed jobs."""
    await scope[REPORTS].delete_many({"_id": {"$in": list(jobs)}}, session=scope.session)


def _told(job: Document, report: Document | None) -> Document:
    if report is None or report["lease"] != job["lease"]:
        return job
    return job | {"progress": report["percent"], "message": report["message"]}


async def _write(scope: Scope, reports: Sequence[Progress]) -> None:
    if not reports:
        return
    now: Any = await scope.now()
    latest = {report.job_id: report for report in reports}
    updates = [
        UpdateOne(
            {"_id": report.job_id, "lease": {"$lte": report.lease}},
            {
                "$set": {
                    "lease": report.lease,
                    "percent": report.percent,
                    "message": storable(report.message),
                    "at": now,
                }
            },
            upsert=True,
        )
        for report in latest.values()
    ]
    try:
        await scope[REPORTS].bulk_write(updates, ordered=False)
    except BulkWriteError as error:
        # A duplicate key: a report of a later lease exists.
        if any(one["code"] != DUPLICATE for one in error.details["writeErrors"]):
            raise
