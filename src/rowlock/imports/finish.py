"""The finish job: merges what was staged, sees that the ledger sums up, ends the import, and clears its files away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from rowlock.errors import Permanent, RowlockError
from rowlock.imports.chunk import begun
from rowlock.imports.importer import ImportType, Policy
from rowlock.imports.run import SAMPLE_ROWS, Run, run_of
from rowlock.imports.sweep import sweep, sweep_chunks
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
from rowlock.storage.tables import Mode, Refused


class _Failed(Exception):
    """The import cannot succeed: what this transaction did is undone before that is recorded."""

    def __init__(self, code: str, message: str, refused: Sequence[Refused] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.refused = refused


class _Superseded(Exception):
    """This is not the job that finishes the import, or not yet, or the import has ended meanwhile."""


async def finish_import(shop: Workshop, job: Job, record: ImportRecord) -> dict[str, Any]:
    """End an import whose chunks are all done, unless it is another job's to end."""
    if record.status is not ImportStatus.RUNNING:
        return {"skipped": record.status.value}
    declared = shop.types.get(record.type)
    if declared is None:
        raise Permanent(f"no importer {record.type!r} is declared in this application")
    preview = await _preview(shop.engine.store, record) if loads(record.options).get("dryRun") else {}
    status = ImportStatus.SUCCEEDED
    try:
        try:
            async with begun(job) as tx:
                await _end(shop, job, declared, record, preview, tx.store)
                tx.result = {"status": status.value}
        except _Failed as failed:
            status = ImportStatus.FAILED
            async with begun(job) as tx:
                await _fail(job, record, failed, tx.store)
                tx.result = {"status": status.value, "code": failed.code}
    except _Superseded:
        return {"skipped": "another job finishes this import, or it is over"}
    if status is ImportStatus.SUCCEEDED:
        with suppress(RowlockError):  # the sweeper comes by
            await (sweep_chunks if loads(record.options).get("dryRun") else sweep)(shop, record)
    shop.log.info("import.ended", id=record.id, type=record.type, status=status.value)
    return {}


async def _end(
    shop: Workshop, job: Job, declared: ImportType, record: ImportRecord, preview: dict[str, Any], tx: StoreTransaction
) -> None:
    held = await tx.begin_finish(record.id, job.id)
    if held is None:
        raise _Superseded
    meta, counts = loads(held.meta), held.counts
    run = run_of(held, declared, shop.engine.store)
    run._transaction = tx
    if declared.errors_max is not None and held.error_count > declared.errors_max:
        raise _Failed("too_many_errors", f"{held.error_count:,} errors; at most {declared.errors_max:,} are allowed")
    if meta.get("staged"):
        if held.error_count:
            raise _none_loaded(held.error_count)
        counts = _sum(counts, await _merge(run, declared, held, meta, tx))
    if not counts.balanced or counts.rows != meta["rows"]:
        lost = f"the file has {meta['rows']:,} rows, and {counts.rows:,} are accounted for: {counts}"
        raise _Failed("ledger_mismatch", lost)
    await tx.trim_errors(held.id, shop.engine.settings.import_errors_max)
    extra = None if run.dry_run else await declared.importer.finish(run)
    result = _told(counts) | ({"finish": dict(extra)} if isinstance(extra, Mapping) else {})
    if run.dry_run:
        result |= {"dryRun": True, "wouldFail": _would_fail(counts, declared)} | preview
        if "wouldDelete" in meta:
            result["wouldDelete"] = meta["wouldDelete"]
    text = orjson.dumps(result, default=str).decode()
    message = _summary(counts, run, declared)
    if not await tx.end_import(held.id, ImportStatus.SUCCEEDED, message=message, error=None, result=text):
        raise _Superseded


async def _merge(
    run: Run, declared: ImportType, record: ImportRecord, meta: Mapping[str, Any], tx: StoreTransaction
) -> Counts:
    if declared.mode is Mode.REPLACE:
        await tx.wipe(declared.into, run.fixed)
    loaded = await tx.merge(run.how, meta["staged"])
    if loaded.refused:
        raise _none_loaded(record.error_count + len(loaded.refused), loaded.refused)
    await tx.drop_table(meta["staged"])
    rows = loaded.inserted + loaded.updated + loaded.unchanged
    counts = Counts(rows, loaded.inserted, loaded.updated, loaded.unchanged)
    if await tx.end_chunk(record.id, meta["chunkCount"], ChunkResult(counts)) is None:
        raise _Superseded
    return counts


def _none_loaded(errors: int, refused: Sequence[Refused] = ()) -> _Failed:
    """All or nothing, and not all: nothing."""
    told = f"nothing was loaded: {errors:,} error{'s' if errors != 1 else ''}, and all rows or none were asked for"
    return _Failed("not_all_rows_valid", told, refused)


async def _fail(job: Job, record: ImportRecord, failed: _Failed, tx: StoreTransaction) -> None:
    if await tx.begin_finish(record.id, job.id) is None:
        raise _Superseded
    meta = loads(record.meta)
    if failed.refused:
        groups = Counter((refused.column, refused.code) for refused in failed.refused)
        errors = [ErrorRow(r.row, [RowError(r.row, r.column, r.code, r.reason)], []) for r in failed.refused]
        counts = Counts(rows=len(errors), invalid=len(errors))
        told = ChunkResult(counts, [ErrorGroup(column, code, n) for (column, code), n in groups.items()], errors)
        await tx.end_chunk(record.id, meta["chunkCount"], told)
    if meta.get("staged"):
        await tx.drop_table(meta["staged"])
    error = orjson.dumps({"code": failed.code, "message": str(failed)}).decode()
    await tx.end_import(record.id, ImportStatus.FAILED, message=str(failed), error=error, result=None)


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


def _would_fail(counts: Counts, declared: ImportType) -> bool:
    return declared.policy is Policy.ALL_OR_NOTHING and counts.invalid > 0


def _summary(counts: Counts, run: Run, declared: ImportType) -> str:
    if run.dry_run and _would_fail(counts, declared):
        return f"{counts.rows:,} rows: nothing would be loaded, because {counts.invalid:,} are bad"
    would = "would be " if run.dry_run else ""
    parts = [f"{counts.inserted:,} inserted", f"{counts.updated:,} updated", f"{counts.unchanged:,} unchanged"]
    if counts.duplicate:
        parts.append(f"{counts.duplicate:,} duplicates")
    parts.append(f"{counts.invalid:,} failed")
    return f"{counts.rows:,} rows: {would}{', '.join(parts)}"
