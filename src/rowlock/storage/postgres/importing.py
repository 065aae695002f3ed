"""Imports in the PostgreSQL store: records, chunks and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import asyncpg

from rowlock.clock import Clock
from rowlock.errors import StoreError
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
    may_be,
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
from rowlock.storage.postgres.caller import enqueue_on
from rowlock.storage.postgres.connection import SQL, Connections, translated_errors
from rowlock.storage.postgres.listen import Notifier
from rowlock.storage.postgres.rows import clean, columns, receipts
from rowlock.storage.records import JobId, NewJob

_ROUNDS = 5  # a duplicate can end between the conflict and the look-up
_IN_THE_WAY = ("imports_once", "imports_exclusive")


class _Overtaken(Exception):
    """Another import of the same scope has started since."""


class Importing:
    """The verbs for import records."""

    _connections: Connections
    _notifier: Notifier
    clock: Clock

    @property
    def _now(self) -> datetime | None:
        return self.clock.now()

    async def add_import(self, new: NewImport, job: NewJob) -> Added:
        asked: list[Any] = [
            new.id,
            new.type,
            clean(new.file_name),
            new.path,
            new.sha256,
            new.size_bytes,
            new.company_id,
        ]
        asked += [new.project_id, new.user_id, new.options, new.once, clean(new.scope), job.id, self._now]
        same = (new.id, new.type, new.company_id, new.sha256, new.once)
        created: list[Any] = []
        async with self._connections.connection(transaction=True) as own:
            for _ in range(_ROUNDS):
                if created := await own.fetch(SQL["add_import"], *asked):
                    receipts([job], await own.fetch(SQL["enqueue"], *columns([job], False, self._now)))
                if found := created or await own.fetch(SQL["same_import"], *same):
                    break
            else:
                raise StoreError(f"{new.file_name!r} is, and is not, a duplicate: imports of it keep ending; try again")
            (row,) = await own.fetch(SQL["import_records"], [found[0][0]])
        if created:
            # After the commit: NOTIFY inside the transaction serializes all commits.
            self._notifier.ring({job.queue})
        return Added(import_record(row), bool(created))

    async def get_import(self, import_id: ImportId) -> ImportRecord | None:
        found = await self._imports([import_id]) if is_uuid(import_id) else []
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
        asked = (checked_cursor(cursor), limit + 1, type, company_id, status)
        rows = await self._connections.fetch(listing(type, company_id, status), *asked)
        return import_page(await self._imports([row[0] for row in rows]), limit)

    async def changed_imports(self, since: datetime, limit: int) -> list[ImportRecord]:
        rows = await self._connections.fetch("changed_imports", since, limit)
        return await self._imports([row[0] for row in rows])

    async def chunks(self, import_id: ImportId) -> list[ChunkRecord]:
        rows = await self._connections.fetch("import_chunks", import_id) if is_uuid(import_id) else []
        return [chunk_record(row) for row in rows]

    async def parts(self, import_id: ImportId, chunk: int) -> list[ChunkRecord]:
        return parts_of(await self.chunks(import_id), chunk)

    async def import_errors(self, import_id: ImportId, *, after_row: int, limit: int) -> ErrorPage:
        asked = (import_id, after_row, limit + 1)
        return error_page(await self._connections.fetch("import_errors", *asked) if is_uuid(import_id) else [], limit)

    async def start_import(self, import_id: ImportId, message: str, *, job_id: JobId | None = None) -> Started:
        if not may_be(import_id, job_id):
            return Started.OVER
        with translated_errors(self._connections.url):
            try:
                async with self._connections.transaction() as own:
                    if await own.fetch(SQL["start_import"], import_id, clean(message), self._now, job_id):
                        return Started.STARTED
                    found = await own.fetch(SQL["import_state"], import_id, job_id)
            except asyncpg.UniqueViolationError as error:
                if error.constraint_name not in _IN_THE_WAY:
                    raise
                return Started.BUSY
        if not found or found[0]["status"] != ImportStatus.RUNNING:
            return Started.OVER
        return Started.STARTED if found[0]["total_chunks"] is None else Started.PLANNED

    async def note_import(
        self, import_id: ImportId, progress: int, message: str, *, job_id: JobId | None = None
    ) -> bool:
        asked = (import_id, progress, clean(message), self._now, job_id)
        return may_be(import_id, job_id) and bool(await self._connections.fetch("note_import", *asked))

    async def cancel_import(self, import_id: ImportId) -> list[JobId] | None:
        if not is_uuid(import_id):
            return None
        asked = (import_id, ImportStatus.CANCELLED, "Cancelled", None, None, self._now, None)
        async with self._connections.connection(transaction=True) as own:
            if not await own.fetch(SQL["end_import"], *asked):
                return None
            # A separate statement: it sees the chunks whose end the one above waited for.
            return [row[0] for row in await own.fetch(SQL["live_import_jobs"], import_id)]

    async def resume_import(self, import_id: ImportId, jobs: Mapping[int, NewJob]) -> bool:
        if not is_uuid(import_id):
            return False
        with translated_errors(self._connections.url):
            try:
                resumed = await self._resume(import_id, jobs)
            except asyncpg.UniqueViolationError as error:
                if error.constraint_name not in _IN_THE_WAY:
                    raise
                return False
            except _Overtaken:
                return False
        if resumed:
            self._notifier.ring({job.queue for job in jobs.values()})
        return resumed

    async def _resume(self, import_id: ImportId, jobs: Mapping[int, NewJob]) -> bool:
        async with self._connections.transaction() as own:
            if not (held := await own.fetch(SQL["hold_dead_import"], import_id)):
                return False
            total: int | None = held[0][0]
            waiting = [row[0] for row in await own.fetch(SQL["waiting_chunks"], import_id)]
            if set(jobs) != needed_indexes(total, waiting):
                return False
            parent, finish = resumed_ends(total, jobs)
            await own.fetch(SQL["resume_import"], import_id, parent, finish, self._now)
            # No import of its scope can run beside it now, so this sees all that have started.
            if await own.fetch(SQL["overtaken_import"], import_id):
                raise _Overtaken
            await own.fetch(SQL["resume_chunks"], import_id, list(jobs), [job.id for job in jobs.values()])
            new = list(jobs.values())
            receipts(new, await own.fetch(SQL["enqueue"], *columns(new, False, self._now)))
            return True

    async def close_imports(self, limit: int) -> list[ImportRecord]:
        found = await self._connections.fetch("dead_imports", None, limit)
        if not found:
            return []  # the usual case: one statement
        ids = [row[0] for row in found]
        async with self._connections.connection(transaction=True) as own:
            await own.fetch(SQL["hold_imports"], ids)
            # Again, now that no other process can end or resume them.
            dead = await own.fetch(SQL["dead_imports"], ids, limit)
            told = [death(*row[1:]) for row in map(tuple, dead)]
            messages, errors = [message for message, _ in told], [error for _, error in told]
            args = ([row[0] for row in dead], messages, errors, self._now)
            closed = await own.fetch(SQL["close_imports"], *args)
            rows = await own.fetch(SQL["import_records"], sorted(row[0] for row in closed))
        return [import_record(row) for row in rows]

    async def cleanable_imports(self, days: float, limit: int) -> list[ImportRecord]:
        rows = await self._connections.fetch("cleanable_imports", days, limit, self._now)
        return await self._imports([row[0] for row in rows])

    async def trim_errors(self, import_id: ImportId, keep: int) -> None:
        if is_uuid(import_id):
            await self._connections.fetch("trim_import_errors", import_id, keep)

    async def clean_import(self, import_id: ImportId, *, errors_kept: int | None = None) -> bool:
        if not is_uuid(import_id):
            return False
        async with self._connections.connection(transaction=True) as own:
            if not await own.fetch(SQL["clean_import"], import_id, self._now):
                return False
            if errors_kept is not None:
                await own.fetch(SQL["trim_import_errors"], import_id, errors_kept)
            return True

    async def prune_imports(self, days: float, limit: int) -> int:
        return int(await self._connections.value("prune_imports", days, limit, self._now))

    async def _imports(self, ids: Sequence[Any]) -> list[ImportRecord]:
        """Returns the records with these ids, in the order of the ids."""
        return [import_record(row) for row in await self._connections.fetch("import_records", ids)] if ids else []


class _Said:
    """A chunk's result, as arguments of the statements."""

    def __init__(self, result: ChunkResult) -> None:
        self.chunk = [*chunk_columns(result).values()]
        self.errors = [list(column) for column in zip(*error_columns(result.errors), strict=True)]


class ImportingTransaction:
    """The import verbs inside a transaction, committed together with the end of the import's job."""

    connection: Any
    clock: Clock
    _url: str

    async def plan_import(self, import_id: ImportId, plan: Plan, *, job_id: JobId) -> bool:
        if not may_be(import_id, job_id):
            return False
        now, jobs = self.clock.now(), [chunk.job for chunk in plan.chunks]
        with translated_errors(self._url):
            if not await self.connection.fetch(SQL["plan_import"], import_id, len(jobs), plan.meta, now, job_id):
                return False
            rows = [chunk.rows for chunk in plan.chunks]
            await self.connection.fetch(SQL["add_chunks"], import_id, [job.id for job in jobs], rows)
            await self._record("record_apart", import_id, -1, _Said(plan.refused), None)
            if jobs:
                await enqueue_on(self.connection, jobs, now)
        return True

    async def end_chunk(
        self, import_id: ImportId, index: int, result: ChunkResult, *, job_id: JobId | None = None
    ) -> ChunkEnd | None:
        if not is_uuid(import_id):
            return None
        said = _Said(result)  # before the lock, which blocks other chunks
        with translated_errors(self._url):
            if not (held := await self.connection.fetch(SQL["hold_import"], import_id)):
                return None
            apart = planned_index(index, held[0][0]) == held[0][0]
            name = "record_part" if index < 0 else "record_apart" if apart else "record_chunk"
            if not await self._record(name, import_id, index, said, job_id):
                return None
            await self.connection.fetch(SQL["touch_import"], import_id, self.clock.now())
            ((status, *standing),) = await self.connection.fetch(SQL["import_standing"], import_id)
        return ChunkEnd(ImportStatus(status), *standing)

    async def queue_finish(self, import_id: ImportId, job: NewJob) -> None:
        now = self.clock.now()
        with translated_errors(self._url):
            if is_uuid(import_id) and await self.connection.fetch(SQL["queue_finish"], import_id, job.id, now):
                await enqueue_on(self.connection, [job], now)

    async def begin_finish(self, import_id: ImportId, job_id: JobId) -> ImportRecord | None:
        if not may_be(import_id, job_id):
            return None
        with translated_errors(self._url):
            if not await self.connection.fetch(SQL["hold_finish"], import_id, job_id):
                return None
            # Separate statements: they see what the one above waited for.
            if await self.connection.fetch(SQL["waiting_chunks"], import_id):
                return None
            (row,) = await self.connection.fetch(SQL["import_records"], [import_id])
        return import_record(row)

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
        asked = (import_id, final(status), clean(message), error, result, self.clock.now(), job_id)
        if not may_be(import_id, job_id):
            return False
        with translated_errors(self._url):
            if job_id is not None:
                # Without this lock the statement could see the chunks as they were before a concurrent resume.
                await self.connection.fetch(SQL["hold_imports"], [import_id])
            return bool(await self.connection.fetch(SQL["end_import"], *asked))

    async def _record(self, name: str, import_id: ImportId, index: int, said: _Said, job_id: Any) -> bool:
        """Replaces the recorded result of a chunk. Returns False and does nothing if the chunk is another job's."""
        if job_id is not None and not is_uuid(job_id):
            return False
        asked = (import_id, index, *said.chunk, self.clock.now(), job_id)
        if name == "record_part":
            asked += (chunk_of(index),)
        if not await self.connection.fetch(SQL[name], *asked):
            return False
        await self.connection.fetch(SQL["forget_chunk_errors"], import_id, index)
        if said.errors:
            await self.connection.fetch(SQL["add_chunk_errors"], import_id, index, *said.errors)
        return True
