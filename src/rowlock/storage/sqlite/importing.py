"""Imports in the SQLite store: records, chunks and errors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar

import apsw

from rowlock.ids import is_uuid
from rowlock.storage.import_rows import (
    checked_cursor,
    chunk_columns,
    chunk_record,
    death,
    error_columns,
    error_page,
    final,
    import_page,
    import_record,
    listing,
    needed_indexes,
    parts_of,
    planned_index,
    resumed_ends,
)
from rowlock.storage.imports import (
    Added,
    ChunkEnd,
    ChunkRecord,
    ChunkResult,
    ErrorPage,
    ImportId,
    ImportPage,
    ImportRecord,
    ImportStatus,
    NewImport,
    Plan,
    Started,
    chunk_of,
)
from rowlock.storage.records import JobId, NewJob
from rowlock.storage.sqlite.callers import ApswCaller
from rowlock.storage.sqlite.jobs.enqueue import enqueue, enqueue_all_or_none
from rowlock.storage.sqlite.rows import Row, duration_micros, micros, moment_or_none, storable
from rowlock.storage.sqlite.sql import run, run_each
from rowlock.storage.sqlite.work import Worked

T = TypeVar("T")

_DAY_SECONDS = 24 * 3600
_AFTER_ALL_IDS = "g"
"""Sorts after every UUID."""


class Importing(Worked):
    """Store methods for imports, their chunks and their errors."""

    async def add_import(self, new: NewImport, job: NewJob) -> Added:
        return await self._write(lambda connection, now: _add(connection, now, new, job))

    async def get_import(self, import_id: ImportId) -> ImportRecord | None:
        found = await self._read(lambda connection, now: _records(connection, [_named(import_id)]))
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
        asked = {"type": type, "company_id": company_id, "status": status and status.value}
        asked |= {"before": checked_cursor(cursor) or _AFTER_ALL_IDS}
        name = listing(type, company_id, status)
        found = await self._read(
            lambda connection, now: _records(connection, _ids(run(connection, name, {**asked, "limit": limit + 1})))
        )
        return import_page(found, limit)

    async def changed_imports(self, since: datetime, limit: int) -> list[ImportRecord]:
        asked = {"since": micros(since), "limit": limit}
        return await self._read(
            lambda connection, now: _records(connection, _ids(run(connection, "changed_imports", asked)))
        )

    async def chunks(self, import_id: ImportId) -> list[ChunkRecord]:
        rows = await self._read(lambda connection, now: run(connection, "import_chunks", {"id": _named(import_id)}))
        return [chunk_record((*row[:11], moment_or_none(row[11]), row[12])) for row in rows]

    async def parts(self, import_id: ImportId, chunk: int) -> list[ChunkRecord]:
        return parts_of(await self.chunks(import_id), chunk)

    async def import_errors(self, import_id: ImportId, *, after_row: int, limit: int) -> ErrorPage:
        asked = {"id": _named(import_id), "after_row": after_row, "limit": limit + 1}
        return error_page(await self._read(lambda connection, now: run(connection, "import_errors", asked)), limit)

    async def start_import(self, import_id: ImportId, message: str, *, job_id: JobId | None = None) -> Started:
        asked = {"id": _named(import_id), "message": storable(message), "job_id": _job(job_id)}
        return await self._write(lambda connection, now: _start(connection, {**asked, "now": now}))

    async def note_import(
        self, import_id: ImportId, progress: int, message: str, *, job_id: JobId | None = None
    ) -> bool:
        asked = {"id": _named(import_id), "progress": progress, "message": storable(message), "job_id": _job(job_id)}
        return await self._write(lambda connection, now: bool(run(connection, "note_import", {**asked, "now": now})))

    async def cancel_import(self, import_id: ImportId) -> list[JobId] | None:
        asked = _ending(import_id, ImportStatus.CANCELLED, "Cancelled", None, None)

        def cancel(connection: apsw.Connection, now: int) -> list[JobId] | None:
            if not run(connection, "end_import", {**asked, "now": now}):
                return None
            return _ids(run(connection, "live_import_jobs", {"id": asked["id"]}))

        return await self._write(cancel)

    async def resume_import(self, import_id: ImportId, jobs: Mapping[int, NewJob]) -> bool:
        return await self._write(lambda connection, now: _resume(connection, now, _named(import_id), jobs))

    async def close_imports(self, limit: int) -> list[ImportRecord]:
        if not await self._read(lambda connection, now: run(connection, "dead_imports")):
            return []  # the usual case: do not wait for the write lock
        return await self._write(lambda connection, now: _close(connection, now, limit))

    async def cleanable_imports(self, days: float, limit: int) -> list[ImportRecord]:
        return await self._read(
            lambda connection, now: _records(connection, _older(connection, now, "cleanable_imports", days, limit))
        )

    async def trim_errors(self, import_id: ImportId, keep: int) -> None:
        asked = {"id": _named(import_id), "keep": keep}
        await self._write(lambda connection, now: run(connection, "trim_import_errors", asked))

    async def clean_import(self, import_id: ImportId, *, errors_kept: int | None = None) -> bool:
        return await self._write(lambda connection, now: _clean(connection, now, _named(import_id), errors_kept))

    async def prune_imports(self, days: float, limit: int) -> int:
        return await self._write(lambda connection, now: _prune(connection, now, days, limit))


class ImportingTransaction:
    """Import writes that commit together with the end of their job; the transaction holds the write lock throughout."""

    _now: Callable[[apsw.Connection], int]

    @abstractmethod
    async def _run(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run the work in the transaction."""

    async def plan_import(self, import_id: ImportId, plan: Plan, *, job_id: JobId) -> bool:
        asked = {"id": _named(import_id), "job_id": _job(job_id)}
        return await self._run(lambda connection: _plan(connection, self._now(connection), asked, plan))

    async def end_chunk(
        self, import_id: ImportId, index: int, result: ChunkResult, *, job_id: JobId | None = None
    ) -> ChunkEnd | None:
        return await self._run(
            lambda connection: _end_chunk(
                connection, self._now(connection), _named(import_id), index, result, _job(job_id)
            )
        )

    async def queue_finish(self, import_id: ImportId, job: NewJob) -> None:
        def queue(connection: apsw.Connection) -> None:
            now = self._now(connection)
            if run(connection, "queue_finish", {"id": _named(import_id), "job_id": job.id, "now": now}):
                enqueue_all_or_none(ApswCaller(connection), [job], now)

        await self._run(queue)

    async def begin_finish(self, import_id: ImportId, job_id: JobId) -> ImportRecord | None:
        asked = {"id": _named(import_id), "job_id": _job(job_id)}
        found = await self._run(
            lambda connection: _records(connection, _ids(run(connection, "finishing_import", asked)))
        )
        return found[0] if found else None

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
        asked = _ending(import_id, final(status), message, error, result, _job(job_id))
        return await self._run(
            lambda connection: bool(run(connection, "end_import", {**asked, "now": self._now(connection)}))
        )


def _named(import_id: ImportId) -> ImportId:
    """Return the id as stored, in lower case; for a malformed id "", which no import has."""
    return import_id.lower() if is_uuid(import_id) else ""


def _job(job_id: JobId | None) -> JobId | None:
    """Return the id as stored, in lower case; None stays None."""
    return job_id and job_id.lower()


def _ids(rows: list[Row]) -> list[str]:
    return [row[0] for row in rows]


def _records(connection: apsw.Connection, ids: list[ImportId]) -> list[ImportRecord]:
    """Return the records with these ids, in the order of the ids."""
    rows = run_each(connection, "import_record", [(import_id,) for import_id in ids])
    return [import_record((*row[:25], *map(moment_or_none, row[25:30]), row[30])) for row in rows]


def _ending(
    import_id: ImportId,
    status: ImportStatus,
    message: str,
    error: str | None,
    result: str | None,
    job_id: JobId | None = None,
) -> dict[str, Any]:
    said = {"message": storable(message), "error": error, "result": result}
    return {"id": _named(import_id), "status": status.value, "job_id": job_id, **said}


def _add(connection: apsw.Connection, now: int, new: NewImport, job: NewJob) -> Added:
    asked = {**asdict(new), "id": new.id.lower(), "file_name": storable(new.file_name), "job_id": job.id, "now": now}
    asked |= {"once": int(new.once), "scope": storable(new.scope)}
    created = run(connection, "add_import", asked)
    if created:
        enqueue(ApswCaller(connection), [job], now)
    (record,) = _records(connection, _ids(created or run(connection, "same_import", asked)))
    return Added(record, bool(created))


def _start(connection: apsw.Connection, asked: dict[str, Any]) -> Started:
    try:
        if run(connection, "start_import", asked):
            return Started.STARTED
    except apsw.ConstraintError:
        return Started.BUSY
    found = run(connection, "import_state", asked)
    if not found or found[0][0] != ImportStatus.RUNNING:
        return Started.OVER
    return Started.STARTED if found[0][1] is None else Started.PLANNED


def _resume(connection: apsw.Connection, now: int, import_id: ImportId, jobs: Mapping[int, NewJob]) -> bool:
    found = run(connection, "dead_import", {"id": import_id})
    if not found:
        return False
    total: int | None = found[0][0]
    waiting = [number for (number,) in run(connection, "waiting_chunks", {"id": import_id})]
    if set(jobs) != needed_indexes(total, waiting) or run(connection, "overtaken_import", {"id": import_id}):
        return False
    parent, finish = resumed_ends(total, jobs)
    try:
        run(connection, "resume_import", {"id": import_id, "parent": parent, "finish": finish, "now": now})
    except apsw.ConstraintError:
        return False  # another import of the same file exists, or one that excludes this one runs
    run_each(connection, "resume_chunk", [(job.id, import_id, index) for index, job in jobs.items()])
    enqueue(ApswCaller(connection), list(jobs.values()), now)
    return True


def _close(connection: apsw.Connection, now: int, limit: int) -> list[ImportRecord]:
    dead: dict[ImportId, Row] = {}
    for row in run(connection, "dead_imports"):
        dead.setdefault(row[0], row)
    closed = list(dead)[:limit]
    for import_id in closed:
        message, error = death(*dead[import_id][1:])
        ending = _ending(import_id, ImportStatus.FAILED, message, error, None)
        run(connection, "end_import", {**ending, "now": now})
    return _records(connection, closed)


def _older(connection: apsw.Connection, now: int, name: str, days: float, limit: int) -> list[ImportId]:
    before = now - duration_micros(days * _DAY_SECONDS)
    return _ids(run(connection, name, {"before": before, "limit": limit}))


def _clean(connection: apsw.Connection, now: int, import_id: ImportId, errors_kept: int | None) -> bool:
    if not run(connection, "clean_import", {"id": import_id, "now": now}):
        return False
    if errors_kept is not None:
        run(connection, "trim_import_errors", {"id": import_id, "keep": errors_kept})
    return True


def _prune(connection: apsw.Connection, now: int, days: float, limit: int) -> int:
    doomed = [(import_id,) for import_id in _older(connection, now, "prunable_imports", days, limit)]
    for name in ("forget_import_errors", "forget_import_chunks", "forget_import"):
        run_each(connection, name, doomed)
    return len(doomed)


def _plan(connection: apsw.Connection, now: int, asked: dict[str, Any], plan: Plan) -> bool:
    import_id = asked["id"]
    if not run(connection, "plan_import", {**asked, "total": len(plan.chunks), "meta": plan.meta, "now": now}):
        return False
    chunks = [(import_id, number, chunk.job.id, chunk.rows) for number, chunk in enumerate(plan.chunks)]
    run_each(connection, "add_chunk", chunks)
    _record(connection, now, "record_apart", import_id, -1, plan.refused, None)
    enqueue_all_or_none(ApswCaller(connection), [chunk.job for chunk in plan.chunks], now)
    return True


def _end_chunk(
    connection: apsw.Connection, now: int, import_id: ImportId, index: int, result: ChunkResult, job_id: JobId | None
) -> ChunkEnd | None:
    planned = run(connection, "planned_chunks", {"id": import_id})
    if not planned:
        return None
    apart = planned_index(index, planned[0][0]) == planned[0][0]
    name = "record_part" if index < 0 else "record_apart" if apart else "record_chunk"
    if not _record(connection, now, name, import_id, index, result, job_id):
        return None
    run(connection, "touch_import", {"id": import_id, "now": now})
    ((status, *standing),) = run(connection, "import_standing", {"id": import_id})
    return ChunkEnd(ImportStatus(status), *standing)


def _record(
    connection: apsw.Connection,
    now: int,
    name: str,
    import_id: ImportId,
    index: int,
    result: ChunkResult,
    job_id: JobId | None,
) -> bool:
    """Replace the recorded result of a chunk; returns False and changes nothing if another job owns the chunk.

    A part of a chunk is recorded once: it also returns False if the part is recorded already.
    """
    asked = {**chunk_columns(result), "id": import_id, "number": index, "now": now, "job_id": job_id}
    if name == "record_part":
        asked["chunk"] = chunk_of(index)
    if not run(connection, name, asked):
        return False
    run(connection, "forget_chunk_errors", (import_id, index))
    rows = error_columns(result.errors)
    run_each(connection, "add_chunk_error", [(import_id, index, *row) for row in rows])
    return True
