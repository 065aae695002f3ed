"""The finish job: merges staged rows, checks that the ledger adds up, ends the import, and deletes its files."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any

import orjson

from rowlock.errors import ImportFault, Permanent, RowlockError, TransactionTooLarge
from rowlock.imports.cleanup import clean, clean_chunks
from rowlock.imports.import_context import ImportContext
from rowlock.imports.importer import ImportType, Policy
from rowlock.imports.jobs import chunk_path
from rowlock.imports.load import waiting_rows as waiting
from rowlock.imports.load.chunk import begun, too_many, trim
from rowlock.imports.load.conflicts import until_it_commits
from rowlock.imports.load.ledger import Ledger
from rowlock.imports.load.strategy import TOO_LARGE
from rowlock.imports.read.source import ROW
from rowlock.imports.run import SAMPLE_ROWS, Run, in_hook, run_of
from rowlock.jobs.job import Job
from rowlock.jobs.payload import loads
from rowlock.jobs.transaction import JobTransaction
from rowlock.storage.contract import Store, StoreTransaction
from rowlock.storage.import_rows import summed
from rowlock.storage.imports import (
    ChunkResult,
    Counts,
    ErrorGroup,
    ErrorRow,
    ImportRecord,
    ImportStatus,
)
from rowlock.storage.tables import Loaded, Mode, Refused

_REMOVED_ROWS = 5_000


class _Failed(Exception):
    """The import cannot succeed: this transaction is rolled back before another one records that."""

    def __init__(
        self, code: str, message: str, refused: Sequence[Refused] = (), error: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.refused = refused
        self.error = error or {"code": code, "message": message}  # JSON


class _Superseded(Exception):
    """Another job finishes the import, some of its chunks are not done, or it has ended."""


async def finish_import(context: ImportContext, job: Job, record: ImportRecord) -> dict[str, Any]:
    """End an import whose chunks are all done, unless another job ends it."""
    if record.status is not ImportStatus.RUNNING:
        return {"skipped": record.status.value}
    declared = context.types.get(record.type)
    if declared is None:
        raise Permanent(f"no importer {record.type!r} is declared in this application")
    finish = _Finish(context, job, declared, record)
    await finish.look()
    status = ImportStatus.SUCCEEDED
    try:
        try:
            if loads(record.meta).get("inPlace"):
                await finish.remove_replaced()
            await until_it_commits(finish.succeed)
        except (_Failed, TransactionTooLarge) as error:
            failed = error if isinstance(error, _Failed) else _too_large(error)
            status = ImportStatus.FAILED
            await until_it_commits(partial(finish.fail, failed))
        await trim(context, record, finish.errors)
    except _Superseded:
        return {"skipped": "another job finishes this import, or it has ended"}
    if status is ImportStatus.SUCCEEDED:
        with suppress(RowlockError):  # the maintenance retries it
            await (clean_chunks if loads(record.options).get("dryRun") else clean)(context, record)
    context.log.info("import.ended", id=record.id, type=record.type, status=status.value)
    return {}


class _Finish:
    """The finish job of one import; `succeed` and `fail` are one transaction each."""

    def __init__(self, context: ImportContext, job: Job, declared: ImportType, record: ImportRecord) -> None:
        self._context, self._job, self._declared, self._record = context, job, declared, record
        self._meta = loads(record.meta)
        self._preview: dict[str, Any] = {}
        self._waiting: waiting.Found | None = None
        self.errors = record.error_count

    async def look(self) -> None:
        """Read what the chunks left to this job: the preview of a dry run, and waiting rows."""
        store, record, folder = self._context.engine.store, self._record, self._meta.get("folder")
        if loads(record.options).get("dryRun"):
            self._preview = await _preview(store, record)
        if self._meta.get("waits"):
            self._waiting = await waiting.found(
                store, self._context.blobs, record.id, lambda index: chunk_path(folder, index)
            )

    async def remove_replaced(self) -> None:
        """Remove the old rows that no row of this import has replaced, up to 5,000 in each transaction."""
        rows_max = _REMOVED_ROWS
        while True:
            try:
                removed = await until_it_commits(partial(self._remove, rows_max))
            except TransactionTooLarge as error:
                if rows_max == 1:
                    raise ImportFault(f"an old row cannot be removed: {error}") from error
                rows_max //= 2
                continue
            if removed < rows_max:
                return

    async def _remove(self, rows_max: int) -> int:
        run = run_of(self._record, self._declared, self._context.engine.store)
        async with self._begun(ends=False) as tx:
            held = await tx.store.begin_finish(self._record.id, self._job.id)
            if held is None:
                raise _Superseded
            if not held.counts.inserted:
                raise _none_good(held.error_count)
            return await tx.store.remove_replaced(run.replacing, rows_max)

    async def succeed(self) -> None:
        """Load staged and waiting rows, and end the import; raises _Failed if it cannot succeed."""
        async with self._begun() as tx:
            await self._end(tx.store)
            tx.result = {"status": ImportStatus.SUCCEEDED.value}

    async def fail(self, failed: _Failed) -> None:
        async with self._begun() as tx:
            await _fail(self._context, self._job, self._declared, self._record, failed, tx.store)
            tx.result = {"status": ImportStatus.FAILED.value, "code": failed.code}
        self.errors += len(failed.refused)

    def _begun(self, *, ends: bool = True) -> AbstractAsyncContextManager[JobTransaction]:
        return begun(self._job, self._record, self._record.total_chunks or 0, ends=ends)

    async def _end(self, tx: StoreTransaction) -> None:
        held = await tx.begin_finish(self._record.id, self._job.id)
        if held is None:
            raise _Superseded
        declared, meta, counts, preview = self._declared, self._meta, held.counts, self._preview
        run = run_of(held, declared, self._context.engine.store)
        run._transaction = tx
        self.errors = held.error_count
        if declared.errors_max is not None and held.error_count > declared.errors_max:
            message = f"{held.error_count:,} errors; at most {declared.errors_max:,} are allowed"
            raise _Failed("too_many_errors", message)
        if meta.get("staged"):
            if held.error_count and declared.policy is Policy.ALL_OR_NOTHING:
                raise _none_loaded(held.error_count)
            if declared.mode is Mode.REPLACE and counts.rows == meta["rows"]:
                raise _none_good(held.error_count)
            counts = summed(counts, await _merge(self._context, run, declared, held, meta, tx))
        if self._waiting is not None:
            found = await self._load_waiting(run, held, self._waiting, tx)
            counts, preview = summed(counts, found.counts), _joined([preview, loads(found.notes)]) if preview else {}
        if not counts.balanced or counts.rows != meta["rows"]:
            lost = f"the file has {meta['rows']:,} rows, and {counts.rows:,} are accounted for: {counts}"
            raise _Failed("ledger_mismatch", lost)
        with in_hook(run, "finish"):
            extra = None if run.dry_run else await declared.importer.finish(run)
        if meta.get("staged") and declared.mode is Mode.REPLACE:
            await tx.check_references(declared.into)
        result = _told(counts) | ({"finish": dict(extra)} if isinstance(extra, Mapping) else {})
        if run.dry_run:
            result |= {"dryRun": True, "wouldFail": _would_fail(counts, declared)} | preview
            if "wouldDelete" in meta:
                result["wouldDelete"] = meta["wouldDelete"]
        text = orjson.dumps(result, default=str).decode()
        message = _summary(counts, run, declared)
        if not await tx.end_import(held.id, ImportStatus.SUCCEEDED, message=message, error=None, result=text):
            raise _Superseded

    async def _load_waiting(
        self, run: Run, held: ImportRecord, rows: waiting.Found, tx: StoreTransaction
    ) -> ChunkResult:
        """Load the rows that refer to rows of other chunks; a row that is refused now is an error."""
        declared = self._declared
        ledger = Ledger(declared, self._meta, self._context.engine.settings.import_errors_max)
        ledger.begin(rows.cells)
        result = ledger.result(await waiting.load(run, rows.frame))
        self.errors += ledger.errors
        if declared.errors_max is not None and self.errors > declared.errors_max:
            message, error = too_many(declared, held.error_count, ledger, "its last step")
            self.errors = held.error_count
            raise _Failed("too_many_errors", message, error=error)
        if await tx.end_chunk(held.id, self._meta["chunkCount"], result) is None:
            raise _Superseded
        return result


async def _merge(
    context: ImportContext,
    run: Run,
    declared: ImportType,
    record: ImportRecord,
    meta: Mapping[str, Any],
    tx: StoreTransaction,
) -> Counts:
    """Merge the staged rows into the table; a partial import leaves out those that the table refuses."""
    if declared.mode is Mode.REPLACE:
        await tx.wipe(declared.into, run.fixed)
    refused: list[Refused] = []
    while (loaded := await tx.merge(run.how, meta["staged"])).refused:
        refused += loaded.refused
        if declared.policy is Policy.ALL_OR_NOTHING:
            raise _none_loaded(record.error_count + len(refused), refused)
        # Retry without them: rows that refer to one of them may be refused next.
        await tx.unstage(meta["staged"], [each.row for each in loaded.refused])
    inserted = loaded.inserted + loaded.updated + loaded.unchanged
    if declared.mode is Mode.REPLACE and not inserted:
        raise _none_good(record.error_count + len(refused), refused)
    await tx.drop_table(meta["staged"])
    counts = Counts(inserted + len(refused), loaded.inserted, loaded.updated, loaded.unchanged, invalid=len(refused))
    result = await _refusals(context, declared, meta, refused, counts)
    if await tx.end_chunk(record.id, meta["chunkCount"], result) is None:
        raise _Superseded
    return counts


def _too_large(error: TransactionTooLarge) -> _Failed:
    told = f"nothing was loaded: all rows are loaded in one transaction, which is too large ({error})"
    return _Failed(TOO_LARGE, told)


def _none_good(errors: int, refused: Sequence[Refused] = ()) -> _Failed:
    """Return the error of a replace without a row to load, which leaves the existing rows in place."""
    told = f"nothing was replaced: no row of the file can be loaded; {errors:,} error{'s' * (errors != 1)}"
    return _Failed("no_valid_rows", told, refused)


async def _refusals(
    context: ImportContext, declared: ImportType, meta: Mapping[str, Any], refused: Sequence[Refused], counts: Counts
) -> ChunkResult:
    """Return the counts with the staged rows that the table refused, each with its cells."""
    from rowlock.imports.read.partition import read_chunk

    if not refused:
        return ChunkResult(counts)
    groups, errors = Counter[tuple[str | None, str]](), list[ErrorRow]()
    for index in range(meta["chunkCount"]):
        ledger = Ledger(declared, meta, context.engine.settings.import_errors_max)
        cells = await asyncio.to_thread(read_chunk, await context.blobs.get(chunk_path(meta["folder"], index)))
        ledger.begin(cells)
        own = set(cells[ROW])
        of_chunk = ledger.result(Loaded(refused=[each for each in refused if each.row in own]))
        groups.update({(group.column, group.code): group.count for group in of_chunk.groups})
        errors += of_chunk.errors
    told = [ErrorGroup(column, code, count) for (column, code), count in groups.items()]
    kept = sorted(errors, key=lambda each: each.row)[: context.engine.settings.import_errors_max]
    return ChunkResult(counts, told, kept)


def _none_loaded(errors: int, refused: Sequence[Refused] = ()) -> _Failed:
    """Return the error of an all-or-nothing import with bad rows, which loads nothing."""
    told = f"nothing was loaded: {errors:,} error{'s' if errors != 1 else ''}, and all rows or none were asked for"
    return _Failed("not_all_rows_valid", told, refused)


async def _fail(
    context: ImportContext, job: Job, declared: ImportType, record: ImportRecord, failed: _Failed, tx: StoreTransaction
) -> None:
    if await tx.begin_finish(record.id, job.id) is None:
        raise _Superseded
    meta = loads(record.meta)
    if failed.refused:
        counts = Counts(rows=len(failed.refused), invalid=len(failed.refused))
        result = await _refusals(context, declared, meta, failed.refused, counts)
        await tx.end_chunk(record.id, meta["chunkCount"], result)
    if meta.get("staged") and failed.code != TOO_LARGE:  # its rows may fit after a resume
        await tx.drop_table(meta["staged"])
    error = orjson.dumps(failed.error).decode()
    await tx.end_import(record.id, ImportStatus.FAILED, message=str(failed), error=error, result=None)


async def _preview(store: Store, record: ImportRecord) -> dict[str, Any]:
    """Return the findings of a dry run: how often each column would change, and some rows before and after."""
    return _joined([loads(chunk.notes) for chunk in await store.chunks(record.id)])


def _joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    changed, sample = Counter[str](), list[dict[str, Any]]()
    for part in parts:
        changed.update(part.get("changed", {}))
        sample += part.get("sample", [])
    sample.sort(key=lambda change: change["row"])
    return {"changed": {name: count for name, count in changed.items() if count}, "sample": sample[:SAMPLE_ROWS]}


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
