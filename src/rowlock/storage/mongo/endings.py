"""Endings: what an attempt that ends finds, and what becomes of its job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pymongo import UpdateMany

from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.documents import BY_ID, FINISHED, JOBS, RUNNING, json_fields
from rowlock.storage.mongo.moments import after, now_of
from rowlock.storage.records import JobId, Settlement, Status, WorkerId

SEEN = dict.fromkeys(
    (
        "type", "queue", "companyId", "lease", "attempts", "maxAttempts", "deaths", "cancelRequested", "uniqueKey",
        "releasesKey",
    ),
    1,
)  # fmt: skip
RUNNING_ONLY = dict.fromkeys(("owner", "claim", "lockedAt", "cancelRequested"), "")

_OWN = {"result", "error"}

Ended = list[tuple[Document, Settlement]]


async def look(
    scope: Scope, owner: WorkerId, settlements: Sequence[Settlement]
) -> tuple[Ended, list[JobId], datetime | None]:
    """The jobs whose lease these settlements hold, those whose lease is lost, and the time (None: all are lost)."""
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
            ended.append((running.pop(end.job_id), end))  # said twice: the first ends the lease
    return ended, lost, now


def over(end: Settlement, status: Status, now: datetime) -> Document:
    """The fields of a job that is over."""
    fields: Document = {
        "state": FINISHED,
        "status": status.value,
        "startedAt": after(now, -end.seconds),
        "finishedAt": now,
    }
    return fields if end.result is None else fields | json_fields("result", end.result)


class Changes:
    """What becomes of each job, those alike together: one update of a hundred jobs costs a third of a hundred."""

    def __init__(self, owner: WorkerId, also: Document | None = None) -> None:
        self._owner = owner
        self._also = also or {}  # must hold of each
        self._alike: dict[Any, tuple[list[JobId], Document, Document]] = {}

    def add(self, job_id: JobId, lease: int, fields: Document, gone: Document) -> None:
        own = job_id if fields.keys() & _OWN else None
        values = () if own else tuple(fields.values())
        alike = self._alike.setdefault((lease, own, values), ([], fields, gone))
        alike[0].append(job_id)

    def updates(self) -> list[UpdateMany]:
        # The guard of every ending: this job, this lease, this owner.
        return [
            UpdateMany(
                {"_id": {"$in": ids}, "state": RUNNING, "lease": lease, "owner": self._owner, **self._also},
                {"$set": fields, "$unset": gone},
                hint=BY_ID,
            )
            for (lease, _, _), (ids, fields, gone) in self._alike.items()
        ]
