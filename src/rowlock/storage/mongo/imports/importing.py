"""Import records, chunks and errors.

Chunks that load at the same time share no document: each writes its own, in the transaction of its rows. Reads sum
them up; `import_locks` explains how a chunk sees that it is the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rowlock.ids import is_uuid
from rowlock.storage.import_rows import (
    checked_cursor,
    error_page,
    import_page,
    may_be,
)
from rowlock.storage.imports import (
    Added,
    ChunkRecord,
    ErrorPage,
    ImportId,
    ImportPage,
    ImportRecord,
    ImportStatus,
    NewImport,
    Started,
    part_index,
)
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.dates import after, floor
from rowlock.storage.mongo.documents import storable
from rowlock.storage.mongo.imports import import_documents, import_locks
from rowlock.storage.mongo.imports.import_documents import (
    CHUNKS,
    ERRORS,
    IMPORTS,
    chunk_record,
    error_row,
    import_document,
    once_key,
    records,
)
from rowlock.storage.mongo.imports.import_locks import hold, locked
from rowlock.storage.mongo.imports.import_steps import (
    close_import,
    dead_imports,
    end_import,
    error_rows,
    find_import,
    live_jobs,
    resume_import,
    start_import,
    trim_errors,
)
from rowlock.storage.mongo.jobs.enqueue import add
from rowlock.storage.mongo.loading.intents import forget
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import JobId, NewJob

INDEXES = (*import_documents.INDEXES, *import_locks.INDEXES)

_DAY_SECONDS = 24 * 3600


class Importing(Worked):
    """Stores imports, their chunks and their errors."""

    async def add_import(self, new: NewImport, job: NewJob) -> Added:
        async def work(scope: Scope) -> tuple[ImportId, bool]:
            same = await _same(scope, new)
            if same is not None:
                return same, False
            await scope[IMPORTS].insert_one(import_document(new, job.id, await scope.now()), session=scope.session)
            try:
                await add(scope, [job])
            except Exception:
                if scope.session is None:
                    await scope[IMPORTS].delete_one({"_id": new.id.lower()})
                raise
            return new.id.lower(), True

        async def alone(scope: Scope) -> tuple[ImportId, bool]:
            if scope.session is not None:
                return await work(scope)
            async with locked(scope.db, new.id.lower()):  # so that it is not closed before its job exists
                return await work(scope)

        import_id, created = await self._atomic(alone)
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

    async def parts(self, import_id: ImportId, chunk: int) -> list[ChunkRecord]:
        if not is_uuid(import_id):
            return []
        of_chunk = {"$lte": part_index(chunk, 0), "$gt": part_index(chunk + 1, 0)}
        asked = {"importId": import_id.lower(), "index": of_chunk}
        found = await self._plain(lambda scope: scope[CHUNKS].find(asked).sort("index", -1).to_list())
        return [chunk_record(one) for one in found]

    async def import_errors(self, import_id: ImportId, *, after_row: int, limit: int) -> ErrorPage:
        if not is_uuid(import_id):
            return error_page([], limit)

        async def look(scope: Scope) -> list[Document]:
            rows = await error_rows(scope, import_id.lower(), {"row": {"$gt": after_row}}, 0, max(limit, 0) + 1)
            if not rows:
                return []
            asked = {"importId": import_id.lower(), "row": {"$gte": rows[0], "$lte": rows[-1]}}
            return await scope[ERRORS].find(asked).sort([("row", 1), ("chunk", 1)]).to_list()

        return error_page(map(error_row, await self._plain(look)), limit)

    async def start_import(self, import_id: ImportId, message: str, *, job_id: JobId | None = None) -> Started:
        if not may_be(import_id, job_id):
            return Started.OVER
        asked = _of_parent(import_id.lower(), job_id)
        return await self._atomic(lambda scope: start_import(scope, asked, storable(message)))

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
            found = await find_import(scope, import_id.lower())
            if found is None or ImportStatus(found["status"]).final:
                return None
            await end_import(scope, found["_id"], ImportStatus.CANCELLED, "Cancelled", None, None)
            return await live_jobs(scope, found)

        cancelled: list[JobId] | None = await self._locked(import_id.lower(), cancel)
        return cancelled

    async def resume_import(self, import_id: ImportId, jobs: Mapping[int, NewJob]) -> bool:
        if not is_uuid(import_id):
            return False
        return bool(await self._locked(import_id.lower(), lambda scope: resume_import(scope, import_id.lower(), jobs)))

    async def close_imports(self, limit: int) -> list[ImportRecord]:
        dead = await self._plain(lambda scope: dead_imports(scope, {}))
        closed = []
        for import_id in sorted(dead)[: max(limit, 0)]:
            if await self._locked(import_id, lambda scope, each=import_id: close_import(scope, each)):
                closed.append(import_id)
        return await self._plain(lambda scope: records(scope, closed))

    async def cleanable_imports(self, days: float, limit: int) -> list[ImportRecord]:
        async def look(scope: Scope) -> list[ImportRecord]:
            long_ago = {"finishedAt": {"$lt": after(await scope.now(), -days * _DAY_SECONDS)}}
            # A succeeded import no longer needs its file, unless it was a dry run: it may be imported for real later.
            needless = {"status": ImportStatus.SUCCEEDED.value, "options": {"$not": {"$regex": '"dryRun": true'}}}
            may_go = {"uncleaned": True, "$or": [needless, long_ago]}
            found = scope[IMPORTS].find(may_go, {"_id": 1}).sort([("finishedAt", 1), ("_id", 1)]).limit(limit)
            return await records(scope, [one["_id"] async for one in found])

        return await self._plain(look) if limit > 0 else []

    async def trim_errors(self, import_id: ImportId, keep: int) -> None:
        if is_uuid(import_id):
            await self._plain(lambda scope: trim_errors(scope, import_id.lower(), keep))

    async def clean_import(self, import_id: ImportId, *, errors_kept: int | None = None) -> bool:
        if not is_uuid(import_id):
            return False

        async def clean(scope: Scope) -> bool:
            found = await find_import(scope, import_id.lower())
            if found is None or "finishedAt" not in found:
                return False
            if "cleanedAt" not in found:
                now = await scope.now()
                change = {"$set": {"cleanedAt": now, "updatedAt": now}, "$unset": {"uncleaned": ""}}
                over = {"_id": found["_id"], "finishedAt": {"$exists": True}}
                if (await scope[IMPORTS].update_one(over, change, session=scope.session)).matched_count == 0:
                    return False  # resumed meanwhile, which a transaction would prevent
            if scope.session is None:
                await forget(scope, found["_id"])
            if errors_kept is not None:
                await trim_errors(scope, found["_id"], errors_kept)
            return True

        return await self._atomic(clean)

    async def prune_imports(self, days: float, limit: int) -> int:
        if limit <= 0:
            return 0
        # Errors first, outside of the transaction: there are too many for it.
        await self._plain(lambda scope: _prune_errors(scope, days, limit))
        return await self._atomic(lambda scope: _prune(scope, days, limit))

    async def _locked(self, import_id: ImportId, work: Any) -> Any:
        """Run the work in a transaction, under the lock of this import."""

        held = False

        async def tied(scope: Scope, token: str) -> Any:
            nonlocal held
            if scope.session is not None or not held:  # without a transaction, the hold is still there on a retry
                await hold(scope, token)
            held = True
            return await work(scope)

        async def alone(scope: Scope) -> Any:
            async with locked(scope.db, import_id) as token:
                return await self._atomic(lambda own: tied(own, token))

        return await self._plain(alone)


def _of_parent(import_id: ImportId, job_id: JobId | None) -> Document:
    return {"_id": import_id} if job_id is None else {"_id": import_id, "parentJobId": job_id.lower()}


async def _same(scope: Scope, new: NewImport) -> ImportId | None:
    """Return the import with this id, or else the one that this file duplicates; None if there is neither."""
    asked: list[Document] = [{"_id": new.id.lower()}]
    if new.once:
        asked.append({"onceKey": once_key(new)})
    for where in asked:
        found = await scope[IMPORTS].find_one(where, {"_id": 1}, session=scope.session)
        if found is not None:
            return str(found["_id"])
    return None


async def _prune(scope: Scope, days: float, limit: int) -> int:
    if doomed := await _doomed(scope, days, limit):
        for collection in (ERRORS, CHUNKS):
            await scope[collection].delete_many({"importId": {"$in": doomed}}, session=scope.session)
        await scope[IMPORTS].delete_many({"_id": {"$in": doomed}}, session=scope.session)
    return len(doomed)


async def _prune_errors(scope: Scope, days: float, limit: int) -> None:
    if doomed := await _doomed(scope, days, limit):
        await scope[ERRORS].delete_many({"importId": {"$in": doomed}})


async def _doomed(scope: Scope, days: float, limit: int) -> list[ImportId]:
    """Return the imports to remove, oldest first."""
    imports, session = scope[IMPORTS], scope.session
    before = after(await scope.now(), -days * _DAY_SECONDS)
    old = {"cleanedAt": {"$exists": True}, "finishedAt": {"$lt": before}}
    doomed: list[ImportId] = []
    found = imports.find(old, {"scope": 1, "turn": 1}, session=session).sort([("finishedAt", 1), ("_id", 1)])
    async for one in found:
        if "turn" in one:
            older = {"scope": one["scope"], "turn": {"$lt": one["turn"]}, "cleanedAt": {"$exists": False}}
            if await imports.find_one(older, {"_id": 1}, session=session) is not None:
                continue  # it stays, because it keeps the older one from being resumed
        doomed.append(one["_id"])
        if len(doomed) == limit:
            break
    return doomed
