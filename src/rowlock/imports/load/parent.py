"""The parent job: has the file read and split, prepares the destination, and enqueues all chunk jobs at once."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from rowlock.errors import FileRefused, ImportFault, Permanent, Snooze
from rowlock.imports.fields import dump
from rowlock.imports.import_context import ImportContext
from rowlock.imports.importer import ImportType
from rowlock.imports.jobs import chunk_path, upload_folder
from rowlock.imports.load.chunk import begun
from rowlock.imports.load.conflicts import until_it_commits
from rowlock.imports.load.destination import check_table
from rowlock.imports.load.strategy import Strategy, check_bounds, strategy_of
from rowlock.imports.load.without_transactions import NOTICE, check_possible, refusing_writes
from rowlock.imports.read.plan_request import Found, Order
from rowlock.imports.run import ROW_COLUMN, Run, in_hook, run_of
from rowlock.jobs.job import Job
from rowlock.jobs.payload import loads
from rowlock.storage.blobs import Blobs
from rowlock.storage.contract import Store
from rowlock.storage.imports import (
    ImportRecord,
    ImportStatus,
    ImportStep,
    Plan,
    PlannedChunk,
    Started,
    TransactionBounds,
)
from rowlock.storage.tables import FoundTable, Mode

_BUSY_SECONDS = 2.0
_NOTE_SECONDS = 0.5
_READING = "reading the file"


async def plan_import(context: ImportContext, job: Job, record: ImportRecord) -> dict[str, Any]:
    """Plan an import once; the end of this job, the plan, the chunk jobs and the writes of `prepare` are one commit."""
    declared = context.types.get(record.type)
    store = context.engine.store
    match await store.start_import(record.id, _READING, job_id=job.id):
        case Started.PLANNED | Started.OVER:
            return {"planned": False}
        case Started.BUSY:
            raise Snooze(_BUSY_SECONDS)
        case Started.STARTED:
            pass
    try:
        if declared is None:
            raise FileRefused(
                f"no importer {record.type!r} is declared in this application", code="unknown_import_type"
            )
        await check_possible(store, declared)
        table = await _fitting_table(context, declared)
        folder = f"{upload_folder(record.id)}/{job.id}-{job.lease}"
        bounds = await store.transaction_bounds()
        way = await strategy_of(store, declared, bounds)
        found, size_bytes = await _read(context, job, declared, record, folder, bounds)
        if bounds is not None and way is Strategy.STAGED:
            check_bounds(declared, found, size_bytes, bounds)
        bounded = bounds is not None
        return await until_it_commits(
            partial(_record, context, job, declared, record, found, folder, way, table, bounded=bounded)
        )
    except ImportFault as refused:
        async with begun(job, record) as tx:
            more = getattr(refused, "more", {})
            error = {**more, "code": refused.code, "message": str(refused)}
            await tx.store.end_import(
                record.id,
                ImportStatus.FAILED,
                message=str(refused),
                error=orjson.dumps(error).decode(),
                result=None,
                job_id=job.id,
            )
            tx.result = {"status": ImportStatus.FAILED.value, "code": refused.code}
        context.log.warning("import.refused", id=record.id, type=record.type, code=refused.code, reason=str(refused))
        return {}


async def _fitting_table(context: ImportContext, declared: ImportType) -> FoundTable | None:
    """Return the table, None if it is to be created; raises FileRefused if it does not fit or must exist."""
    async with context.engine.store.reading() as transaction:
        table = await transaction.table(declared.into)
    if table is not None or not declared.create:
        check_table(declared, table)
    return table


async def _read(
    context: ImportContext,
    job: Job,
    declared: ImportType,
    record: ImportRecord,
    folder: str,
    bounds: TransactionBounds | None,
) -> tuple[Found, int]:
    """Have the file read in the sandbox and store its chunks for all workers; returns them and their size in bytes."""
    s, store = context.engine.settings, context.engine.store
    noted = 0.0

    async def note(done: float) -> None:
        nonlocal noted
        if time.monotonic() - noted >= _NOTE_SECONDS:
            noted = time.monotonic()
            if not await store.note_import(record.id, 1 + int(8 * done), f"{_READING}: {done:.0%}", job_id=job.id):
                raise ImportFault("the import is no longer running")

    from rowlock.imports.load.repartition import resplit

    try:
        path = await context.blobs.local(record.path)
    except FileNotFoundError:
        raise FileRefused("the uploaded file was deleted: upload it again", code="file_missing") from None
    chunk_bytes, rows_max = s.import_chunk_bytes, None
    if bounds is not None:
        chunk_bytes, rows_max = min(chunk_bytes, bounds.chunk_bytes), bounds.chunk_rows
    scratch = Path(tempfile.mkdtemp(prefix="rowlock-plan-", dir=context.blobs.scratch))
    try:
        order = Order(
            str(path),
            record.file_name,
            "xlsx" if record.path.endswith(".xlsx") else "csv",
            loads(record.options).get("sheet"),
            dump(declared.fields),
            [] if declared.late else [field.name for field in declared.partition],
            str(scratch),
            chunk_bytes,
            s.import_chunks_max,
            s.import_errors_max,
            s.import_columns_max,
            s.import_cell_chars_max,
            s.import_unpacked_bytes_max,
            s.import_plan_memory_mb,
            int(s.import_plan_seconds) + 1,
            record.size_bytes,
            rows_max,
        )
        found = await context.sandbox.plan(order, s.import_plan_seconds, note)
        if declared.late:
            run = run_of(record, declared, store)
            if declared.importer.parses:
                await _try_prepare(run, store, job)
            found = await resplit(run, declared, found, scratch, chunk_bytes, rows_max)
        files = {chunk_path(folder, n): Path(chunk.path) for n, chunk in enumerate(found.chunks)}
        size_bytes = await asyncio.to_thread(lambda: sum(path.stat().st_size for path in files.values()))
        await _put_all(context.blobs, files)
        return found, size_bytes
    finally:
        with suppress(OSError):
            shutil.rmtree(scratch)


async def _put_all(blobs: Blobs, files: Mapping[str, Path]) -> None:
    """Store the files concurrently: files that become durable together cost one wait for the disk."""
    putting = [blobs.put_file(name, path) for name, path in files.items()]
    for failure in await asyncio.gather(*putting, return_exceptions=True):
        if failure is not None:
            raise failure


async def _record(
    context: ImportContext,
    job: Job,
    declared: ImportType,
    record: ImportRecord,
    found: Found,
    folder: str,
    way: Strategy,
    table: FoundTable | None,
    *,
    bounded: bool,
) -> dict[str, Any]:
    run = run_of(record, declared, context.engine.store)
    run.direct = direct = table is None or table.empty
    count = len(found.chunks)
    staged = None
    wiped = None
    if run.dry_run:
        wiped = await _try_prepare(run, context.engine.store, job)
    async with begun(job, record) as tx:
        if not run.dry_run:
            if declared.create and await tx.store.table(declared.into) is None:
                await tx.store.create_table(declared.into, declared.columns, declared.key)
            run._transaction = tx.store
            with in_hook(run, "prepare"):
                await declared.importer.prepare(run)
            if way is Strategy.STAGED:
                staged = tx.store.staging_table(record.id)
                await tx.store.drop_table(staged)
                await tx.store.create_table(staged, [*declared.columns, ROW_COLUMN], ())
            elif way is Strategy.WIPED:
                await tx.store.wipe(declared.into, run.fixed)
                await tx.store.check_references(declared.into)
        run.check()
        waits = table is not None and table.refers_to_itself and staged is None
        meta = _meta(declared, found, folder) | {"values": run.values, "direct": direct, "staged": staged}
        meta |= {"bounded": bounded, "inPlace": way is Strategy.IN_PLACE and not run.dry_run}
        meta |= {"waits": True} if waits else {}
        if not run.dry_run and await context.engine.store.lacks_transactions():
            meta["notices"] = [*meta["notices"], NOTICE]
        if wiped is not None:
            meta["wouldDelete"] = wiped
        jobs = [context.jobs.chunk(declared, record.id, record.company_id, i, count, folder) for i in range(count)]
        planned = [PlannedChunk(new, chunk.rows) for new, chunk in zip(jobs, found.chunks, strict=True)]
        secret = any(field.secret for field in declared.fields)
        plan = Plan(planned, orjson.dumps(meta).decode(), found.refused(secret))
        if not await tx.store.plan_import(record.id, plan, job_id=job.id):
            raise Permanent(
                f"import {record.id} was cancelled or planned by another attempt; this attempt changed nothing"
            )
        if not planned:
            await tx.store.queue_finish(record.id, context.jobs.finish(declared, record.id, record.company_id))
        tx.result = {"chunks": count, "rows": found.rows}
    context.log.info("import.planned", id=record.id, type=record.type, rows=found.rows, chunks=count)
    return {}


async def _try_prepare(run: Run, store: Store, job: Job) -> int | None:
    """Run `prepare` for the values of the chunks, roll it back, and return how many rows a dry run would wipe."""
    wiped = None
    declared = run._declared
    assert declared is not None
    with suppress(_Undone):
        async with store.import_step(
            ImportStep(run.id, -1, job_id=job.id, owner="", lease=job.lease, trial=True)
        ) as transaction:
            run._transaction = transaction
            with refusing_writes(declared), in_hook(run, "prepare"):
                await declared.importer.prepare(run)
            if run.dry_run and declared.mode is Mode.REPLACE and await transaction.table(declared.into) is not None:
                wiped = await transaction.wipe(declared.into, run.fixed)
            raise _Undone
    run._transaction = None
    return wiped


class _Undone(Exception):
    """Rolls back a transaction that was only a trial."""


def _meta(declared: ImportType, found: Found, folder: str) -> dict[str, Any]:
    """Return how the file was read, for display and for the chunk jobs."""
    return {
        "strategy": declared.strategy,
        "chunkCount": len(found.chunks),
        "rows": found.rows,
        "headerRow": found.header_row,
        "header": found.header,
        "columns": found.columns,
        "unknownColumns": found.unknown,
        "typed": found.typed,
        "file": found.about,
        "notices": found.notices,
        "folder": folder,
    }
