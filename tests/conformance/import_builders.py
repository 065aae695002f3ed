"""Helpers that set up what a test of imports is not about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.builders import ANN, new_job, new_jobs
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.storage.imports import (
    Added,
    ChunkEnd,
    ChunkResult,
    ChunkStatus,
    Counts,
    ErrorGroup,
    ErrorRow,
    ImportId,
    ImportRecord,
    ImportStatus,
    NewImport,
    Plan,
    PlannedChunk,
    RowError,
    Started,
)
from rowlock.storage.records import JobId, NewJob, Outcome, Settlement

OPEN = (ImportStatus.QUEUED, ImportStatus.RUNNING)
CLEAN = ChunkResult(Counts(rows=10, inserted=6, updated=3, unchanged=1))
QUEUE = "imports"


def new_import(**changes: Any) -> NewImport:
    given: dict[str, Any] = {
        "id": uuid7(),
        "type": "customers",
        "file_name": "Customers.csv",
        "path": "imports/1/file.csv",
        "sha256": "a" * 64,
        "size_bytes": 1234,
    }
    return NewImport(**(given | changes))


def import_job(import_id: ImportId | None = None) -> NewJob:
    return new_job(id=import_id or uuid7(), type="import", queue=QUEUE)


def jobs_for(*indexes: int) -> dict[int, NewJob]:
    """Return jobs to resume an import with."""
    return {index: import_job() for index in indexes}


async def add(store: Store, **changes: Any) -> Added:
    new = new_import(**changes)
    return await store.add_import(new, import_job(new.id))


async def queued(store: Store, **changes: Any) -> ImportId:
    """Add an import of a new file that waits for its parent job."""
    added = await add(store, **{"sha256": uuid7()} | changes)
    assert added.created
    return added.record.id


async def started(store: Store, **changes: Any) -> ImportId:
    import_id = await queued(store, **changes)
    assert await store.start_import(import_id, "Reading") is Started.STARTED
    return import_id


def plan(chunks: int = 2, rows: int = 10, **changes: Any) -> Plan:
    jobs = new_jobs(chunks, type="import", queue=QUEUE)
    return Plan(**({"chunks": [PlannedChunk(job, rows) for job in jobs], "meta": '{"read": "csv"}'} | changes))


async def plan_it(
    store: Store, import_id: ImportId, chunks: int = 2, job_id: JobId | None = None, **changes: Any
) -> bool:
    """Plan an import as the parent job `job_id` (default: its first parent job)."""
    async with store.transaction() as transaction:
        return await transaction.plan_import(import_id, plan(chunks, **changes), job_id=job_id or import_id)


async def planned(store: Store, chunks: int = 2, **changes: Any) -> ImportId:
    import_id = await started(store, **changes)
    assert await plan_it(store, import_id, chunks)
    return import_id


async def end_chunk(
    store: Store, import_id: ImportId, index: int, result: ChunkResult = CLEAN, job_id: JobId | None = None
) -> ChunkEnd | None:
    async with store.transaction() as transaction:
        return await transaction.end_chunk(import_id, index, result, job_id=job_id)


async def loaded(store: Store, chunks: int = 2, **changes: Any) -> ImportId:
    """Create an import whose chunks are all done."""
    import_id = await planned(store, chunks, **changes)
    for index in range(chunks):
        assert await end_chunk(store, import_id, index) is not None
    return import_id


async def queue_finish(store: Store, import_id: ImportId) -> JobId:
    job = import_job()
    async with store.transaction() as transaction:
        await transaction.queue_finish(import_id, job)
    return job.id


async def begin_finish(store: Store, import_id: ImportId, job_id: JobId) -> ImportRecord | None:
    async with store.transaction() as transaction:
        return await transaction.begin_finish(import_id, job_id)


async def end(
    store: Store, import_id: ImportId, status: ImportStatus = ImportStatus.SUCCEEDED, **said: str | None
) -> bool:
    told: dict[str, Any] = {"message": "Done", "error": None, "result": None} | said
    async with store.transaction() as transaction:
        return await transaction.end_import(import_id, status, **told)


async def partly(store: Store, state: ImportStatus = ImportStatus.FAILED, **changes: Any) -> ImportId:
    """Create an import that has ended with chunk 1 of three done."""
    import_id = await planned(store, 3, **changes)
    await end_chunk(store, import_id, 1, with_errors(14))
    await end(store, import_id, state, message="No", error='{"code": "x"}', result='{"a": 1}')
    return import_id


async def in_status(store: Store, status: ImportStatus, **changes: Any) -> ImportId:
    """Create an import of two planned chunks in this status; a QUEUED one is not planned."""
    if status is ImportStatus.QUEUED:
        return await queued(store, **changes)
    import_id = await planned(store, **changes)
    if status.final:
        assert await end(store, import_id, status)
    return import_id


async def found(store: Store, import_id: ImportId) -> ImportRecord:
    record = await store.get_import(import_id)
    assert record is not None
    return record


async def standing(store: Store, import_id: ImportId) -> list[Any]:
    """Return everything stored about an import, to check that nothing changes."""
    errors = await store.import_errors(import_id, after_row=-1, limit=1000)
    return [await store.get_import(import_id), await store.chunks(import_id), errors, await store.counts()]


async def chunk_jobs(store: Store, import_id: ImportId) -> list[JobId]:
    return [chunk.job_id for chunk in await store.chunks(import_id) if chunk.index >= 0]


async def waiting(store: Store, import_id: ImportId) -> list[int]:
    return [chunk.index for chunk in await store.chunks(import_id) if chunk.status is ChunkStatus.WAITING]


async def end_jobs(
    store: Store, outcome: Outcome, only: Sequence[JobId] | None = None, error: str | None = None
) -> list[JobId]:
    """Claim the jobs of the import queue and settle them with `outcome`; release those not in `only`."""
    ended = []
    for claimed in await store.claim(QUEUE, ANN, 1_000):
        meant = only is None or claimed.id in only
        said: dict[str, Any] = {"type": claimed.type, "queue": QUEUE, "error": error}
        end = Settlement(claimed.id, claimed.lease, outcome if meant else Outcome.RELEASE, **said)
        assert await store.settle(ANN, [end]) == []
        ended += [claimed.id] * meant
    return ended


def bad_row(row: int, column: str | None = "email", code: str = "email_invalid", cells: Sequence[str] = ()) -> ErrorRow:
    return ErrorRow(row, (RowError(row, column, code, "not an e-mail address", "x"),), tuple(cells) or ("x", str(row)))


def with_errors(*rows: int, counted: int | None = None) -> ChunkResult:
    """Return the result of a chunk of ten rows, of which these are bad."""
    counts = Counts(rows=10, inserted=10 - len(rows), invalid=len(rows))
    groups = (ErrorGroup("email", "email_invalid", len(rows) if counted is None else counted),)
    return ChunkResult(counts, groups, tuple(map(bad_row, rows)))


async def error_rows(store: Store, import_id: ImportId, limit: int = 1000) -> list[int]:
    """Return the numbers of rows with errors, read page by page."""
    rows: list[int] = []
    after: int | None = -1
    while after is not None:
        page = await store.import_errors(import_id, after_row=after, limit=limit)
        rows += [row.row for row in page.rows]
        after = page.next_row
    return rows


async def ids(store: Store, page: int = 100, **where: Any) -> list[ImportId]:
    """Return the ids of all matching imports, newest first, read page by page."""
    asked: dict[str, Any] = {"type": None, "company_id": None, "status": None} | where
    listed: list[ImportId] = []
    cursor = None
    while True:
        answer = await store.imports(**asked, limit=page, cursor=cursor)
        listed += [record.id for record in answer.imports]
        if (cursor := answer.next_cursor) is None:
            return listed
