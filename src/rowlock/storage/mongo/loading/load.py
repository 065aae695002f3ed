"""Loads rows into the user's collections, inside the transaction of an import.

MongoDB cannot create or drop collections in a transaction. They are created at once, and stay. They are dropped at once
if that is the first thing that a transaction does; otherwise after the commit, which a document written in the
transaction proves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pymongo.errors import PyMongoError

from rowlock.errors import TransactionTooLarge
from rowlock.ids import uuid7
from rowlock.storage.chunk import in_key_order
from rowlock.storage.imports import ImportId
from rowlock.storage.mongo.connection import STATEMENT_SECONDS, Database, Document, Scope, Work, is_new, patiently
from rowlock.storage.mongo.errors import TransactionConflict
from rowlock.storage.mongo.imports.import_locks import HOLDS, hold
from rowlock.storage.mongo.loading.cells import cell_of
from rowlock.storage.mongo.loading.dry_run import dry_run
from rowlock.storage.mongo.loading.merge import Merge, numbered
from rowlock.storage.mongo.loading.replace import RowIds, remove_left
from rowlock.storage.mongo.loading.table_schema import collection, create, field, found, must_have
from rowlock.storage.mongo.loading.wipe import wiped as wipe
from rowlock.storage.mongo.work import InTransaction
from rowlock.storage.row_errors import RowErrors
from rowlock.storage.tables import Column, FoundTable, Load, Loaded

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

# A server with a full cache may answer with a conflict. Fewer rows need less of the cache, and block fewer others.
_FEW_ROWS, _PATIENT_SECONDS = 100, 4.0


class _Tables:
    """What one transaction has done with the user's collections."""

    def __init__(self) -> None:
        self.written: set[str] = set()
        self.loads = 0
        self.dropped: dict[str, tuple[Database, str]] = {}  # with the id of the document that proves the commit


class Loading(InTransaction):
    """The verbs of an import on the user's collections."""

    _own_tables: _Tables | None = None

    @property
    def _tables(self) -> _Tables:
        if self._own_tables is None:
            self._own_tables = _Tables()
        return self._own_tables

    async def release(self) -> None:
        """Drop the collections that the transaction dropped, if it was committed; called after its end."""
        dropped, self._tables.dropped = self._tables.dropped, {}
        for name, (db, token) in dropped.items():
            try:
                if await db[HOLDS].find_one({"_id": token}) is not None:
                    await db.drop_collection(collection(name))
            except PyMongoError:
                continue  # it stays until cleanup tries again

    def staging_table(self, import_id: ImportId) -> str:
        return f"rowlock_stage_{import_id.replace('-', '')}"

    async def table(self, name: str) -> FoundTable | None:
        if name in self._tables.dropped:
            return None
        return await self._run(lambda scope: found(scope, name, own=name in self._tables.written))

    async def create_table(self, name: str, columns: Sequence[Column], key: Sequence[str]) -> None:
        async def make(scope: Scope) -> None:
            if self._tables.dropped.pop(name, None) is not None:
                await scope[collection(name)].delete_many({}, session=scope.session)
            await create(scope, name, columns, key)

        await self._run(make)

    async def drop_table(self, name: str) -> None:
        async def drop(scope: Scope) -> None:
            if name not in self._tables.written and is_new(scope):
                await scope.db.drop_collection(collection(name))
                return
            token = uuid7()
            await hold(scope, token)
            self._tables.dropped[name] = (scope.db, token)

        await self._run(drop)

    async def wipe(self, table: str, scope: Mapping[str, Any]) -> int:
        return await self._writing(table, lambda own: wipe(own, table, scope))

    async def check_references(self, table: str) -> None:
        """Do nothing: MongoDB has no references."""

    async def load(self, load: Load, frame: pl.DataFrame) -> Loaded:
        ids = None
        if load.replaces is not None:
            self._tables.loads += 1
            ids = RowIds(load.replaces.import_id, self._tables.loads)
        seconds = _PATIENT_SECONDS if frame.height > _FEW_ROWS else STATEMENT_SECONDS
        try:
            return await self._writing(load.table, lambda scope: _load(scope, load, frame, ids), seconds=seconds)
        except TransactionConflict as error:
            if frame.height <= _FEW_ROWS:
                raise
            raise TransactionTooLarge(str(error)) from error

    async def remove_replaced(self, load: Load, rows_max: int) -> int:
        return await self._writing(load.table, lambda scope: remove_left(scope, load, rows_max))

    async def unstage(self, staged: str, rows: Sequence[int]) -> None:
        async def delete(scope: Scope) -> None:
            gone = {"row": {"$in": list(rows)}}
            await scope[collection(staged)].delete_many(gone, session=scope.session)

        await self._writing(staged, delete)

    async def merge(self, load: Load, staged: str) -> Loaded:
        return await self._writing(load.table, lambda scope: _merge(scope, load, staged), staged)

    async def dry_run(self, load: Load, frame: pl.DataFrame, *, wiped: Mapping[str, Any] | None = None) -> Loaded:
        return await self._writing(load.table, lambda scope: dry_run(scope, load, frame, wiped))

    async def _writing(self, table: str, work: Work[T], *others: str, seconds: float = STATEMENT_SECONDS) -> T:
        self._tables.written.update((table, *others))  # even if it fails: reading a collection locks it
        return await self._run(lambda scope: patiently(scope, work, seconds))


async def _load(scope: Scope, load: Load, frame: pl.DataFrame, ids: RowIds | None) -> Loaded:
    put, row_errors = await Merge.begun(scope, load, ids=ids), RowErrors()
    judged = await put.judged(numbered(in_key_order(load, frame)), row_errors)
    await put.write(judged)
    return judged.loaded(row_errors)


async def _merge(scope: Scope, load: Load, staged: str) -> Loaded:
    put, row_errors = await Merge.begun(scope, load), RowErrors()
    await must_have(scope, staged, [*put.names, "row"])
    order = [(field(name), 1) for name in load.key] or [("row", 1)]
    rows = scope[collection(staged)].find({}, session=scope.session).sort(order).allow_disk_use(True)
    judged = await put.judged([_row(put, document) async for document in rows], row_errors)
    if row_errors.rows:
        return Loaded(refused=row_errors.in_order())
    await put.write(judged)
    return judged.loaded(row_errors)


def _row(put: Merge, document: Document) -> tuple[int, list[Any]]:
    """Return the number and the cells of a staged row."""
    cells = zip(put.load.columns, put.fields, strict=True)
    return int(document["row"]), [cell_of(document.get(field), column.kind) for column, field in cells]
