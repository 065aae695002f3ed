"""The parent job: has the file read and split, prepares the destination, and lets the chunks start, all at once."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from rowlock.errors import FileRefused, ImportFault, Permanent, Snooze
from rowlock.imports.chunk import begun
from rowlock.imports.destination import check_table
from rowlock.imports.fields import dump
from rowlock.imports.importer import ImportType, Policy
from rowlock.imports.jobs import chunk_path, upload_folder
from rowlock.imports.order import Found, Order
from rowlock.imports.run import ROW_COLUMN, Run, run_of
from rowlock.imports.workshop import Workshop
from rowlock.jobs.job import Job
from rowlock.jobs.payload import loads
from rowlock.storage.base import Store
from rowlock.storage.blobs import Blobs
from rowlock.storage.imports import ImportRecord, ImportStatus, Plan, PlannedChunk, Started
from rowlock.storage.tables import Mode

_BUSY_SECONDS = 2.0
_NOTE_SECONDS = 0.5
_READING = "reading the file"


async def plan_import(shop: Workshop, job: Job, record: ImportRecord) -> dict[str, Any]:
    """Plan an import, once; the end of this job, the plan, the chunk jobs and what `prepare` wrote are one commit."""
    declared = shop.types.get(record.type)
    store = shop.engine.store
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
        direct = await _fitting_table(shop, declared)
        folder = f"{upload_folder(record.id)}/{job.id}-{job.lease}"
        found = await _read(shop, job, declared, record, folder)
        return await _record(shop, job, declared, record, found, folder, direct)
    except ImportFault as refused:
        async with begun(job) as tx:
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
        shop.log.warning("import.refused", id=record.id, type=record.type, code=refused.code, reason=str(refused))
        return {}


async def _fitting_table(shop: Workshop, declared: ImportType) -> bool:
    """Whether the table is empty; raises FileRefused where it does not fit, or is missing and not to be created."""
    async with shop.engine.store.transaction() as transaction:
        table = await transaction.table(declared.into)
    if table is not None or not declared.create:
        check_table(declared, table)
    return table is None or table.empty


async def _read(shop: Workshop, job: Job, declared: ImportType, record: ImportRecord, folder: str) -> Found:
    """Have the file read in the sandbox, and put its chunks where every worker finds them."""
    s, store = shop.engine.settings, shop.engine.store
    noted = 0.0

    async def note(done: float) -> None:
        nonlocal noted
        if time.monotonic() - noted >= _NOTE_SECONDS:
            noted = time.monotonic()
            if not await store.note_import(record.id, 1 + int(8 * done), f"{_READING}: {done:.0%}", job_id=job.id):
                raise ImportFault("the import is not running any more")

    from rowlock.imports.resplit import resplit

    try:
        path = await shop.blobs.local(record.path)
    except FileNotFoundError:
        raise FileRefused("the uploaded file is gone: upload it again", code="file_missing") from None
    scratch = Path(tempfile.mkdtemp(prefix="rowlock-plan-", dir=shop.blobs.scratch))
    try:
        order = Order(
            str(path),
            record.file_name,
            "xlsx" if record.path.endswith(".xlsx") else "csv",
            loads(record.options).get("sheet"),
            dump(declared.fields),
            [] if declared.late else [field.name for field in declared.partition],
            str(scratch),
            s.import_chunk_bytes,
            s.import_chunks_max,
            s.import_errors_max,
            s.import_columns_max,
            s.import_cell_chars_max,
            s.import_unpacked_bytes_max,
            s.import_plan_memory_mb,
            int(s.import_plan_seconds) + 1,
            record.size_bytes,
        )
        found = await shop.sandbox.plan(order, s.import_plan_seconds, note)
        if declared.late:
            run = run_of(record, declared, store)
            if declared.importer.parses:
                await _try_prepare(run, store)
            found = await resplit(run, declared, found, scratch, s.import_chunk_bytes)
        await _put_all(shop.blobs, {chunk_path(folder, n): Path(chunk.path) for n, chunk in enumerate(found.chunks)})
        return found
    finally:
        with suppress(OSError):
            shutil.rmtree(scratch)


async def _put_all(blobs: Blobs, files: Mapping[str, Path]) -> None:
    """Several at a time: files that become durable together cost the disk one wait."""
    putting = [blobs.put_file(name, path) for name, path in files.items()]
    for failure in await asyncio.gather(*putting, return_exceptions=True):
        if failure is not None:
            raise failure


async def _record(
    shop: Workshop, job: Job, declared: ImportType, record: ImportRecord, found: Found, folder: str, direct: bool
) -> dict[str, Any]:
    run = run_of(record, declared, shop.engine.store)
    run.direct = direct
    count = len(found.chunks)
    staged = None
    wiped = None
    if run.dry_run:
        wiped = await _try_prepare(run, shop.engine.store)
    async with begun(job) as tx:
        if not run.dry_run:
            if declared.create and await tx.store.table(declared.into) is None:
                await tx.store.create_table(declared.into, declared.columns, declared.key)
            run._transaction = tx.store
            await declared.importer.prepare(run)
            if declared.policy is Policy.ALL_OR_NOTHING:
                staged = f"rowlock_stage_{record.id.replace('-', '')}"
                await tx.store.drop_table(staged)
                await tx.store.create_table(staged, [*declared.columns, ROW_COLUMN], ())
            elif declared.mode is Mode.REPLACE:
                await tx.store.wipe(declared.into, run.fixed)
        run.check()
        meta = _meta(declared, found, folder) | {"values": run.values, "direct": direct, "staged": staged}
        if wiped is not None:
            meta["wouldDelete"] = wiped
        jobs = [shop.jobs.chunk(declared, record.id, record.company_id, i, count, folder) for i in range(count)]
        planned = [PlannedChunk(new, chunk.rows) for new, chunk in zip(jobs, found.chunks, strict=True)]
        secret = any(field.secret for field in declared.fields)
        plan = Plan(planned, orjson.dumps(meta).decode(), found.refused(secret))
        if not await tx.store.plan_import(record.id, plan, job_id=job.id):
            raise Permanent(f"import {record.id} was cancelled or planned by another attempt; nothing was kept")
        if not planned:
            await tx.store.queue_finish(record.id, shop.jobs.finish(declared, record.id, record.company_id))
        tx.result = {"chunks": count, "rows": found.rows}
    shop.log.info("import.planned", id=record.id, type=record.type, rows=found.rows, chunks=count)
    return {}


async def _try_prepare(run: Run, store: Store) -> int | None:
    """Find out what `prepare` hands to the chunks, and how many rows a replace would wipe; undo all of it."""
    wiped = None
    with suppress(_Undone):
        async with store.transaction() as transaction:
            run._transaction = transaction
            assert run._declared is not None
            declared = run._declared
            await declared.importer.prepare(run)
            if run.dry_run and declared.mode is Mode.REPLACE and await transaction.table(declared.into) is not None:
                wiped = await transaction.wipe(declared.into, run.fixed)
            raise _Undone
    run._transaction = None
    return wiped


class _Undone(Exception):
    """What was done in this transaction was only to see whether it can be done."""


def _meta(declared: ImportType, found: Found, folder: str) -> dict[str, Any]:
    """How the file was read: for people to see, and for its chunks to go by."""
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
