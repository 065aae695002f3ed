"""A step of an import on a server without transactions: rows, ledger and settlement, one write after another.

    load        the intents are recorded (`intents`), then the rows are written; repeating it does no harm
    record      the chunk's line in the ledger is the commit of a chunk, the import's document that of a plan
    settle      last: until then the job's next attempt completes what this one has begun

Before each write the attempt checks that it holds its lease and that the import runs. An attempt that loses its lease
in the middle of a write can write these rows once more, late; only a transaction would prevent that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pymongo import InsertOne, UpdateOne
from pymongo.errors import BulkWriteError

from rowlock.errors import ImportIsOver, LeaseLost, NoTransactions, StoreError
from rowlock.storage.chunk import in_key_order
from rowlock.storage.imports import ChunkEnd, ChunkResult, ImportId, ImportStatus, ImportStep
from rowlock.storage.mongo.connection import NO_TRANSACTIONS, Document, Scope, Work
from rowlock.storage.mongo.documents import JOBS, RUNNING
from rowlock.storage.mongo.errors import DUPLICATE
from rowlock.storage.mongo.imports.import_documents import IMPORTS
from rowlock.storage.mongo.loading import intents as recorded
from rowlock.storage.mongo.loading.intents import Intents
from rowlock.storage.mongo.loading.merge import WRITE_ROWS, Judged, Merge, numbered
from rowlock.storage.mongo.loading.row_errors import Write
from rowlock.storage.mongo.loading.table_schema import collection
from rowlock.storage.mongo.transaction import ASIDE, MongoTransaction, TrialTransaction, only_looks
from rowlock.storage.records import JobId
from rowlock.storage.row_errors import RowErrors
from rowlock.storage.tables import Load, Loaded

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

PASSES = 5
"""How often a load is tried if others keep writing to its rows."""


def step_of(scope: Scope, url: str, step: ImportStep) -> MongoTransaction:
    return Trial(scope, url, looks=True) if step.trial else Step(scope, url, step)


class Trial(TrialTransaction):
    """A step of a dry run: it takes commands that only read, and those that no transaction of MongoDB undoes either."""

    def _check(self, query: Document) -> None:
        if not only_looks(query) and next(iter(query)) not in ASIDE:
            raise NoTransactions(f"it cannot be undone, since {NO_TRANSACTIONS}")


class Step(MongoTransaction):
    """The verbs of an import, each taking effect at once."""

    def __init__(self, scope: Scope, url: str, step: ImportStep) -> None:
        super().__init__(scope, url)
        self._step = step
        self._loads = 0

    async def load(self, load: Load, frame: pl.DataFrame) -> Loaded:
        self._loads += 1
        intents = Intents(self._step.import_id.lower(), self._step.chunk, self._loads)
        return await self._run(lambda scope: self._load(scope, load, frame, intents))

    async def wipe(self, table: str, scope: Mapping[str, Any]) -> int:
        await self._run(self._check_running)
        return await super().wipe(table, scope)

    async def remove_replaced(self, load: Load, rows_max: int) -> int:
        await self._run(self._check_running)
        return await super().remove_replaced(load, rows_max)

    async def merge(self, load: Load, staged: str) -> Loaded:
        raise NoTransactions(f"all rows or none cannot be loaded, since {NO_TRANSACTIONS}")

    async def end_chunk(
        self, import_id: ImportId, index: int, result: ChunkResult, *, job_id: JobId | None = None
    ) -> ChunkEnd | None:
        end = await super().end_chunk(import_id, index, result, job_id=job_id)
        if end is not None:
            await self._run(lambda scope: recorded.forget(scope, import_id.lower(), index))
        return end

    async def _run(self, work: Work[T]) -> T:
        async def leased(scope: Scope) -> T:
            await self._check_lease(scope)
            return await work(scope)

        return await super()._run(leased)

    async def _check_lease(self, scope: Scope) -> None:
        step = self._step
        if step.lease is None:
            return
        ours = {"_id": step.job_id, "lease": step.lease, "owner": step.owner, "state": RUNNING}
        if await scope[JOBS].find_one(ours, {"_id": 1}) is None:
            raise LeaseLost(f"job {step.job_id}: another attempt owns it now; what this one has written stays")

    async def _check_running(self, scope: Scope) -> None:
        """Raise LeaseLost or ImportIsOver unless the lease is held and the import runs: no write is undone."""
        await self._check_lease(scope)
        running = {"_id": self._step.import_id.lower(), "status": ImportStatus.RUNNING.value}
        if await scope[IMPORTS].find_one(running, {"_id": 1}) is None:
            raise ImportIsOver(f"import {self._step.import_id} is not running any more")

    async def _load(self, scope: Scope, load: Load, frame: pl.DataFrame, intents: Intents) -> Loaded:
        await intents.read(scope)
        put = await Merge.begun(scope, load, intents)
        rows = list(numbered(in_key_order(load, frame)))
        for _ in range(PASSES):
            row_errors = RowErrors()
            judged = await put.judged(rows, row_errors)
            await self._check_running(scope)
            await put.make_room(judged)
            # In this order, as in a transaction: an update may free a value that an inserted row needs.
            written = [
                await self._write(scope, load, intents, judged.updates, updates=True),
                await self._write(scope, load, intents, judged.inserts, updates=False),
            ]
            if all(written):
                return _loaded(put, judged, intents, row_errors)
        raise StoreError(
            f"{load.table}: others wrote rows with the same keys at the same time, {PASSES} times in a row; "
            "import one file at a time into it, or run MongoDB as a replica set"
        )

    async def _write(
        self, scope: Scope, load: Load, intents: Intents, writes: Sequence[Write], *, updates: bool
    ) -> bool:
        """Write rows; returns False if, since they were read, others have taken a key or removed a document."""
        whole = True
        for start in range(0, len(writes), WRITE_ROWS):
            part = writes[start : start + WRITE_ROWS]
            await self._check_running(scope)
            rows = [write.row for write in part]
            await intents.record(scope, () if updates else rows, rows if updates else ())
            requests: list[Any] = (
                [UpdateOne({"_id": write.after["_id"]}, write.changes) for write in part]
                if updates
                else [InsertOne(write.after) for write in part]
            )
            try:
                done = await scope[collection(load.table)].bulk_write(requests, ordered=False)
                whole &= not updates or done.matched_count == len(part)
            except BulkWriteError as error:
                if not _only_duplicates(error):
                    raise
                whole = False
        return whole


def _loaded(put: Merge, judged: Judged, intents: Intents, row_errors: RowErrors) -> Loaded:
    """Return the counts of the rows, whichever attempt has written them."""
    inserted = updated = 0
    for row in judged.rows:
        before = judged.existing.get(row.key)
        if before is None or put.inserted(row, before):
            inserted += 1
        elif row.number in intents.updates:
            updated += 1
    return Loaded(inserted, updated, len(judged.rows) - inserted - updated, row_errors.in_order())


def _only_duplicates(error: BulkWriteError) -> bool:
    details = error.details or {}
    codes = {one["code"] for one in details.get("writeErrors", ())}
    return codes == {DUPLICATE} and not details.get("writeConcernErrors")
