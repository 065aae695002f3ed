"""Finish: attempts that succeeded, by the hundred and without a transaction, which costs three times as much.

    note that is pending, with its jobs ─▶ each job, under its guard, with the note's id ─▶ the note, with its numbers

The guard says all that has to be known of a job, so none is looked at before: in a large collection that takes a third.
A job that is over is counted when its note is. Where the one who settles does not get that far, the note stays pending;
what it is about is known from the jobs that bear its id, and `resolve` writes it down.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime

from bson import ObjectId
from pymongo import ReplaceOne, WriteConcern

from rowlock.errors import StoreUnavailable
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.documents import BY_ID, JOBS, storable
from rowlock.storage.mongo.endings import RUNNING_ONLY, Changes, over
from rowlock.storage.mongo.moments import after
from rowlock.storage.mongo.notes import NOTES
from rowlock.storage.records import JobId, Outcome, Settlement, Status, WorkerId

Kind = tuple[str, str]  # queue, type

STALE_SECONDS = 60.0
"""After this whoever settles has gone."""
RESOLVED_AT_MOST = 100

# Before the jobs in the log of the server, so there when they are; and once more after them, where it may be lost.
_AT_ONCE = WriteConcern(w=1)
_FREES_NO_KEY = {"releasesKey": {"$exists": False}}


def is_plain(end: Settlement) -> bool:
    """Whether nothing but the job itself, and the counts, is to change."""
    return end.outcome == Outcome.SUCCEEDED and end.failure is None


async def finish(scope: Scope, owner: WorkerId, settlements: Sequence[Settlement]) -> list[Settlement]:
    """End these attempts, but for those that were lost, or that free a key: these are returned, for a transaction."""
    if len({end.job_id for end in settlements}) < len(settlements):
        return list(settlements)  # one of them was said twice
    now = await scope.now()
    kinds: dict[Kind, list[Settlement]] = defaultdict(list)
    for end in settlements:
        kinds[end.queue, end.type].append(end)
    notes = {kind: ObjectId() for kind in kinds}
    begun = time.monotonic()
    written = scope[NOTES].with_options(write_concern=_AT_ONCE)
    await written.insert_many([_pending(notes[kind], kind, ends, now) for kind, ends in kinds.items()])
    changes = Changes(owner, _FREES_NO_KEY)
    for kind, ends in kinds.items():
        for end in ends:
            changes.add(end.job_id, end.lease, _fields(end, now) | {"note": notes[kind]}, RUNNING_ONLY)
    if time.monotonic() - begun > STALE_SECONDS / 2:
        raise StoreUnavailable("this process stood still while it settled: its note may be counted already; try again")
    result = await scope[JOBS].bulk_write(changes.updates(), ordered=False)
    counted, left = [], list[Settlement]()
    for kind, ends in kinds.items():
        if result.matched_count < len(settlements):
            done = {job["_id"] for job in await _noted(scope, notes[kind], [end.job_id for end in ends])}
            left += [end for end in ends if end.job_id not in done]
            ends = [end for end in ends if end.job_id in done]
        note = _note(notes[kind], kind, now, len(ends), sum(end.seconds for end in ends))
        counted.append(ReplaceOne({"_id": note["_id"], "pending": {"$exists": True}}, note))
    await written.bulk_write(counted)
    return left


async def under_way(scope: Scope) -> Counter[Kind]:
    """How many jobs are over whose note is still pending."""
    done: Counter[Kind] = Counter()
    async for note in scope[NOTES].find({"pending": {"$exists": True}}, session=scope.session):
        done[note["queue"], note["type"]] += len(await _noted(scope, note["_id"], note["pending"]))
    return done


async def resolve(scope: Scope, now: datetime) -> None:
    """Count the jobs of notes whose writer has gone before it could."""
    stale = {"pending": {"$exists": True}, "at": {"$lt": after(now, -STALE_SECONDS)}}
    for note in await scope[NOTES].find(stale).limit(RESOLVED_AT_MOST).to_list():
        done = await _noted(scope, note["_id"], note["pending"])
        seconds = sum((job["finishedAt"] - job["startedAt"]).total_seconds() for job in done)
        counted = _note(note["_id"], (note["queue"], note["type"]), note["at"], len(done), seconds)
        await scope[NOTES].replace_one({"_id": note["_id"], "pending": {"$exists": True}}, counted)


async def _noted(scope: Scope, note: ObjectId, ids: list[JobId]) -> list[Document]:
    """Those of these jobs that the writer of the note has finished."""
    where = {"_id": {"$in": ids}, "note": note}
    fields = {"startedAt": 1, "finishedAt": 1}
    return await scope[JOBS].find(where, fields, session=scope.session, hint=BY_ID).to_list()


def _fields(end: Settlement, now: datetime) -> Document:
    fields = over(end, Status.SUCCEEDED, now) | {"updatedAt": now}
    if end.error is not None:
        fields["error"] = storable(end.error)
    return fields


def _pending(note: ObjectId, kind: Kind, ends: list[Settlement], now: datetime) -> Document:
    return {"_id": note, "at": now, "queue": kind[0], "type": kind[1], "pending": [end.job_id for end in ends]}


def _note(note: ObjectId, kind: Kind, now: datetime, jobs: int, seconds: float) -> Document:
    numbers = {"alive": -jobs, "succeeded": jobs, "seconds": seconds}
    return {"_id": note, "at": now, "queue": kind[0], "type": kind[1], **numbers}
