"""Rows into the user's collections: what an import does inside its transaction.

Collections are not made or removed in a transaction: MongoDB cannot. They are made at once, and stay. They are removed
at once where that is the first thing that a transaction does, and else after it, if it was committed: a document that
it writes tells that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pymongo.errors import PyMongoError

from rowlock.ids import uuid7
from rowlock.storage.chunk import in_key_order
from rowlock.storage.mongo.cells import cell_of
from rowlock.storage.mongo.connection import Database, Document, Scope, Work, is_new, patiently
from rowlock.storage.mongo.import_locks import HOLDS, hold
from rowlock.storage.mongo.put import Put, numbered
from rowlock.storage.mongo.rehearse import rehearsed
from rowlock.storage.mongo.shape import collection, create, field, found, must_have
from rowlock.storage.mongo.wipe import wiped as wipe
from rowlock.storage.mongo.work import InTransaction
from rowlock.storage.refusals import Refusals
from rowlock.storage.tables import Column, FoundTable, Load, Loaded

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")


class _Tables:
    """What one transaction has done with collections of the user's."""

    def __init__(self) -> None:
        self.written: set[str] = set()
        self.dropped: dict[str, tuple[Database, str]] = {}  # with the id of the document that tells of the commit


class Loading(InTransaction):
    """The verbs of an import on collections that are not Rowlock's."""

    _own_tables: _Tables | None = None

    @property
    def _tables(self) -> _Tables:
        if self._own_tables is None:
            self._own_tables = _Tables()
        return self._own_tables

    async def release(self) -> None:
        """Remove the collections that the transaction, which has ended, was to remove."""
        dropped, self._tables.dropped = self._tables.dropped, {}
        for name, (db, token) in dropped.items():
            try:
                if await db[HOLDS].find_one({"_id": token}) is not None:
                    await db.drop_collection(collection(name))
            except PyMongoError:
                continue  # it stays: what is swept later is removed again

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

    async def load(self, load: Load, frame: pl.DataFrame) -> Loaded:
        return await self._writing(load.table, lambda scope: _load(scope, load, frame))

    async def merge(self, load: Load, staged: str) -> Loaded:
        return await self._writing(load.table, lambda scope: _merge(scope, load, staged), staged)

    async def rehearse(self, load: Load, frame: pl.DataFrame, *, wiped: Mapping[str, Any] | None = None) -> Loaded:
        return await self._writing(load.table, lambda scope: rehearsed(scope, load, frame, wiped))

    async def _writing(self, table: str, work: Work[T], *others: str) -> T:
        self._tables.written.update((table, *others))  # even where it fails: to look there is to hold it
        return await self._run(lambda scope: patiently(scope, work))


async def _load(scope: Scope, load: Load, frame: pl.DataFrame) -> Loaded:
    put, refusals = await Put.begun(scope, load), Refusals(load)
    judged = await put.judged(numbered(in_key_order(load, frame)), refusals)
    await put.write(judged)
    return judged.loaded(refusals)


async def _merge(scope: Scope, load: Load, staged: str) -> Loaded:
    put, refusals = await Put.begun(scope, load), Refusals(load)
    await must_have(scope, staged, [*put.names, "row"])
    order = [(field(name), 1) for name in load.key] or [("row", 1)]
    rows = scope[collection(staged)].find({}, session=scope.session).sort(order).allow_disk_use(True)
    judged = await put.judged([_row(put, document) async for document in rows], refusals)
    if refusals.rows:
        return Loaded(refused=refusals.in_order())
    await put.write(judged)
    return judged.loaded(refusals)


def _row(put: Put, document: Document) -> tuple[int, list[Any]]:
    """The number and the cells of a row that was staged."""
    cells = zip(put.load.columns, put.fields, strict=True)
    return int(document["row"]), [cell_of(document.get(field), column.kind) for column, field in cells]
