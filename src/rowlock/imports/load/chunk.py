"""The chunk job: its rows, their outcomes and its own end are one commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from rowlock.errors import (
    ImportFault,
    ImportIsOver,
    Permanent,
    Snooze,
    StoreError,
    StoreUnavailable,
    TransactionTooLarge,
)
from rowlock.imports.import_context import ImportContext
from rowlock.imports.importer import ImportType
from rowlock.imports.jobs import chunk_path
from rowlock.imports.load.conflicts import until_it_commits
from rowlock.imports.load.ledger import PART_ROWS, Ledger
from rowlock.imports.load.stopped import STOPPED
from rowlock.imports.load.waiting_rows import WAITING, keep
from rowlock.imports.load.without_transactions import NotOurs, recorded
from rowlock.imports.read.source import ROW
from rowlock.imports.run import Run, hooked, in_hook, run_of
from rowlock.jobs.job import Job
from rowlock.jobs.payload import loads
from rowlock.jobs.transaction import JobTransaction
from rowlock.storage.imports import ChunkEnd, ChunkResult, Counts, ImportRecord, ImportStatus, part_index
from rowlock.storage.tables import Loaded

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

_BUSY_SECONDS = 2.0
_SHOWN_MAX = 100


class ImportOver(Exception):
    """The import has ended, or the chunk belongs to another job: the transaction is rolled back."""


async def load_chunk(context: ImportContext, job: Job, record: ImportRecord, index: int) -> dict[str, Any]:
    """Check and load the rows of a chunk, unless its import has ended or the chunk is done."""
    if record.status is not ImportStatus.RUNNING:
        return {"skipped": record.status.value}
    declared = context.types.get(record.type)
    if declared is None:
        raise Permanent(f"no importer {record.type!r} is declared in this application")
    if await context.engine.store.lacks_transactions():
        try:
            end = await recorded(context.engine.store, job, record, index)
        except NotOurs:
            return {"skipped": "another job loads this chunk"}
        if end is not None:
            async with begun(job, record, index) as tx:
                await _go_on(context, declared, record, end, tx.store)
            return {}
    work = ChunkWork(context, declared, record, index)
    with context.sandbox.postponed():
        try:
            # If a part is recorded, an earlier attempt found the chunk too large for one transaction.
            if not (work.ledger.meta.get("bounded") and await context.engine.store.parts(record.id, index)):
                return await _load(work, job)
        except TransactionTooLarge as error:
            context.log.info("import.divided", id=record.id, chunk=index, reason=str(error))
        return await _load_parts(work, job)


async def _load(work: ChunkWork, job: Job) -> dict[str, Any]:
    from rowlock.imports.read.partition import read_chunk

    context, declared, record, index = work.context, work.declared, work.record, work.index
    frame = await work.rows(await work.cells(read_chunk))
    if declared.errors_max is not None and record.error_count + work.ledger.errors > declared.errors_max:
        return await _stop(job, declared, record, index, work.ledger)
    with suppress(ImportOver, ImportIsOver):
        end, told = await until_it_commits(partial(_commit, work, job, frame))
        await trim(context, record, end.errors)
        context.log.info("import.chunk", id=record.id, chunk=index, **told)
        return {}
    return {"skipped": "the import is over, or another attempt has loaded this chunk"}


async def _commit(work: ChunkWork, job: Job, frame: pl.DataFrame) -> tuple[ChunkEnd, dict[str, int]]:
    """Load the rows and record their outcomes; raises ImportOver if the import ended or another job has the chunk."""
    context, record, index, ledger = work.context, work.record, work.index, work.ledger.copy()
    async with begun(job, record, index) as tx:
        loaded = await work.load(frame, tx.store)
        path = f"{ledger.meta['folder']}/{WAITING}-{index}-{job.id}-{job.lease}.arrow"
        waiting = await keep(context.blobs, path, work.run._waiting)
        end = await tx.store.end_chunk(record.id, index, ledger.result(loaded, waiting), job_id=job.id)
        if end is None:
            raise ImportOver
        tx.result = ledger.told
        await _go_on(context, work.declared, record, end, tx.store)
    return end, ledger.told


async def _load_parts(whole: ChunkWork, job: Job) -> dict[str, Any]:
    """Load a chunk that does not fit one transaction in several, each with its own line in the ledger.

    The last one also ends the chunk. An attempt continues after the parts that earlier ones recorded.
    """
    from rowlock.imports.read.partition import Parts

    context, declared, index = whole.context, whole.declared, whole.index
    parts = await whole.cells(Parts)
    done = await context.engine.store.parts(whole.record.id, index)
    number, start = len(done), sum(loads(part.notes)[PART_ROWS] for part in done)
    rows_max = parts.height // 2
    while True:
        record = await context.engine.store.get_import(whole.record.id)
        if record is None or record.status is not ImportStatus.RUNNING or job.cancelled:
            return {"skipped": "the import is over"}
        cells = parts.part(start, max(rows_max, 1))
        work = ChunkWork(context, declared, record, index)
        work.ledger.divided = True
        frame = await work.rows(cells)
        if declared.errors_max is not None and record.error_count + work.ledger.errors > declared.errors_max:
            return await _stop(job, declared, record, index, work.ledger)
        last = start + cells.height >= parts.height
        try:
            end, told = await until_it_commits(partial(_commit_part, work, job, frame, number, last))
        except (ImportOver, ImportIsOver):
            return {"skipped": "the import is over, or another attempt has loaded this part of the chunk"}
        except TransactionTooLarge as error:
            rows_max = cells.height // 2
            if rows_max == 0:
                raise ImportFault(f"row {cells[ROW][0]} does not fit one transaction: {error}") from error
            continue
        await trim(context, record, end.errors)
        context.log.info("import.part", id=record.id, chunk=index, part=number, **told)
        if last:
            return {}
        number, start = number + 1, start + cells.height


async def _commit_part(
    work: ChunkWork, job: Job, frame: pl.DataFrame, number: int, last: bool
) -> tuple[ChunkEnd, dict[str, int]]:
    context, record, index, ledger = work.context, work.record, work.index, work.ledger.copy()
    async with begun(job, record, index, ends=last) as tx:
        loaded = await work.load(frame, tx.store)
        result = ledger.result(loaded, part=True)
        end = await tx.store.end_chunk(record.id, part_index(index, number), result, job_id=job.id)
        if end is not None and last:
            end = await tx.store.end_chunk(record.id, index, ChunkResult(Counts()), job_id=job.id)
            tx.result = {"parts": number + 1}
        if end is None:
            raise ImportOver
        if last:
            await _go_on(context, work.declared, record, end, tx.store)
    return end, ledger.told


async def trim(context: ImportContext, record: ImportRecord, errors: int) -> None:
    """Delete errors beyond `import_errors_max`, after each chunk; if that fails, the cleanup of the import does it."""
    kept_max = context.engine.settings.import_errors_max
    if errors > kept_max:
        with suppress(StoreError):
            await context.engine.store.trim_errors(record.id, kept_max)


async def _stop(job: Job, declared: ImportType, record: ImportRecord, index: int, ledger: Ledger) -> dict[str, Any]:
    """Fail an import with more errors than `errors_max`, before the rows of this chunk are loaded."""
    message, error = too_many(declared, record.error_count, ledger, "its last chunk")
    async with begun(job, record, index) as tx:
        told = orjson.dumps(error).decode()
        await tx.store.end_import(
            record.id, ImportStatus.FAILED, message=message, error=told, result=None, job_id=job.id
        )
        tx.result = {"stopped": message}
    return {}


def too_many(declared: ImportType, before: int, ledger: Ledger, where: str) -> tuple[str, dict[str, Any]]:
    """Return the message and the error of an import with more errors than `errors_max`."""
    found = ledger.stopped(_SHOWN_MAX)
    message = f"stopped after {before + ledger.errors:,} errors; at most {declared.errors_max:,} are allowed"
    if (listed := len(found["rows"])) < found["failed"]:
        message += f"; of {found['failed']:,} rows with errors in {where}, {listed:,} are listed"
    if bare := found["withoutCells"]:
        message += f"; {bare:,} of the rows are listed without their cells, which are too large"
    return message, {
        "code": "too_many_errors",
        "message": message,
        "errors": ledger.first_errors(_SHOWN_MAX),
        STOPPED: found,
    }


@asynccontextmanager
async def begun(job: Job, record: ImportRecord, index: int = -1, *, ends: bool = True) -> AsyncIterator[JobTransaction]:
    """Begin the transaction of a step of an import (`index` -1: its parent job); if `ends`, the job ends with it.

    Raises Snooze if it cannot begin: the job is retried after 2 seconds, and waiting costs no attempt.
    """
    async with AsyncExitStack() as stack:
        try:
            tx = await stack.enter_async_context(
                JobTransaction(job, job._context, importing=(record.id, index), ends=ends)
            )
        except StoreUnavailable as busy:
            raise Snooze(_BUSY_SECONDS) from busy
        yield tx


async def _go_on(context: ImportContext, declared: ImportType, record: ImportRecord, end: ChunkEnd, tx: Any) -> None:
    """Fail the import if it has too many errors now, or enqueue the finish job if all chunks are done."""
    if declared.errors_max is not None and end.errors > declared.errors_max:
        message = f"stopped after {end.errors:,} errors; at most {declared.errors_max:,} are allowed"
        error = orjson.dumps({"code": "too_many_errors", "message": message}).decode()
        await tx.end_import(record.id, ImportStatus.FAILED, message=message, error=error, result=None)
    elif end.completed == end.total:
        await tx.queue_finish(record.id, context.jobs.finish(declared, record.id, record.company_id))


@dataclass(slots=True)
class ChunkWork:
    """Reads, checks and loads the rows of one chunk."""

    context: ImportContext
    declared: ImportType
    record: ImportRecord
    index: int
    ledger: Ledger
    run: Run

    def __init__(self, context: ImportContext, declared: ImportType, record: ImportRecord, index: int) -> None:
        meta = loads(record.meta)
        self.context, self.declared, self.record, self.index = context, declared, record, index
        self.run = run_of(record, declared, context.engine.store, chunk=index, into=meta.get("staged"))
        self.ledger = Ledger(declared, meta, context.engine.settings.import_errors_max)

    async def cells(self, read: Callable[[bytes], T]) -> T:
        """Return what `read` makes of the chunk file; raises ImportFault if the file is lost or damaged."""
        try:
            path = chunk_path(self.ledger.meta["folder"], self.index)
            return await asyncio.to_thread(read, await self.context.blobs.get(path))
        except (ValueError, OSError) as error:
            raise ImportFault(
                f"chunk {self.index} of import {self.record.id} is lost or damaged ({error}): upload the file again"
            ) from error

    async def rows(self, cells: pl.DataFrame) -> pl.DataFrame:
        """Return the rows to load: parsed, checked, enriched, transformed, and without duplicates."""
        importer, ledger = self.declared.importer, self.ledger
        frame = await asyncio.to_thread(ledger.begin, cells)
        if importer.parses:
            parsed = await hooked("parse", frame, self.run)
            with in_hook(self.run, "parse"):
                frame = ledger.parsed(frame, parsed, self.run)
        frame = await asyncio.to_thread(ledger.check, frame)
        if importer.parses or importer.hooked:
            for hook in ("enrich", "transform"):
                made = await hooked(hook, frame, self.run)
                with in_hook(self.run, hook):
                    frame = ledger.kept(made, self.run, hook)
        if importer.hooked:
            frame = await asyncio.to_thread(ledger.output, frame)
        return await asyncio.to_thread(ledger.table_rows, frame, self.run)

    async def load(self, frame: pl.DataFrame, tx: Any) -> Loaded:
        self.run._transaction = tx
        self.run._waiting.clear()
        with in_hook(self.run, "load"):
            return await self.declared.importer.load(frame, self.run)
