"""Schedules: a tick advances its schedule, enqueues its job and records the run, once in the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from rowlock.storage.mongo import enqueue
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.dates import after, floor
from rowlock.storage.mongo.documents import BY_ID, JOBS
from rowlock.storage.mongo.failures import DAY_SECONDS, remove_first
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import Receipt, Status
from rowlock.storage.reliability import RunRecord, RunStatus, ScheduleRecord, Tick

SCHEDULES = "rowlock_schedules"
RUNS = "rowlock_runs"

INDEXES: tuple[Index, ...] = (
    Index(SCHEDULES),
    Index(RUNS, "once", (("name", 1), ("tick", -1)), unique=True),  # one run per tick, however many processes
    Index(RUNS, "in_time", (("tick", -1), ("name", 1))),
    Index(RUNS, "open", (("open", 1),), where={"open": True}),
    Index(RUNS, "ended", (("endedAt", 1),), where={"endedAt": {"$exists": True}}),
)

_REMOVED = "its job was deleted before its end was recorded"
_FINAL = [status.value for status in Status if status.final]
_WITH_JOB: Document = {
    "$lookup": {
        "from": JOBS,
        "localField": "jobId",
        "foreignField": "_id",
        "pipeline": [{"$project": {"status": 1, "startedAt": 1, "finishedAt": 1, "error": 1}}],
        "as": "job",
    }
}


class _TickTaken(Exception):
    """This tick has run already: nothing that this call wrote is kept."""


class Schedules(Worked):
    """Enqueues one job per tick, however many machines, and records every run."""

    async def declare_schedules(self, schedules: Sequence[tuple[str, str, datetime]]) -> None:
        if not schedules:
            return
        # Ordered by name, so that concurrent declarations meet at the first common schedule.
        writes = [
            UpdateOne({"_id": name}, _declared(spec, first), upsert=True) for name, spec, first in sorted(schedules)
        ]
        await self._atomic(lambda scope: scope[SCHEDULES].bulk_write(writes, session=scope.session))

    async def schedules(self) -> list[ScheduleRecord]:
        found = await self._plain(lambda scope: scope[SCHEDULES].find().sort("_id", 1).to_list())
        return [
            ScheduleRecord(one["_id"], one["spec"], one["nextAt"], one.get("lastTick"), one.get("pausedAt"))
            for one in found
        ]

    async def move_schedule(self, name: str, expected: datetime, next_at: datetime) -> bool:
        waiting = {"_id": name, "nextAt": floor(expected), "pausedAt": None}
        moved = {"$set": {"nextAt": floor(next_at)}}
        return (await self._plain(lambda scope: scope[SCHEDULES].update_one(waiting, moved))).matched_count > 0

    async def fire(self, tick: Tick) -> Receipt | None:
        try:
            return await self._atomic(lambda scope: _fire(scope, tick))
        except _TickTaken:
            # A schedule that still waits for a tick that has run would wait forever.
            await self._plain(lambda scope: _advance(scope, tick))
            return None

    async def close_runs(self, limit: int) -> list[RunRecord]:
        return await self._atomic(lambda scope: _close_runs(scope, limit)) if limit > 0 else []

    async def runs(self, name: str | None, limit: int, before: datetime | None = None) -> list[RunRecord]:
        if limit <= 0:
            return []
        asked: dict[str, Any] = {} if name is None else {"name": name}
        if before is not None:
            asked["tick"] = {"$lt": before}
        steps: list[Document] = [{"$match": asked}, {"$sort": {"tick": -1, "name": 1}}, {"$limit": limit}, _WITH_JOB]
        found = await self._plain(lambda scope: _rows(scope, steps))
        return [_run_record(run) for run in found]

    async def prune_runs(self, days: float, limit: int) -> int:
        async def prune(scope: Scope) -> int:
            old = {"endedAt": {"$lt": after(await scope.now(), -days * DAY_SECONDS)}}
            return await remove_first(scope, RUNS, old, "endedAt", limit)

        return await self._plain(prune)

    async def pause_schedule(self, name: str) -> bool:
        async def pause(scope: Scope) -> bool:
            paused = [{"$set": {"pausedAt": {"$ifNull": ["$pausedAt", await scope.now()]}}}]
            return (await scope[SCHEDULES].update_one({"_id": name}, paused)).matched_count > 0

        return await self._plain(pause)

    async def resume_schedule(self, name: str, next_at: datetime) -> bool:
        going = {"$eq": [{"$ifNull": ["$pausedAt", None]}, None]}
        resumed: list[Document] = [
            {"$set": {"nextAt": {"$cond": [going, "$nextAt", floor(next_at)]}}},
            {"$unset": "pausedAt"},
        ]
        changed = await self._plain(lambda scope: scope[SCHEDULES].update_one({"_id": name}, resumed))
        return changed.matched_count > 0


def _declared(spec: str, first: datetime) -> list[Document]:
    """Return the update that gives a schedule this spec; a schedule that has it already stays as it is."""
    same = {"$eq": ["$spec", {"$literal": spec}]}
    return [
        {"$set": {"nextAt": {"$cond": [same, "$nextAt", floor(first)]}}},
        {"$set": {"spec": {"$literal": spec}}},
    ]


async def _fire(scope: Scope, tick: Tick) -> Receipt | None:
    before = await _advance(scope, tick)
    if before is None:
        return None
    now = await scope.now()
    run: Document = {"name": tick.name, "tick": floor(tick.at), "enqueuedAt": now}
    if tick.job is None:
        await _add_run(scope, {**run, "status": RunStatus.MISSED.value, "endedAt": now})
        return None
    # The run first: without a transaction, it alone keeps two processes from enqueueing the job of one tick.
    await _add_run(scope, {**run, "status": RunStatus.WAITING.value, "jobId": tick.job.id, "open": True})
    try:
        (receipt,) = await enqueue.add(scope, [tick.job])
    except BaseException:
        if scope.session is None:
            await _take_back(scope, tick, before)
        raise
    if not receipt.created:
        holder = {"$set": {"jobId": receipt.job_id}}
        await scope[RUNS].update_one(_run_of(tick), holder, session=scope.session)
    return receipt


def _run_of(tick: Tick) -> Document:
    return {"name": tick.name, "tick": floor(tick.at)}


async def _add_run(scope: Scope, run: Document) -> None:
    # Look first: an error in a transaction ends it.
    if await scope[RUNS].find_one({"name": run["name"], "tick": run["tick"]}, {"_id": 1}, session=scope.session):
        raise _TickTaken
    try:
        await scope[RUNS].insert_one(run, session=scope.session)
    except DuplicateKeyError as error:
        if scope.session is None:
            raise _TickTaken from error
        raise  # the next try sees it


async def _take_back(scope: Scope, tick: Tick, before: Document) -> None:
    """Without transactions: undo the writes for a tick whose job was rejected."""
    await scope[RUNS].delete_one(_run_of(tick))
    if tick.expected is not None:
        moved = {"_id": tick.name, "nextAt": floor(tick.next_at), "lastTick": floor(tick.at)}
        await scope[SCHEDULES].replace_one(moved, before)


async def _advance(scope: Scope, tick: Tick) -> Document | None:
    """Advance the schedule if it is this tick's turn; returns the schedule before, or None if the tick may not fire."""
    if tick.expected is None:
        return {}
    due = {"_id": tick.name, "nextAt": floor(tick.expected), "pausedAt": None}
    moved = {"nextAt": floor(tick.next_at), "lastTick": floor(tick.at)}
    return await scope[SCHEDULES].find_one_and_update(due, {"$set": moved}, session=scope.session)


async def _close_runs(scope: Scope, limit: int) -> list[RunRecord]:
    over = {"$or": [{"job": []}, {"job.status": {"$in": _FINAL}}]}
    runs = await _rows(scope, [{"$match": {"open": True}}, _WITH_JOB, {"$match": over}, {"$limit": limit}])
    now = await scope.now()
    closed = []
    for run in runs:
        ended = _ended(run, now)
        ours = {"_id": run["_id"], "open": True}
        closing = {"$set": ended, "$unset": {"open": ""}}
        changed = await scope[RUNS].update_one(ours, closing, hint=BY_ID, session=scope.session)
        if changed.matched_count:
            closed.append(_run_record({**run, **ended, "job": []}))
    return closed


def _ended(run: Document, now: datetime) -> Document:
    """Return the end of a run whose job is finished or removed."""
    if not run["job"]:
        return {"status": RunStatus.UNKNOWN.value, "endedAt": now, "error": _REMOVED}
    (job,) = run["job"]
    told = {"startedAt": job.get("startedAt"), "error": job.get("error")}
    return {"status": job["status"], "endedAt": job["finishedAt"], **{k: v for k, v in told.items() if v is not None}}


def _run_record(run: Document) -> RunRecord:
    """Return the record of a run; until its end is recorded, with the status of its job."""
    status, told = RunStatus(run["status"]), run
    if "endedAt" not in run and run["job"]:
        (job,) = run["job"]
        if job["status"] in _FINAL:
            status, told = RunStatus(job["status"]), {**job, "endedAt": job["finishedAt"]}
        elif job["status"] == Status.PROCESSING:
            status, told = RunStatus.RUNNING, {"startedAt": job.get("startedAt")}
    return RunRecord(
        name=run["name"],
        tick=run["tick"],
        job_id=run.get("jobId"),
        status=status,
        enqueued_at=run["enqueuedAt"],
        started_at=told.get("startedAt"),
        ended_at=told.get("endedAt"),
        error=told.get("error"),
    )


async def _rows(scope: Scope, steps: list[Document]) -> list[Document]:
    return await (await scope[RUNS].aggregate(steps, session=scope.session)).to_list()
