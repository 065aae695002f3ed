"""Locks of a sync's subjects, and marks of what last wrote their properties: one document for each subject."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from rowlock.storage.calls import (
    Marks,
    checked_seconds,
    given_marks,
    kept_keys,
    kept_marks,
    later_marks,
)
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.dates import after
from rowlock.storage.mongo.errors import DUPLICATE
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.jobs.failures import remove_first
from rowlock.storage.mongo.work import Worked

SUBJECTS = "rowlock_subjects"

INDEXES: tuple[Index, ...] = (Index(SUBJECTS, "in_time", (("touchedAt", 1),)),)


class Subjects(Worked):
    """Locks each subject for one holder at a time, and keeps marks that never go back."""

    async def hold_subjects(self, kind: str, keys: Sequence[str], holder: str, seconds: float) -> dict[str, Marks]:
        given, held = kept_keys(keys), checked_seconds(seconds)
        if not given:
            return {}
        found = await self._plain(lambda scope: _hold(scope, _ids(kind, given), holder, held))
        return {given[subject["_id"]["key"]]: given_marks(_marks(subject)) for subject in found}

    async def mark_subjects(self, kind: str, holder: str, marks: Mapping[str, Mapping[str, str]]) -> list[str]:
        given = kept_keys(marks)
        if not given:
            return []
        told = {key: kept_marks(marks[name]) for key, name in given.items()}
        held = await self._atomic(lambda scope: _mark(scope, kind, holder, told))
        return [name for key, name in given.items() if key in held]

    async def free_subjects(self, kind: str, holder: str, keys: Sequence[str]) -> None:
        async def free(scope: Scope) -> None:
            ours = {"_id": {"$in": _ids(kind, kept_keys(keys))}, "holder": holder}
            touched = {"$set": {"touchedAt": await scope.now()}, "$unset": {"holder": ""}}
            await scope[SUBJECTS].update_many(ours, touched)

        if keys:
            await self._plain(free)


async def prune(scope: Scope, now: datetime, before: datetime, limit: int) -> int:
    """Remove up to `limit` subjects that are not locked and were not touched since `before`; return how many."""
    old = {"touchedAt": {"$lt": before}, "$or": [{"holder": None}, {"heldUntil": {"$lte": now}}]}
    return await remove_first(scope, SUBJECTS, old, "touchedAt", limit)


async def _hold(scope: Scope, ids: list[Document], holder: str, seconds: float) -> list[Document]:
    """Lock the subjects that are free, each by a write that names its condition; return those that the holder has."""
    now = await scope.now()
    subjects = scope[SUBJECTS]
    held = {"holder": holder, "heldUntil": after(now, seconds)}
    free = {"$or": [{"holder": None}, {"holder": holder}, {"heldUntil": {"$lte": now}}]}
    known = {found["_id"]["key"] async for found in subjects.find({"_id": {"$in": ids}}, {"_id": 1})}
    new = [{"_id": each, **held, "touchedAt": now, "marks": []} for each in ids if each["key"] not in known]
    if known:
        await subjects.update_many({"_id": {"$in": ids}, **free}, {"$set": held})
    if new:
        try:
            await subjects.insert_many(new, ordered=False)
        except BulkWriteError as error:
            if any(one["code"] != DUPLICATE for one in error.details["writeErrors"]):
                raise
            # Another holder was quicker, and may have released some already.
            await subjects.update_many({"_id": {"$in": ids}, **free}, {"$set": held})
    return await subjects.find({"_id": {"$in": ids}, "holder": holder}).to_list()


async def _mark(scope: Scope, kind: str, holder: str, told: Mapping[str, Marks]) -> set[str]:
    """Mark and release the subjects that the holder has; return their keys."""
    ours = {"_id": {"$in": _ids(kind, told)}, "holder": holder}
    held = await scope[SUBJECTS].find(ours, session=scope.session).to_list()
    if not held:
        return set()
    now = await scope.now()
    changes = []
    for subject in held:
        marks = later_marks(_marks(subject), told[subject["_id"]["key"]])
        kept = {"marks": [{"property": name, "mark": mark} for name, mark in marks.items()], "touchedAt": now}
        changes.append(UpdateOne({"_id": subject["_id"], "holder": holder}, {"$set": kept, "$unset": {"holder": ""}}))
    await scope[SUBJECTS].bulk_write(changes, ordered=False, session=scope.session)
    return {subject["_id"]["key"] for subject in held}


def _ids(kind: str, keys: Iterable[str]) -> list[Document]:
    return [{"kind": kind, "key": key} for key in keys]


def _marks(subject: Document) -> Marks:
    return {each["property"]: each["mark"] for each in subject["marks"]}
