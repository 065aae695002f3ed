"""The finish job: merges what was staged, sees that the ledger sums up, ends the import, and clears its files away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson

from rowlock.errors import ImportFault, Permanent, RowlockError
from rowlock.imports.importer import ImportType
from rowlock.imports.run import SAMPLE_ROWS, Run, run_of
from rowlock.imports.sweep import sweep
from rowlock.imports.workshop import Workshop
from rowlock.jobs.job import Job
from rowlock.jobs.payload import loads
from rowlock.storage.base import Store, StoreTransaction
from rowlock.storage.imports import (
    ChunkResult,
    Counts,
    ErrorGroup,
    ErrorRow,
    ImportRecord,
    ImportStatus,
    RowError,
)
from rowlock.storage.tables import Loaded, Mode


class _Unkept(Exception):
    """Some rows were refused, and all or nothing was asked for."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded


async def finish_import(shop: Workshop, job: Job, record: ImportRecord) -> dict[str, Any]:
    """End an import whose chunks are all done."""
    if record.status is not ImportStatus.RUNNING:
        return {"skipped": record.status.value}
    declared = shop.types.get(record.type)
    if declared is None:
        raise Permanent(f"no importer {record.type!r} is declared in this application")
    try:
        async with job.transaction() as tx:
            tx.result = await _end(shop, declared, record, tx.store)
    except _Unkept as unkept:
        async with job.transaction() as tx:
            tx.result = await _refuse(record, loads(record.meta), unkept.loaded, tx.store)
    ended = await shop.engine.store.get_import(record.id)
    if ended is not None and ended.status is ImportStatus.SUCCEEDED:
        with suppress(RowlockError):  # the sweeper comes by
            await sweep(shop, record)
    shop.log.info("import.ended", id=record.id, type=record.type, status=ended and ended.status.value)
    return {}


async def _end(shop: Workshop, declared: ImportType, record: ImportRecord, tx: StoreTransaction) -> dict[str, Any]:
    meta = loads(record.meta)
    run = run_of(record, declared, shop.engine.store)
    run._transaction = tx
    counts = record.counts
    await tx.trim_errors(record.id, shop.engine.settings.import_errors_max)
    if meta.get("staged"):
        if record.error_count:
            return await _refuse(record, meta, Loaded(), tx)
        merged = await _merge(run, declared, record, meta, tx)
        counts = _sum(counts, merged)
    if not counts.balanced or counts.rows != meta["rows"]:
        message = f"the file has {meta['rows']:,} rows, and {counts.rows:,} are accounted for: {counts}"
        await _fail(record, "ledger_mismatch", message, tx)
        return {"status": ImportStatus.FAILED.value}
    extra = None if run.dry_run else await declared.importer.finish(run)
    result = _told(counts) | ({"finish": dict(extra)} if isinstance(extra, Mapping) else {})
    if run.dry_run:
        result |= {"dryRun": True} | await _preview(shop.engine.store, record)
    message = _summary(counts, run)
    text = orjson.dumps(result, default=str).decode()
    await tx.end_import(record.id, ImportStatus.SUCCEEDED, message=message, error=None, result=text)
    return {"status": ImportStatus.SUCCEEDED.value}


async def _merge(
    run: Run, declared: ImportType, record: ImportRecord, meta: Mapping[str, Any], tx: StoreTransaction
) -> Counts:
    if declared.mode is Mode.REPLACE:
        await tx.wipe(declared.into, run.fixed)
    loaded = await tx.merge(run.how, meta["staged"])
    if loaded.refused:
        raise _Unkept(loaded)
    await tx.drop_table(meta["staged"])
    rows = loaded.inserted + loaded.updated + loaded.unchanged
    counts = Counts(rows, loaded.inserted, loaded.updated, loaded.unchanged)
    if await tx.end_chunk(record.id, meta["chunkCount"], ChunkResult(counts)) is None:
        raise ImportFault(f"import {record.id} is over; nothing was merged")
    return counts


async def _refuse(
    record: ImportRecord, meta: Mapping[str, Any], loaded: Loaded, tx: StoreTransaction
) -> dict[str, Any]:
    """All or nothing, and not all: nothing."""
    if loaded.refused:
        groups = Counter((refused.column, refused.code) for refused in loaded.refused)
        errors = [ErrorRow(r.row, [RowError(r.row, r.column, r.code, r.reason)], []) for r in loaded.refused]
        counts = Counts(rows=len(errors), invalid=len(errors))
        told = ChunkResult(counts, [ErrorGroup(column, code, n) for (column, code), n in groups.items()], errors)
        await tx.end_chunk(record.id, meta["chunkCount"], told)
    await tx.drop_table(meta["staged"])
    count = record.error_count + len(loaded.refused)
    message = f"nothing was loaded: {count:,} error{'s' if count != 1 else ''}, and all rows or none were asked for"
    await _fail(record, "not_all_rows_valid", message, tx)
    return {"status": ImportStatus.FAILED.value}


async def _fail(record: ImportRecord, code: str, message: str, tx: StoreTransaction) -> None:
    error = orjson.dumps({"code": code, "message": message}).decode()
    await tx.end_import(record.id, ImportStatus.FAILED, message=message, error=error, result=None)


async def _preview(store: Store, record: ImportRecord) -> dict[str, Any]:
    """What a dry run found out: how often each column would change, and some rows before and after."""
    changed, sample = Counter[str](), list[dict[str, Any]]()
    for chunk in await store.chunks(record.id):
        notes = loads(chunk.notes)
        changed.update(notes.get("changed", {}))
        sample += notes.get("sample", [])
    sample.sort(key=lambda change: change["row"])
    return {"changed": {name: count for name, count in changed.items() if count}, "sample": sample[:SAMPLE_ROWS]}


def _sum(first: Counts, second: Counts) -> Counts:
    names = Counts.__dataclass_fields__
    return Counts(**{name: getattr(first, name) + getattr(second, name) for name in names})


def _told(counts: Counts) -> dict[str, Any]:
    return {
        "totalRows": counts.rows,
        "inserted": counts.inserted,
        "updated": counts.updated,
        "unchanged": counts.unchanged,
        "duplicates": counts.duplicate,
        "failed": counts.invalid,
    }


def _summary(counts: Counts, run: Run) -> str:
    would = "would be " if run.dry_run else ""
    parts = [f"{counts.inserted:,} inserted", f"{counts.updated:,} updated", f"{counts.unchanged:,} unchanged"]
    if counts.duplicate:
        parts.append(f"{counts.duplicate:,} duplicates")
    parts.append(f"{counts.invalid:,} failed")
    return f"{counts.rows:,} rows: {would}{', '.join(parts)}"
