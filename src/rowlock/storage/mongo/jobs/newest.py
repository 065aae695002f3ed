"""Payloads that jobs took over from newer enqueues: one document for each such job.

They are not in the job's document: an enqueue in a caller's open transaction would block writes to it, and every job
that is claimed or settled in the same batch would wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.documents import json_fields
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.records import JobId, NewJob

NEWEST = "rowlock_newest"

INDEXES = (Index(NEWEST),)


def taken_over(holder: JobId, job: NewJob) -> tuple[Document, list[Document]]:
    """Return the upsert by which the holder takes over from this job, unless it has from a newer one."""
    kept = {"_id": holder, "newest": job.id, **json_fields("payload", job.payload)}
    newer = {"$gt": ["$newest", job.id]}
    return {"_id": holder}, [{"$replaceWith": {"$cond": [newer, "$$ROOT", {"$literal": kept}]}}]


async def newest_of(scope: Scope, ids: Sequence[JobId]) -> dict[JobId, Document]:
    """Return what these jobs took over, by job id; a job that took over nothing is missing."""
    if not ids:
        return {}
    found = scope[NEWEST].find({"_id": {"$in": list(ids)}}, session=scope.session)
    return {one["_id"]: one async for one in found}


async def with_newest(scope: Scope, found: list[Document]) -> list[Document]:
    """Return these jobs with their current payloads."""
    newest = await newest_of(scope, [job["_id"] for job in found if job.get("releasesKey")])
    return [_with(job, newest[job["_id"]]) if job["_id"] in newest else job for job in found]


async def forget(scope: Scope, ids: Sequence[JobId]) -> None:
    """Remove the documents of removed jobs."""
    await scope[NEWEST].delete_many({"_id": {"$in": list(ids)}}, session=scope.session)


def _with(job: Document, newest: Document) -> Document:
    payload: dict[str, Any] = {name: newest[name] for name in ("payload", "payloadText") if name in newest}
    return {name: value for name, value in job.items() if name != "payloadText"} | payload
