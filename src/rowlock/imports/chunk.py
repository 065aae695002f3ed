"""A chunk job: its rows, what became of each, and its own end are one commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from rowlock.errors import ImportFault, Permanent, Snooze, StoreUnavailable
from rowlock.imports.importer import ImportType
from rowlock.imports.jobs import chunk_path
from rowlock.imports.ledger import Ledger
from rowlock.imports.run import Run, hooked, run_of
from rowlock.imports.workshop import Workshop
from rowlock.jobs.job import Job
from rowlock.jobs.payload import loads
from rowlock.jobs.transaction import JobTransaction
from rowlock.storage.imports import ChunkEnd, ImportRecord, ImportStatus
from rowlock.storage.tables import Loaded

if TYPE_CHECKING:
    import polars as pl


_BUSY_SECONDS = 2.0
_SHOWN_MAX = 100


class ImportOver(Exception):
    """The import has ended meanwhile: nothing of this transaction is kept."""


async def load_chunk(shop: Workshop, job: Job, record: ImportRecord, index: int) -> dict[str, Any]:
    """Check and load the rows of a chunk, unless its import is over or the chunk was done already."""
    if record.status is not ImportStatus.RUNNING:
        return {"skipped": record.status.value}
    declared = shop.types.get(record.type)
    if declared is None:
        raise Permanent(f"no importer {record.type!r} is declared in this application")
    with shop.sandbox.postponed():
        return await _load(ChunkWork(shop, declared, record, index), job)


async def _load(work: ChunkWork, job: Job) -> dict[str, Any]:
    shop, declared, record, index = work.shop, work.declared, work.record, work.index
    frame = await work.rows()
    if declared.errors_max is not None and record.error_count + work.ledger.errors > declared.errors_max:
        return await _stop(job, declared, record, work.ledger)
    with suppress(ImportOver):
        async with begun(job) as tx:
            loaded = await work.load(frame, tx.store)
            end = await tx.store.end_chunk(record.id, index, work.ledger.result(loaded), job_id=job.id)
            if end is None:
                raise ImportOver
            tx.result = work.ledger.told
            await _go_on(shop, declared, record, end, tx.store)
        shop.log.info("import.chunk", id=record.id, chunk=index, **work.ledger.told)
        return {}
    return {"skipped": "the import is over, or another attempt has done this chunk"}


async def _stop(job: Job, declared: ImportType, record: ImportRecord, ledger: Ledger) -> dict[str, Any]:
    """End an import that has more errors than it may, before the rows of this chunk are loaded."""
    count = record.error_count + ledger.errors
    message = f"stopped after {count:,} errors; at most {declared.errors_max:,} are allowed"
    error = {"code": "too_many_errors", "message": message, "errors": ledger.first_errors(_SHOWN_MAX)}
    async with begun(job) as tx:
        told = orjson.dumps(error).decode()
        await tx.store.end_import(
            record.id, ImportStatus.FAILED, message=message, error=told, result=None, job_id=job.id
        )
        tx.result = {"stopped": message}
    return {}


@asynccontextmanager
async def begun(job: Job) -> AsyncIterator[JobTransaction]:
    """The job's transaction; where it cannot begin, the job comes again later, and no attempt is spent on waiting."""
    async with AsyncExitStack() as stack:
        try:
            tx = await stack.enter_async_context(job.transaction())
        except StoreUnavailable as busy:
            raise Snooze(_BUSY_SECONDS) from busy
        yield tx


async def _go_on(shop: Workshop, declared: ImportType, record: ImportRecord, end: ChunkEnd, tx: Any) -> None:
    """Let the import end where this chunk decides that it does."""
    if declared.errors_max is not None and end.errors > declared.errors_max:
        message = f"stopped after {end.errors:,} errors; at most {declared.errors_max:,} are allowed"
        error = orjson.dumps({"code": "too_many_errors", "message": message}).decode()
        await tx.end_import(record.id, ImportStatus.FAILED, message=message, error=error, result=None)
    elif end.completed == end.total:
        await tx.queue_finish(record.id, shop.jobs.finish(declared, record.id, record.company_id))


@dataclass(slots=True)
class ChunkWork:
    """The rows of one chunk on their way into the table."""

    shop: Workshop
    declared: ImportType
    record: ImportRecord
    index: int
    ledger: Ledger
    run: Run

    def __init__(self, shop: Workshop, declared: ImportType, record: ImportRecord, index: int) -> None:
        meta = loads(record.meta)
        self.shop, self.declared, self.record, self.index = shop, declared, record, index
        self.run = run_of(record, declared, shop.engine.store, chunk=index, into=meta.get("staged"))
        self.ledger = Ledger(declared, meta, shop.engine.settings.import_errors_max)

    async def rows(self) -> pl.DataFrame:
        """The rows that are to be loaded: read, checked, told apart from their duplicates, enriched, transformed."""
        from rowlock.imports.split import read_chunk

        importer, ledger = self.declared.importer, self.ledger
        try:
            path = chunk_path(ledger.meta["folder"], self.index)
            cells = await asyncio.to_thread(read_chunk, await self.shop.blobs.get(path))
        except (ValueError, OSError) as error:
            raise ImportFault(
                f"chunk {self.index} of import {self.record.id} is lost or damaged ({error}): upload the file again"
            ) from error
        frame = await asyncio.to_thread(ledger.begin, cells)
        frame = await hooked(importer.parse, frame, self.run)
        frame = await asyncio.to_thread(ledger.check, frame)
        if importer.parses or importer.hooked:
            for hook in (importer.enrich, importer.transform):
                frame = ledger.kept(await hooked(hook, frame, self.run), self.run, hook.__name__)
        return await asyncio.to_thread(ledger.table_rows, frame, self.run)

    async def load(self, frame: pl.DataFrame, tx: Any) -> Loaded:
        self.run._transaction = tx
        return await self.declared.importer.load(frame, self.run)
