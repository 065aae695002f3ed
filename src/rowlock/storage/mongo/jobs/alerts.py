"""Alerts, notifications about dead letters, and the measures that workers add to."""

from __future__ import annotations

from collections.abc import Mapping

from pymongo import UpdateOne

from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.jobs.failures import FAILURES
from rowlock.storage.mongo.work import Worked
from rowlock.storage.reliability import DeadLetters, Measure

MEASURES = "rowlock_measures"
NAMED_AT_MOST = 3
"""How many jobs of a type a notification names."""

INDEXES: tuple[Index, ...] = (Index(MEASURES),)


class Alerts(Worked):
    """Raises each alert once, and sums measures over the fleet."""

    async def has_unnotified(self) -> bool:
        found = await self._plain(lambda scope: scope[FAILURES].find_one({"unnotified": True}, {"_id": 1}))
        return found is not None

    async def assign_notification(self, notice_id: str, limit: int) -> list[DeadLetters]:
        return await self._atomic(lambda scope: _assign_notification(scope, notice_id, limit))

    async def add_measures(self, measures: Mapping[Measure, float]) -> None:
        if not measures:
            return
        # In one order, so that concurrent additions meet at the first common measure.
        writes = [
            UpdateOne({"_id": measure._asdict()}, {"$inc": {"value": float(number)}}, upsert=True)
            for measure, number in sorted(measures.items())
        ]
        await self._atomic(lambda scope: scope[MEASURES].bulk_write(writes, session=scope.session))

    async def measures(self) -> dict[Measure, float]:
        found = await self._plain(lambda scope: scope[MEASURES].find().sort("_id", 1).to_list())
        return {Measure(**one["_id"]): one["value"] for one in found}


async def _assign_notification(scope: Scope, notice_id: str, limit: int) -> list[DeadLetters]:
    failures = scope[FAILURES]
    if limit > 0:
        unnotified = failures.find({"unnotified": True}, {"_id": 1}, session=scope.session)
        first = await unnotified.sort([("firstFailedAt", 1), ("_id", 1)]).limit(limit).to_list()
        notified = {"$set": {"noticeId": notice_id}, "$unset": {"unnotified": ""}}
        these = {"_id": {"$in": [one["_id"] for one in first]}, "unnotified": True}
        await failures.update_many(these, notified, session=scope.session)
    shown = dict.fromkeys(("jobName", "queueName", "firstFailedAt", "attempts", "jobId", "failedReason"), 1)
    found = failures.find({"noticeId": notice_id}, shown, session=scope.session)
    by_kind: dict[tuple[str, str], list[Document]] = {}
    async for one in found.sort([("firstFailedAt", -1), ("_id", -1)]):
        by_kind.setdefault((one["jobName"], one["queueName"]), []).append(one)
    kinds = sorted(by_kind, key=lambda kind: (-len(by_kind[kind]), kind))
    return [_deaths(kind, by_kind[kind]) for kind in kinds]


def _deaths(kind: tuple[str, str], last_first: list[Document]) -> DeadLetters:
    return DeadLetters(
        job_name=kind[0],
        queue_name=kind[1],
        count=len(last_first),
        first_at=last_first[-1]["firstFailedAt"],
        last_at=last_first[0]["firstFailedAt"],
        attempts=max(one["attempts"] for one in last_first),
        job_ids=tuple(one["jobId"] for one in last_first[:NAMED_AT_MOST]),
        reason=last_first[0]["failedReason"],
    )
