"""What an import records in the transaction of its rows, and of the end of its job."""

from __future__ import annotations

import asyncio
from datetime import datetime

from rowlock.ids import is_uuid
from rowlock.storage.import_rows import (
    final,
    may_be,
    planned_index,
)
from rowlock.storage.imports import (
    ChunkEnd,
    ChunkResult,
    ImportId,
    ImportRecord,
    ImportStatus,
    Plan,
)
from rowlock.storage.mongo.connection import Database, Document, Scope
from rowlock.storage.mongo.enqueue import add
from rowlock.storage.mongo.import_documents import (
    CHUNKS,
    ERRORS,
    IMPORTS,
    chunk_fields,
    error_documents,
    import_record,
    standing,
    waiting_chunk,
)
from rowlock.storage.mongo.import_locks import hold, lock, release
from rowlock.storage.mongo.import_steps import WAITING, end_import, is_planned, may_end, trim_errors
from rowlock.storage.mongo.load import Loading
from rowlock.storage.records import JobId, NewJob


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
            if not is_planned(found) or "finishJobId" in found or await self._own.waits(scope, found["_id"]):
                return
            said = {"finishJobId": job.id, "updatedAt": await scope.now()}
            await self._own.update(scope, found, {"$set": said})
            await add(scope, [job])

        if is_uuid(import_id):
            await self._run(queue)

    async def begin_finish(self, import_id: ImportId, job_id: JobId) -> ImportRecord | None:
        async def begin(scope: Scope) -> ImportRecord | None:
            found = await self._own.locked(scope, import_id.lower())
            if not is_planned(found) or found.get("finishJobId") != job_id.lower():
                return None
            if await self._own.waits(scope, found["_id"]):
                return None
            return import_record(found, await standing(scope, found["_id"], self._own.chunks.get(found["_id"], {})))

        return await self._run(begin) if may_be(import_id, job_id) else None

    async def trim_errors(self, import_id: ImportId, keep: int) -> None:
        if is_uuid(import_id):
            await self._run(lambda scope: trim_errors(scope, import_id.lower(), keep))

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
            if not found or ImportStatus(found["status"]).final or not await may_end(scope, found, job_id):
                return False
            change = await end_import(scope, found["_id"], status, message, error, result)
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
        asked = {"importId": import_id, "index": {"$nin": done}, "status": WAITING}
        return await scope[CHUNKS].find_one(asked, {"_id": 1}) is not None

    async def release(self) -> None:
        locks, self._locks = self._locks, {}
        for import_id, (db, token) in locks.items():
            await release(db, import_id, token)


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
    if not is_planned(found):
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
