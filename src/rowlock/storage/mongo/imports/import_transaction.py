"""Import records that are written in the transaction of the rows and of the job's settlement."""

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
    chunk_of,
)
from rowlock.storage.mongo.connection import Database, Document, Scope, is_new
from rowlock.storage.mongo.errors import TransactionConflict
from rowlock.storage.mongo.imports.import_documents import (
    CHUNKS,
    ERRORS,
    IMPORTS,
    chunk_fields,
    error_documents,
    import_record,
    standing,
    waiting_chunk,
)
from rowlock.storage.mongo.imports.import_locks import (
    ANSWER_SECONDS,
    HeldBack,
    Room,
    hold,
    lock,
    lock_for_rows,
    release,
    release_late,
)
from rowlock.storage.mongo.imports.import_steps import WAITING, end_import, is_planned, may_end
from rowlock.storage.mongo.jobs.enqueue import add
from rowlock.storage.mongo.loading.load import Loading
from rowlock.storage.records import JobId, NewJob


class ImportingTransaction(Loading):
    """Records plans, chunks and ends of imports, in one transaction with the settlement of the job."""

    _seen: _Own | None = None
    _room: Room | None = None

    @property
    def _own(self) -> _Own:
        if self._seen is None:
            self._seen = _Own(self._room)
        return self._seen

    async def lock_for_rows(self, import_id: ImportId) -> None:
        """Lock an import before its rows are written."""
        await self._run(lambda scope: self._own.lock_for_rows(scope, import_id.lower()))

    async def release(self) -> None:
        """Release the locks on imports of this transaction, which has ended."""
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
            try:
                await add(scope, [job], answer_seconds=None if scope.session is None else ANSWER_SECONDS)
            except TimeoutError as error:
                raise self._own.held_back() from error
            # Last: without transactions, a job that the import does not name becomes its finish job when it begins.
            said = {"finishJobId": job.id, "updatedAt": await scope.now()}
            await self._own.update(scope, found, {"$set": said})

        if is_uuid(import_id):
            await self._run(queue)

    async def begin_finish(self, import_id: ImportId, job_id: JobId) -> ImportRecord | None:
        async def begin(scope: Scope) -> ImportRecord | None:
            found = await self._own.locked(scope, import_id.lower())
            if not is_planned(found) or await self._own.waits(scope, found["_id"]):
                return None
            if scope.session is None and "finishJobId" not in found:
                await self._own.update(scope, found, {"$set": {"finishJobId": job_id.lower()}})
            elif found.get("finishJobId") != job_id.lower():
                return None
            return import_record(found, await standing(scope, found["_id"], self._own.chunks.get(found["_id"], {})))

        return await self._run(begin) if may_be(import_id, job_id) else None

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
    """What one transaction has locked and written; it reads the rest as others have committed it."""

    def __init__(self, room: Room | None) -> None:
        self._room = room
        self._locks: dict[ImportId, tuple[Database, str]] = {}
        self._held = set[ImportId]()
        self._held_back: list[tuple[Database, ImportId, HeldBack]] = []
        self.imports: dict[ImportId, Document] = {}
        self.chunks: dict[ImportId, dict[int, Document]] = {}

    async def locked(self, scope: Scope, import_id: ImportId) -> Document:
        """Lock the import until the transaction ends; returns its document, empty if there is none."""
        if import_id not in self._locks:
            self._locks[import_id] = (scope.db, await self._lock(scope, import_id))
        if import_id not in self._held:
            await hold(scope, self._locks[import_id][1])
            self._held.add(import_id)
        if import_id in self.imports:
            return self.imports[import_id]
        return await scope[IMPORTS].find_one({"_id": import_id}) or {}

    async def lock_for_rows(self, scope: Scope, import_id: ImportId) -> None:
        if scope.session is not None and import_id not in self._locks:
            token = await lock_for_rows(scope.db, import_id, scope.session.session_id["id"])
            self._locks[import_id] = (scope.db, token)

    async def _lock(self, scope: Scope, import_id: ImportId) -> str:
        if scope.session is None or is_new(scope):
            return await lock(scope.db, import_id, scope.session and scope.session.session_id["id"])
        try:
            return await lock(scope.db, import_id, scope.session.session_id["id"], answer_seconds=ANSWER_SECONDS)
        except HeldBack as held_back:
            self._held_back.append((scope.db, import_id, held_back))
            raise self.held_back() from held_back

    def held_back(self) -> TransactionConflict:
        """Return the error of a write outside of this transaction that the server may hold back until it ends."""
        if self._room is not None:
            self._room.lack()
        return TransactionConflict(
            "the server holds writes back: its cache is full of what transactions have written; try it again"
        )

    async def update(self, scope: Scope, found: Document, change: Document) -> bool:
        """Change an import; without transactions, returns False if its status has changed since it was read."""
        which = {"_id": found["_id"]} | ({"status": found["status"]} if scope.session is None else {})
        updated = await scope[IMPORTS].update_one(which, change, session=scope.session)
        kept = {name: value for name, value in found.items() if name not in change.get("$unset", {})}
        self.imports[found["_id"]] = {**kept, **change["$set"]}
        return updated.matched_count > 0

    async def waits(self, scope: Scope, import_id: ImportId) -> bool:
        """Whether a chunk is still waiting."""
        done = list(self.chunks.get(import_id, ()))
        asked = {"importId": import_id, "index": {"$nin": done}, "status": WAITING}
        return await scope[CHUNKS].find_one(asked, {"_id": 1}) is not None

    async def release(self) -> None:
        locks, self._locks = self._locks, {}
        for import_id, (db, token) in locks.items():
            await release(db, import_id, token)
        held_back, self._held_back = self._held_back, []
        for db, import_id, late in held_back:
            await release_late(db, import_id, late)


async def _plan(scope: Scope, own: _Own, import_id: ImportId, plan: Plan, job_id: JobId) -> bool:
    found = await own.locked(scope, import_id)
    if found.get("status") != ImportStatus.RUNNING or "totalChunks" in found or found["parentJobId"] != job_id:
        return False
    now = await scope.now()
    if scope.session is None:  # an attempt that died may have left part of its plan
        await scope[CHUNKS].delete_many({"importId": import_id})
    chunks = [waiting_chunk(import_id, index, chunk.job.id, chunk.rows) for index, chunk in enumerate(plan.chunks)]
    if chunks:
        await scope[CHUNKS].insert_many(chunks, session=scope.session)
    await _record(scope, own, import_id, -1, plan.refused, now, apart=job_id)
    await add(scope, [chunk.job for chunk in plan.chunks])
    # Last, since without transactions this is the commit: chunk jobs that start before it wait for it.
    said: Document = {"totalChunks": len(plan.chunks), "meta": plan.meta, "planned": 10, "updatedAt": now}
    return await own.update(scope, found, {"$set": said, "$unset": {"message": "", "messageAt": ""}})


async def _end_chunk(
    scope: Scope, own: _Own, import_id: ImportId, index: int, result: ChunkResult, job_id: JobId | None
) -> ChunkEnd | None:
    found = await own.locked(scope, import_id)
    if not is_planned(found):
        return None
    total: int = found["totalChunks"]
    apart: JobId | None = None
    chunk: Document = {}
    if planned_index(index, total) == total:
        apart = whose = found.get("finishJobId", found["parentJobId"])
    else:
        place = {"importId": import_id, "index": chunk_of(index) if index < 0 else index}
        chunk = await scope[CHUNKS].find_one(place, {"jobId": 1, "status": 1}) or {}
        if not chunk:  # planned in this transaction
            chunk = await scope[CHUNKS].find_one(place, session=scope.session) or {}
        whose = chunk.get("jobId")
    if job_id is not None and whose != job_id:
        return None
    if index < 0:
        part = {"importId": import_id, "index": index}
        if chunk.get("status") != WAITING or await scope[CHUNKS].find_one(part, {"_id": 1}) is not None:
            return None
        apart = whose
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
    """Replace the record and the errors of a chunk."""
    said = chunk_fields(result, now)
    if apart is not None:
        said |= {"jobId": apart, "plannedRows": result.counts.rows, "apart": True}
    own.chunks.setdefault(import_id, {})[index] = said
    of_chunk = {"importId": import_id, "chunk": index}
    await scope[ERRORS].delete_many(of_chunk, session=scope.session)
    if rows := error_documents(import_id, index, result):
        await scope[ERRORS].insert_many(rows, session=scope.session)
    place = {"importId": import_id, "index": index}
    # Last, since without transactions this is the commit of the chunk.
    await scope[CHUNKS].update_one(place, {"$set": said}, upsert=apart is not None, session=scope.session)
