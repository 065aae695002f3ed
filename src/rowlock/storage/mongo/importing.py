"""Imports in the MongoDB store: records, chunks and errors.

Chunks that load at the same time write nothing in common: each its own document, in the transaction of its rows. What
they are together is summed up when it is read; `import_locks` tells how one of them sees that it is the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pymongo import UpdateOne

from rowlock.ids import is_uuid
from rowlock.storage.import_rows import (
    checked_cursor,
    death,
    error_page,
    final,
    import_page,
    may_be,
    needed_indexes,
    planned_index,
    resumed_ends,
)
from rowlock.storage.imports import (
    Added,
    ChunkEnd,
    ChunkRecord,
    ChunkResult,
    ChunkStatus,
    ErrorPage,
    ImportId,
    ImportPage,
    ImportRecord,
    ImportStatus,
    NewImport,
    Plan,
    Started,
)
from rowlock.storage.mongo import import_documents, import_locks
from rowlock.storage.mongo.connection import Database, Document, Scope
from rowlock.storage.mongo.documents import FINISHED, JOBS, storable
from rowlock.storage.mongo.enqueue import add
from rowlock.storage.mongo.import_documents import (
    CHUNKS,
    ERRORS,
    IMPORTS,
    SCOPES,
    chunk_fields,
    chunk_record,
    error_documents,
    error_row,
    import_document,
    import_record,
    once_key,
    records,
    standing,
    waiting_chunk,
)
from rowlock.storage.mongo.import_locks import hold, lock, locked, release
from rowlock.storage.mongo.load import Loading
from rowlock.storage.mongo.moments import after, floor
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import JobId, NewJob, Status

INDEXES = (*import_documents.INDEXES, *import_locks.INDEXES)

_DAY_SECONDS = 24 * 3600
_OPEN = {"$in": [ImportStatus.QUEUED.value, ImportStatus.RUNNING.value]}
_DEAD = (ImportStatus.FAILED, ImportStatus.CANCELLED)
_OUTCOMES = {Status.SUCCEEDED.value: 1, Status.FAILED.value: 2, Status.CANCELLED.value: 3}
_FAILED = 2
_WAITING = ChunkStatus.WAITING.value


class Importing(Worked):
    """Where imports rest."""

    async def add_import(self, new: NewImport, job: NewJob) -> Added:
        async def work(scope: Scope) -> tuple[ImportId, bool]:
            same = await _same(scope, new)
            if same is not None:
                return same, False
            await scope[IMPORTS].insert_one(import_document(new, job.id, await scope.now()), session=scope.session)
            await add(scope, [job])
            return new.id.lower(), True

        import_id, created = await self._atomic(work)
        (record,) = await self._plain(lambda scope: records(scope, [import_id]))
        return Added(record, created)

    async def get_import(self, import_id: ImportId) -> ImportRecord | None:
        if not is_uuid(import_id):
            return None
        found = await self._plain(lambda scope: records(scope, [import_id.lower()]))
        return found[0] if found else None

    async def imports(
        self,
        *,
        type: str | None,
        company_id: str | None,
        status: ImportStatus | None,
        limit: int,
        cursor: str | None = None,
    ) -> ImportPage:
        asked: Document = {"type": type, "companyId": company_id, "status": status and status.value}
        asked = {name: value for name, value in asked.items() if value is not None}
        if before := checked_cursor(cursor):
            asked["_id"] = {"$lt": before}

        async def look(scope: Scope) -> list[ImportRecord]:
            found = scope[IMPORTS].find(asked, {"_id": 1}).sort("_id", -1).limit(max(limit, 0) + 1)
            return await records(scope, [one["_id"] async for one in found])

        return import_page(await self._plain(look), limit)

    async def changed_imports(self, since: datetime, limit: int) -> list[ImportRecord]:
        changed = {"$gte": floor(since)}

        async def look(scope: Scope) -> list[ImportRecord]:
            times: dict[ImportId, datetime] = {}
            async for one in scope[IMPORTS].find({"updatedAt": changed}, {"updatedAt": 1}):
                times[one["_id"]] = one["updatedAt"]
            latest = {"$group": {"_id": "$importId", "at": {"$max": "$finishedAt"}}}
            async for one in await scope[CHUNKS].aggregate([{"$match": {"finishedAt": changed}}, latest]):
                times[one["_id"]] = max(one["at"], times.get(one["_id"], one["at"]))
            return await records(scope, sorted(times, key=lambda each: (times[each], each))[: max(limit, 0)])

        return await self._plain(look)

    async def chunks(self, import_id: ImportId) -> list[ChunkRecord]:
        if not is_uuid(import_id):
            return []
        asked = {"importId": import_id.lower()}
        found = await self._plain(lambda scope: scope[CHUNKS].find(asked).sort("index", 1).to_list())
        return [chunk_record(one) for one in found]

    async def import_errors(self, import_id: ImportId, *, after_row: int, limit: int) -> ErrorPage:
        if not is_uuid(import_id):
            return error_page([], limit)

        async def look(scope: Scope) -> list[Document]:
            rows = await _error_rows(scope, import_id.lower(), {"row": {"$gt": after_row}}, 0, max(limit, 0) + 1)
            if not rows:
                return []
            asked = {"importId": import_id.lower(), "row": {"$gte": rows[0], "$lte": rows[-1]}}
            return await scope[ERRORS].find(asked).sort([("row", 1), ("chunk", 1)]).to_list()

        return error_page(map(error_row, await self._plain(look)), limit)

    async def start_import(self, import_id: ImportId, message: str, *, job_id: JobId | None = None) -> Started:
        if not may_be(import_id, job_id):
            return Started.OVER
        asked = _of_parent(import_id.lower(), job_id)
        return await self._atomic(lambda scope: _start(scope, asked, storable(message)))

    async def note_import(
        self, import_id: ImportId, progress: int, message: str, *, job_id: JobId | None = None
    ) -> bool:
        if not may_be(import_id, job_id):
            return False

        async def note(scope: Scope) -> bool:
            now = await scope.now()
            said = {"message": storable(message), "messageAt": now, "updatedAt": now}
            running = {**_of_parent(import_id.lower(), job_id), "status": ImportStatus.RUNNING.value}
            change = {"$max": {"planned": min(progress, 10)}, "$set": said}
            return (await scope[IMPORTS].update_one(running, change)).matched_count > 0

        return await self._plain(note)

    async def cancel_import(self, import_id: ImportId) -> list[JobId] | None:
        if not is_uuid(import_id):
            return None

        async def cancel(scope: Scope) -> list[JobId] | None:
            found = await _find(scope, import_id.lower())
            if found is None or ImportStatus(found["status"]).final:
                return None
            await _end(scope, found["_id"], ImportStatus.CANCELLED, "Cancelled", None, None)
            return await _live_jobs(scope, found)

        cancelled: list[JobId] | None = await self._locked(import_id.lower(), cancel)
        return cancelled

    async def resume_import(self, import_id: ImportId, jobs: Mapping[int, NewJob]) -> bool:
        if not is_uuid(import_id):
            return False
        return bool(await self._locked(import_id.lower(), lambda scope: _resume(scope, import_id.lower(), jobs)))

    async def close_imports(self, limit: int) -> list[ImportRecord]:
        dead = await self._plain(lambda scope: _dead(scope, {}))
        closed = []
        for import_id in sorted(dead)[: max(limit, 0)]:
            if await self._locked(import_id, lambda scope, each=import_id: _close(scope, each)):
                closed.append(import_id)
        return await self._plain(lambda scope: records(scope, closed))

    async def sweepable_imports(self, days: float, limit: int) -> list[ImportRecord]:
        async def look(scope: Scope) -> list[ImportRecord]:
            long_ago = {"finishedAt": {"$lt": after(await scope.now(), -days * _DAY_SECONDS)}}
            may_go = {"unswept": True, "$or": [{"status": ImportStatus.SUCCEEDED.value}, long_ago]}
            found = scope[IMPORTS].find(may_go, {"_id": 1}).sort([("finishedAt", 1), ("_id", 1)]).limit(limit)
            return await records(scope, [one["_id"] async for one in found])

        return await self._plain(look) if limit > 0 else []

    async def sweep_import(self, import_id: ImportId, *, errors_kept: int | None = None) -> bool:
        if not is_uuid(import_id):
            return False

        async def sweep(scope: Scope) -> bool:
            found = await _find(scope, import_id.lower())
            if found is None or "finishedAt" not in found:
                return False
            if "sweptAt" not in found:
                now = await scope.now()
                change = {"$set": {"sweptAt": now, "updatedAt": now}, "$unset": {"unswept": ""}}
                await scope[IMPORTS].update_one({"_id": found["_id"]}, change, session=scope.session)
            if errors_kept is not None:
                await _trim(scope, found["_id"], errors_kept)
            return True

        return await self._atomic(sweep)

    async def prune_imports(self, days: float, limit: int) -> int:
        return await self._atomic(lambda scope: _prune(scope, days, limit)) if limit > 0 else 0

    async def _locked(self, import_id: ImportId, work: Any) -> Any:
        """Do the work in a transaction while nobody else decides about this import."""

        async def tied(scope: Scope, token: str) -> Any:
            await hold(scope, token)
            return await work(scope)

        async def alone(scope: Scope) -> Any:
            async with locked(scope.db, import_id) as token:
                return await self._atomic(lambda own: tied(own, token))

        return await self._plain(alone)


class ImportingTransaction(Loading):
    """What an import records in a transaction together with the end of its job."""

    _seen: _Own | None = None

    @property
    def _own(self) -> _Own:
        if self._seen is None:
            self._seen = _Own()
        return self._seen

    async def release(self) -> None:
        """Let others decide about the imports of this transaction, which has ended."""
        if self._seen is not None:
            await asyncio.shield(self._seen.release())
        await super().release()

    async def plan_import(self, import_id: ImportId, plan: Plan, *, job_id: JobId) -> bool:
        if not may_be(import_id, job_id):
            return False
        return await self._run(lambda scope: _plan(scope, self._own, import_id.lower(), plan, job_id.lower()))

    async def end_chunk(
        self, import_id: ImportId, index: int, result: ChunkResult, *, job_id: JobId | None = None
    ) -> ChunkEnd | None:
        if not is_uuid(import_id):
            return None
        whose = job_id and job_id.lower()
        return await self._run(lambda scope: _end_chunk(scope, self._own, import_id.lower(), index, result, whose))

    async def queue_finish(self, import_id: ImportId, job: NewJob) -> None:
        async def queue(scope: Scope) -> None:
            found = await self._own.locked(scope, import_id.lower())
            if not _is_planned(found) or "finishJobId" in found or await self._own.waits(scope, found["_id"]):
                return
            said = {"finishJobId": job.id, "updatedAt": await scope.now()}
            await self._own.update(scope, found, {"$set": said})
            await add(scope, [job])

        if is_uuid(import_id):
            await self._run(queue)

    async def begin_finish(self, import_id: ImportId, job_id: JobId) -> ImportRecord | None:
        async def begin(scope: Scope) -> ImportRecord | None:
            found = await self._own.locked(scope, import_id.lower())
            if not _is_planned(found) or found.get("finishJobId") != job_id.lower():
                return None
            if await self._own.waits(scope, found["_id"]):
                return None
            return import_record(found, await standing(scope, found["_id"], self._own.chunks.get(found["_id"], {})))

        return await self._run(begin) if may_be(import_id, job_id) else None

    async def trim_errors(self, import_id: ImportId, keep: int) -> None:
        if is_uuid(import_id):
            await self._run(lambda scope: _trim(scope, import_id.lower(), keep))

    async def end_import(
        self,
        import_id: ImportId,
        status: ImportStatus,
        *,
        message: str,
        error: str | None,
        result: str | None,
        job_id: JobId | None = None,
    ) -> bool:
        final(status)

        async def end(scope: Scope) -> bool:
            found = await self._own.locked(scope, import_id.lower())
            if not found or ImportStatus(found["status"]).final or not await _may_end(scope, found, job_id):
                return False
            change = await _end(scope, found["_id"], status, message, error, result)
            self._own.imports[found["_id"]] = {**found, **change}
            return True

        return await self._run(end) if may_be(import_id, job_id) else False


class _Own:
    """What one transaction has locked and written: the rest it reads as others have committed it."""

    def __init__(self) -> None:
        self._locks: dict[ImportId, tuple[Database, str]] = {}
        self.imports: dict[ImportId, Document] = {}
        self.chunks: dict[ImportId, dict[int, Document]] = {}

    async def locked(self, scope: Scope, import_id: ImportId) -> Document:
        """The import, which nobody else decides about until the transaction ends; empty: there is none."""
        if import_id not in self._locks:
            token = await lock(scope.db, import_id)
            self._locks[import_id] = (scope.db, token)
            await hold(scope, token)
        if import_id in self.imports:
            return self.imports[import_id]
        return await scope[IMPORTS].find_one({"_id": import_id}) or {}

    async def update(self, scope: Scope, found: Document, change: Document) -> None:
        await scope[IMPORTS].update_one({"_id": found["_id"]}, change, session=scope.session)
        kept = {name: value for name, value in found.items() if name not in change.get("$unset", {})}
        self.imports[found["_id"]] = {**kept, **change["$set"]}

    async def waits(self, scope: Scope, import_id: ImportId) -> bool:
        """Whether a chunk waits."""
        done = list(self.chunks.get(import_id, ()))
        asked = {"importId": import_id, "index": {"$nin": done}, "status": _WAITING}
        return await scope[CHUNKS].find_one(asked, {"_id": 1}) is not None

    async def release(self) -> None:
        locks, self._locks = self._locks, {}
        for import_id, (db, token) in locks.items():
            await release(db, import_id, token)


def _of_parent(import_id: ImportId, job_id: JobId | None) -> Document:
    return {"_id": import_id} if job_id is None else {"_id": import_id, "parentJobId": job_id.lower()}


def _is_planned(found: Document) -> bool:
    """Whether it is RUNNING, and its chunks are known."""
    return found.get("status") == ImportStatus.RUNNING and "totalChunks" in found


async def _find(scope: Scope, import_id: ImportId) -> Document | None:
    return await scope[IMPORTS].find_one({"_id": import_id}, session=scope.session)


async def _same(scope: Scope, new: NewImport) -> ImportId | None:
    """The one with this id, or else the one that this file is a duplicate of."""
    asked: list[Document] = [{"_id": new.id.lower()}]
    if new.once:
        asked.append({"onceKey": once_key(new)})
    for where in asked:
        found = await scope[IMPORTS].find_one(where, {"_id": 1}, session=scope.session)
        if found is not None:
            return str(found["_id"])
    return None


async def _start(scope: Scope, asked: Document, message: str | None) -> Started:
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
    await imports.update_one({"_id": found["_id"]}, {"$set": said}, session=session)
    return Started.STARTED


async def _turn(scope: Scope, name: str) -> int:
    """The next turn of a scope; who starts or resumes another of it at the same time has to look again."""
    before = await scope[SCOPES].find_one({"_id": name}, session=scope.session)
    if before is None:
        await scope[SCOPES].insert_one({"_id": name, "turn": 1}, session=scope.session)
        return 1
    await scope[SCOPES].update_one({"_id": name}, {"$inc": {"turn": 1}}, session=scope.session)
    return int(before["turn"]) + 1


async def _end(
    scope: Scope, import_id: ImportId, status: ImportStatus, message: str, error: str | None, result: str | None
) -> Document:
    now = await scope.now()
    said = {"message": storable(message), "error": error, "result": result}
    change: Document = {"status": status.value, **said, "finishedAt": now, "updatedAt": now, "unswept": True}
    gone = {"runningScope": ""} | ({"onceKey": ""} if status in _DEAD else {})
    await scope[IMPORTS].update_one({"_id": import_id}, {"$set": change, "$unset": gone}, session=scope.session)
    return change


async def _may_end(scope: Scope, found: Document, job_id: JobId | None) -> bool:
    """Whether this job has a say in the end of an import."""
    if job_id is None:
        return True
    whose, total = job_id.lower(), found.get("totalChunks")
    if found.get("finishJobId") == whose or (total is None and found["parentJobId"] == whose):
        return True
    asked = {"importId": found["_id"], "index": {"$gte": 0, "$lt": total or 0}, "jobId": whose}
    return await scope[CHUNKS].find_one(asked, {"_id": 1}) is not None


async def _live_jobs(scope: Scope, found: Document) -> list[JobId]:
    """The jobs of an import that are not over: its own first, then those of its chunks."""
    places = {found["_id"]: -1, found["parentJobId"]: -1}
    if "finishJobId" in found:
        places[found["finishJobId"]] = -1
    chunks = scope[CHUNKS].find({"importId": found["_id"]}, {"jobId": 1, "index": 1}, session=scope.session)
    async for chunk in chunks:
        places[chunk["jobId"]] = min(chunk["index"], places.get(chunk["jobId"], chunk["index"]))
    alive = {"_id": {"$in": list(places)}, "state": {"$ne": FINISHED}}
    jobs = [job["_id"] async for job in scope[JOBS].find(alive, {"_id": 1}, session=scope.session)]
    return sorted(jobs, key=lambda job_id: (places[job_id], job_id))


async def _resume(scope: Scope, import_id: ImportId, jobs: Mapping[int, NewJob]) -> bool:
    imports, session = scope[IMPORTS], scope.session
    found = await _find(scope, import_id)
    if found is None or found["status"] not in _DEAD or "sweptAt" in found:
        return False
    total: int | None = found.get("totalChunks")
    waits = {"importId": import_id, "status": _WAITING}
    waiting = [one["index"] async for one in scope[CHUNKS].find(waits, {"index": 1}, session=session)]
    if set(jobs) != needed_indexes(total, waiting):
        return False
    change = await _resumed(scope, found)
    if change is None:
        return False
    parent, finish = resumed_ends(total, jobs)
    change |= {"parentJobId": parent} if parent else {}
    change |= {"finishJobId": finish} if finish else {}
    gone = dict.fromkeys(("message", "messageAt", "error", "result", "finishedAt", "unswept"), "")
    await imports.update_one({"_id": import_id}, {"$set": change, "$unset": gone}, session=session)
    moved = [
        UpdateOne({"importId": import_id, "index": index, "status": _WAITING}, {"$set": {"jobId": job.id}})
        for index, job in jobs.items()
        if index in waiting
    ]
    if moved:
        await scope[CHUNKS].bulk_write(moved, session=session)
    await add(scope, list(jobs.values()))
    return True


async def _resumed(scope: Scope, found: Document) -> Document | None:
    """What an import that goes on is; None where another stands in its way, or has come since."""
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


async def _dead(scope: Scope, where: Document) -> dict[ImportId, tuple[int | None, JobId, int | None, str | None]]:
    """Imports that wait for a job which will never do its part, each with the first such job: a failed one, if any."""
    awaited: list[tuple[ImportId, int | None, JobId]] = []
    shown = {"totalChunks": 1, "parentJobId": 1, "finishJobId": 1}
    async for one in scope[IMPORTS].find({**where, "status": _OPEN}, shown, session=scope.session):
        if "totalChunks" not in one:
            awaited.append((one["_id"], None, one["parentJobId"]))
        if "finishJobId" in one:
            awaited.append((one["_id"], None, one["finishJobId"]))
        if "totalChunks" in one:
            waits = {"importId": one["_id"], "status": _WAITING}
            chunks = scope[CHUNKS].find(waits, {"index": 1, "jobId": 1}, session=scope.session)
            awaited += [(one["_id"], chunk["index"], chunk["jobId"]) async for chunk in chunks]
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


async def _jobs(scope: Scope, ids: Iterable[JobId]) -> dict[JobId, Document]:
    asked = {"_id": {"$in": list(ids)}}
    shown = {"state": 1, "status": 1, "error": 1}
    return {job["_id"]: job async for job in scope[JOBS].find(asked, shown, session=scope.session)}


async def _close(scope: Scope, import_id: ImportId) -> bool:
    dead = await _dead(scope, {"_id": import_id})
    if import_id not in dead:
        return False
    message, error = death(*dead[import_id])
    await _end(scope, import_id, ImportStatus.FAILED, message, error, None)
    return True


async def _error_rows(scope: Scope, import_id: ImportId, where: Document, skip: int, limit: int) -> list[int]:
    """The numbers of rows with errors, each once."""
    steps: list[Document] = [
        {"$match": {"importId": import_id, **where}},
        {"$group": {"_id": "$row"}},
        {"$sort": {"_id": 1}},
        {"$skip": skip},
        {"$limit": limit},
    ]
    return [one["_id"] async for one in await scope[ERRORS].aggregate(steps, session=scope.session)]


async def _trim(scope: Scope, import_id: ImportId, keep: int) -> None:
    for row in await _error_rows(scope, import_id, {}, max(keep, 0), 1):
        await scope[ERRORS].delete_many({"importId": import_id, "row": {"$gte": row}}, session=scope.session)


async def _prune(scope: Scope, days: float, limit: int) -> int:
    imports, session = scope[IMPORTS], scope.session
    before = after(await scope.now(), -days * _DAY_SECONDS)
    old = {"sweptAt": {"$exists": True}, "finishedAt": {"$lt": before}}
    doomed: list[ImportId] = []
    found = imports.find(old, {"scope": 1, "turn": 1}, session=session).sort([("finishedAt", 1), ("_id", 1)])
    async for one in found:
        if "turn" in one:
            older = {"scope": one["scope"], "turn": {"$lt": one["turn"]}, "sweptAt": {"$exists": False}}
            if await imports.find_one(older, {"_id": 1}, session=session) is not None:
                continue  # it keeps that one from being resumed
        doomed.append(one["_id"])
        if len(doomed) == limit:
            break
    if doomed:
        for collection in (ERRORS, CHUNKS):
            await scope[collection].delete_many({"importId": {"$in": doomed}}, session=session)
        await imports.delete_many({"_id": {"$in": doomed}}, session=session)
    return len(doomed)


async def _plan(scope: Scope, own: _Own, import_id: ImportId, plan: Plan, job_id: JobId) -> bool:
    found = await own.locked(scope, import_id)
    if found.get("status") != ImportStatus.RUNNING or "totalChunks" in found or found["parentJobId"] != job_id:
        return False
    now = await scope.now()
    said: Document = {"totalChunks": len(plan.chunks), "meta": plan.meta, "planned": 10, "updatedAt": now}
    await own.update(scope, found, {"$set": said, "$unset": {"message": "", "messageAt": ""}})
    chunks = [waiting_chunk(import_id, index, chunk.job.id, chunk.rows) for index, chunk in enumerate(plan.chunks)]
    if chunks:
        await scope[CHUNKS].insert_many(chunks, session=scope.session)
    await _record(scope, own, import_id, -1, plan.refused, now, apart=job_id)
    await add(scope, [chunk.job for chunk in plan.chunks])
    return True


async def _end_chunk(
    scope: Scope, own: _Own, import_id: ImportId, index: int, result: ChunkResult, job_id: JobId | None
) -> ChunkEnd | None:
    found = await own.locked(scope, import_id)
    if not _is_planned(found):
        return None
    total: int = found["totalChunks"]
    apart: JobId | None = None
    if planned_index(index, total) == total:
        apart = whose = found.get("finishJobId", found["parentJobId"])
    else:
        chunk = await scope[CHUNKS].find_one({"importId": import_id, "index": index}, {"jobId": 1})
        if chunk is None:  # planned in this transaction
            chunk = await scope[CHUNKS].find_one({"importId": import_id, "index": index}, session=scope.session) or {}
        whose = chunk.get("jobId")
    if job_id is not None and whose != job_id:
        return None
    await _record(scope, own, import_id, index, result, await scope.now(), apart=apart)
    sums = await standing(scope, import_id, own.chunks[import_id])
    return ChunkEnd(ImportStatus(found["status"]), sums["completed"], total, sums["errorCount"])


async def _record(
    scope: Scope,
    own: _Own,
    import_id: ImportId,
    index: int,
    result: ChunkResult,
    now: datetime,
    *,
    apart: JobId | None,
) -> None:
    """Put what is said of a chunk in place of what was said."""
    said = chunk_fields(result, now)
    if apart is not None:
        said |= {"jobId": apart, "plannedRows": result.counts.rows, "apart": True}
    own.chunks.setdefault(import_id, {})[index] = said
    place = {"importId": import_id, "index": index}
    await scope[CHUNKS].update_one(place, {"$set": said}, upsert=apart is not None, session=scope.session)
    of_chunk = {"importId": import_id, "chunk": index}
    await scope[ERRORS].delete_many(of_chunk, session=scope.session)
    if rows := error_documents(import_id, index, result):
        await scope[ERRORS].insert_many(rows, session=scope.session)
