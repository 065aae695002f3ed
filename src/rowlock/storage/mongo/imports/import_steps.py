"""Status changes of imports, each in the transaction of its caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pymongo import UpdateOne

from rowlock.storage.import_rows import (
    death,
    needed_indexes,
    resumed_ends,
)
from rowlock.storage.imports import (
    ChunkStatus,
    ImportId,
    ImportStatus,
    Started,
)
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.documents import FINISHED, JOBS, storable
from rowlock.storage.mongo.imports.import_documents import (
    CHUNKS,
    ERRORS,
    IMPORTS,
    SCOPES,
)
from rowlock.storage.mongo.jobs.enqueue import add
from rowlock.storage.records import JobId, NewJob, Status

_OPEN = {"$in": [ImportStatus.QUEUED.value, ImportStatus.RUNNING.value]}
_DEAD = (ImportStatus.FAILED, ImportStatus.CANCELLED)
_OUTCOMES = {Status.SUCCEEDED.value: 1, Status.FAILED.value: 2, Status.CANCELLED.value: 3}
_FAILED = 2
WAITING = ChunkStatus.WAITING.value


def is_planned(found: Document) -> bool:
    """Whether the import is running and its chunks are known."""
    return found.get("status") == ImportStatus.RUNNING and "totalChunks" in found


async def find_import(scope: Scope, import_id: ImportId) -> Document | None:
    return await scope[IMPORTS].find_one({"_id": import_id}, session=scope.session)


async def start_import(scope: Scope, asked: Document, message: str | None) -> Started:
    imports, session = scope[IMPORTS], scope.session
    found = await imports.find_one(asked, session=session)
    if found is None or ImportStatus(found["status"]).final:
        return Started.OVER
    if found["status"] == ImportStatus.RUNNING:
        return Started.PLANNED if "totalChunks" in found else Started.STARTED
    now = await scope.now()
    said: Document = {"status": ImportStatus.RUNNING.value, "message": message, "messageAt": now, "updatedAt": now}
    said["startedAt"] = found.get("startedAt", now)
    if "scope" in found:
        if await imports.find_one({"runningScope": found["scope"]}, {"_id": 1}, session=session) is not None:
            return Started.BUSY
        said |= {"runningScope": found["scope"], "turn": await _turn(scope, found["scope"])}
    queued = {"_id": found["_id"], "status": found["status"]}
    if (await imports.update_one(queued, {"$set": said}, session=session)).matched_count == 0:
        return await start_import(scope, asked, message)  # changed meanwhile, which a transaction would prevent
    return Started.STARTED


async def _turn(scope: Scope, name: str) -> int:
    """Return the next turn of a scope; a concurrent start or resume in the same scope conflicts and is retried."""
    before = await scope[SCOPES].find_one({"_id": name}, session=scope.session)
    if before is None:
        await scope[SCOPES].insert_one({"_id": name, "turn": 1}, session=scope.session)
        return 1
    await scope[SCOPES].update_one({"_id": name}, {"$inc": {"turn": 1}}, session=scope.session)
    return int(before["turn"]) + 1


async def end_import(
    scope: Scope, import_id: ImportId, status: ImportStatus, message: str, error: str | None, result: str | None
) -> Document:
    now = await scope.now()
    said = {"message": storable(message), "error": error, "result": result}
    change: Document = {"status": status.value, **said, "finishedAt": now, "updatedAt": now, "uncleaned": True}
    gone = {"runningScope": ""} | ({"onceKey": ""} if status in _DEAD else {})
    await scope[IMPORTS].update_one({"_id": import_id}, {"$set": change, "$unset": gone}, session=scope.session)
    return change


async def may_end(scope: Scope, found: Document, job_id: JobId | None) -> bool:
    """Whether this job may end the import (None: always)."""
    if job_id is None:
        return True
    whose, total = job_id.lower(), found.get("totalChunks")
    if found.get("finishJobId") == whose or (total is None and found["parentJobId"] == whose):
        return True
    asked = {"importId": found["_id"], "index": {"$gte": 0, "$lt": total or 0}, "jobId": whose}
    return await scope[CHUNKS].find_one(asked, {"_id": 1}) is not None


async def live_jobs(scope: Scope, found: Document) -> list[JobId]:
    """Return the unfinished jobs of an import: its own first, then those of its chunks."""
    places = {found["_id"]: -1, found["parentJobId"]: -1}
    if "finishJobId" in found:
        places[found["finishJobId"]] = -1
    chunks = scope[CHUNKS].find({"importId": found["_id"]}, {"jobId": 1, "index": 1}, session=scope.session)
    async for chunk in chunks:
        places[chunk["jobId"]] = min(chunk["index"], places.get(chunk["jobId"], chunk["index"]))
    alive = {"_id": {"$in": list(places)}, "state": {"$ne": FINISHED}}
    jobs = [job["_id"] async for job in scope[JOBS].find(alive, {"_id": 1}, session=scope.session)]
    return sorted(jobs, key=lambda job_id: (places[job_id], job_id))


async def resume_import(scope: Scope, import_id: ImportId, jobs: Mapping[int, NewJob]) -> bool:
    imports, session = scope[IMPORTS], scope.session
    found = await find_import(scope, import_id)
    if found is None or found["status"] not in _DEAD or "cleanedAt" in found:
        return False
    total: int | None = found.get("totalChunks")
    waits = {"importId": import_id, "status": WAITING}
    waiting = [one["index"] async for one in scope[CHUNKS].find(waits, {"index": 1}, session=session)]
    if set(jobs) != needed_indexes(total, waiting):
        return False
    change = await _resumed(scope, found)
    if change is None:
        return False
    parent, finish = resumed_ends(total, jobs)
    change |= {"parentJobId": parent} if parent else {}
    change |= {"finishJobId": finish} if finish else {}
    gone = dict.fromkeys(("message", "messageAt", "error", "result", "finishedAt", "uncleaned"), "")
    as_found = {"_id": import_id, "status": found["status"], "cleanedAt": {"$exists": False}}
    if (await imports.update_one(as_found, {"$set": change, "$unset": gone}, session=session)).matched_count == 0:
        return False  # cleaned up meanwhile, which a transaction would prevent
    moved = [
        UpdateOne({"importId": import_id, "index": index, "status": WAITING}, {"$set": {"jobId": job.id}})
        for index, job in jobs.items()
        if index in waiting
    ]
    if moved:
        await scope[CHUNKS].bulk_write(moved, session=session)
    await add(scope, list(jobs.values()))
    return True


async def _resumed(scope: Scope, found: Document) -> Document | None:
    """Return the fields of a resumed import; None if another import is in its way or has come since."""
    imports, session = scope[IMPORTS], scope.session
    planned = "totalChunks" in found
    status = ImportStatus.RUNNING if planned else ImportStatus.QUEUED
    change: Document = {"status": status.value, "updatedAt": await scope.now()}
    if found["once"]:
        key = {"sha256": found["sha256"], "type": found["type"], "companyId": found.get("companyId", "")}
        if await imports.find_one({"onceKey": key}, {"_id": 1}, session=session) is not None:
            return None
        change["onceKey"] = key
    if planned and "scope" in found:
        name = found["scope"]
        if await imports.find_one({"runningScope": name}, {"_id": 1}, session=session) is not None:
            return None
        since = {"scope": name, "turn": {"$gt": found["turn"]}, "totalChunks": {"$exists": True}}
        if await imports.find_one(since, {"_id": 1}, session=session) is not None:
            return None
        await scope[SCOPES].update_one({"_id": name}, {"$inc": {"resumed": 1}}, session=session)
        change["runningScope"] = name
    return change


async def close_import(scope: Scope, import_id: ImportId) -> bool:
    dead = await dead_imports(scope, {"_id": import_id})
    if import_id not in dead:
        return False
    message, error = death(*dead[import_id])
    await end_import(scope, import_id, ImportStatus.FAILED, message, error, None)
    return True


async def dead_imports(
    scope: Scope, where: Document
) -> dict[ImportId, tuple[int | None, JobId, int | None, str | None]]:
    """Return imports that wait for a finished or missing job, each with the first such job: a failed one, if any."""
    awaited: list[tuple[ImportId, int | None, JobId]] = []
    shown = {"totalChunks": 1, "parentJobId": 1, "finishJobId": 1}
    async for one in scope[IMPORTS].find({**where, "status": _OPEN}, shown, session=scope.session):
        if "totalChunks" not in one:
            awaited.append((one["_id"], None, one["parentJobId"]))
        if "finishJobId" in one:
            awaited.append((one["_id"], None, one["finishJobId"]))
        if "totalChunks" in one:
            waits = {"importId": one["_id"], "status": WAITING}
            chunks = scope[CHUNKS].find(waits, {"index": 1, "jobId": 1}, session=scope.session)
            waiting = [(one["_id"], chunk["index"], chunk["jobId"]) async for chunk in chunks]
            awaited += waiting
            if not waiting and "finishJobId" not in one:
                awaited += await _unfinished(scope, one)
    jobs = await _jobs(scope, [job_id for _, _, job_id in awaited])
    dead: dict[ImportId, tuple[int | None, JobId, int | None, str | None]] = {}
    ranks: dict[ImportId, tuple[bool, int]] = {}
    for import_id, index, job_id in awaited:
        job = jobs.get(job_id)
        if job is not None and job["state"] != FINISHED:
            continue
        outcome = None if job is None else _OUTCOMES[job["status"]]
        rank = (outcome != _FAILED, -1 if index is None else index)
        if import_id not in dead or rank < ranks[import_id]:
            dead[import_id] = (index, job_id, outcome, None if job is None else job.get("error"))
            ranks[import_id] = rank
    return dead


async def _unfinished(scope: Scope, found: Document) -> list[tuple[ImportId, int | None, JobId]]:
    """Without transactions: return the job that should have queued the finish job, if no job is left that could."""
    if await live_jobs(scope, found):
        return []
    asked = {"importId": found["_id"], "index": {"$gte": 0}}
    last = await scope[CHUNKS].find_one(asked, {"index": 1, "jobId": 1}, sort=[("finishedAt", -1)])
    return [
        (found["_id"], None, found["parentJobId"]) if last is None else (found["_id"], last["index"], last["jobId"])
    ]


async def _jobs(scope: Scope, ids: Iterable[JobId]) -> dict[JobId, Document]:
    asked = {"_id": {"$in": list(ids)}}
    shown = {"state": 1, "status": 1, "error": 1}
    return {job["_id"]: job async for job in scope[JOBS].find(asked, shown, session=scope.session)}


async def error_rows(scope: Scope, import_id: ImportId, where: Document, skip: int, limit: int) -> list[int]:
    """Return the numbers of rows with errors, each once."""
    steps: list[Document] = [
        {"$match": {"importId": import_id, **where}},
        {"$group": {"_id": "$row"}},
        {"$sort": {"_id": 1}},
        {"$skip": skip},
        {"$limit": limit},
    ]
    return [one["_id"] async for one in await scope[ERRORS].aggregate(steps, session=scope.session)]


async def trim_errors(scope: Scope, import_id: ImportId, keep: int) -> None:
    for row in await error_rows(scope, import_id, {}, max(keep, 0), 1):
        await scope[ERRORS].delete_many({"importId": import_id, "row": {"$gte": row}}, session=scope.session)
