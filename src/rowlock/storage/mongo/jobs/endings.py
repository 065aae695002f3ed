"""Reads the jobs whose attempts end, and builds their updates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pymongo import UpdateMany

from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.dates import after, now_of
from rowlock.storage.mongo.documents import BY_ID, FINISHED, JOBS, RUNNING, json_fields
from rowlock.storage.records import JobId, Settlement, Status, WorkerId

SEEN = dict.fromkeys(
    (
        "type", "queue", "companyId", "lease", "attempts", "maxAttempts", "deaths", "cancelRequested", "uniqueKey",
        "releasesKey", "limitKey", "lockedAt",
    ),
    1,
)  # fmt: skip
RUNNING_ONLY = dict.fromkeys(("owner", "claim", "lockedAt", "cancelRequested"), "")

_OWN = {"result", "error"}

Ended = list[tuple[Document, Settlement]]


async def look(
    scope: Scope, owner: WorkerId, settlements: Sequence[Settlement]
) -> tuple[Ended, list[JobId], datetime | None]:
    """Return jobs whose lease is held with their settlements, jobs whose lease is lost, the time (None: all lost)."""
    now: datetime | None = None
    running: dict[JobId, Document] = {}
    async for job in await scope[JOBS].aggregate(
        [
            {"$match": {"_id": {"$in": [end.job_id for end in settlements]}, "state": RUNNING, "owner": owner}},
            {"$project": {**SEEN, "now": now_of(scope.clock)}},
        ],
        session=scope.session,
        hint=BY_ID,
    ):
        running[job["_id"]] = job
        now = job["now"]
    lost: list[JobId] = []
    ended: Ended = []
    for end in settlements:
        seen = running.get(end.job_id)
        if seen is None or seen["lease"] != end.lease:
            lost.append(end.job_id)
        else:
            ended.append((running.pop(end.job_id), end))  # settled twice: the first ends the lease
    return ended, lost, now


def over(end: Settlement, status: Status, now: datetime) -> Document:
    """Return the fields of a finished job."""
    fields: Document = {
        "state": FINISHED,
        "status": status.value,
        "finishedAt": now,
    }
    if end.seconds is not None:
        fields["startedAt"] = after(now, -end.seconds)
    return fields if end.result is None else fields | json_fields("result", end.result)


class Changes:
    """Collects updates of jobs, equal ones together: one update of 100 jobs costs a third of 100 updates."""

    def __init__(self, owner: WorkerId, also: Document | None = None) -> None:
        self._owner = owner
        self._also = also or {}  # an additional condition on each job
        self._alike: dict[Any, tuple[list[JobId], Document, Document]] = {}

    def add(self, job_id: JobId, lease: int, fields: Document, gone: Document) -> None:
        own = job_id if fields.keys() & _OWN else None
        values = () if own else tuple(fields.values())
        alike = self._alike.setdefault((lease, own, values), ([], fields, gone))
        alike[0].append(job_id)

    def updates(self) -> list[UpdateMany]:
        # The condition of every settlement: this job, this lease, this owner.
        return [
            UpdateMany(
                {"_id": {"$in": ids}, "state": RUNNING, "lease": lease, "owner": self._owner, **self._also},
                {"$set": fields, "$unset": gone},
                hint=BY_ID,
            )
            for (lease, _, _), (ids, fields, gone) in self._alike.items()
        ]
