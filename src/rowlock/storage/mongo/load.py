"""Rows into the user's collections: what an import does inside its transaction.

Collections are made and removed at once, whatever becomes of the transaction: MongoDB cannot do either in one. One that
this transaction has written in is emptied in it, and removed after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pymongo.errors import PyMongoError

from rowlock.storage.chunk import in_key_order
from rowlock.storage.mongo.cells import cell_of
from rowlock.storage.mongo.connection import (
    DURABLE,
    SNAPSHOT,
    TRIES_AT_MOST,
    Database,
    Document,
    Scope,
    Work,
    nap,
    worth_another_try,
)
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

PATIENCE_SECONDS = 45.0  # shorter than a statement may take


class _Tables:
    """What one transaction has done with collections of the user's."""

    def __init__(self) -> None:
        self.written: set[str] = set()
        self.dropped: dict[str, Database] = {}


class Loading(InTransaction):
    """The verbs of an import on collections that are not Rowlock's."""

    _own_tables: _Tables | None = None

    @property
    def _tables(self) -> _Tables:
        if self._own_tables is None:
            self._own_tables = _Tables()
        return self._own_tables

    async def release(self) -> None:
        """Remove the collections that the transaction, which has ended, has emptied for that."""
        dropped = self._tables.dropped
        for name, db in dropped.items():
            try:
                if await db[collection(name)].find_one({}, {"_id": 1}) is None:
                    await db.drop_collection(collection(name))
            except PyMongoError:
                continue  # it stays, and is empty

    async def table(self, name: str) -> FoundTable | None:
        if name in self._tables.dropped:
            return None
        return await self._run(lambda scope: found(scope, name, own=name in self._tables.written))

    async def create_table(self, name: str, columns: Sequence[Column], key: Sequence[str]) -> None:
        self._tables.dropped.pop(name, None)
        await self._run(lambda scope: create(scope, name, columns, key))

    async def drop_table(self, name: str) -> None:
        async def drop(scope: Scope) -> None:
            if name not in self._tables.written:
                await scope.db.drop_collection(collection(name))
                return
            await scope[collection(name)].delete_many({}, session=scope.session)
            self._tables.dropped[name] = scope.db

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
        return await self._run(lambda scope: _patiently(scope, work))


async def _patiently(scope: Scope, work: Work[T]) -> T:
    """Do the work; where it is the first of its transaction and others are in its way, begin that anew after them."""
    session = scope.session
    first = session is not None and session.operation_time is None
    clock = asyncio.get_running_loop()
    begun = clock.time()
    attempt = 0
    while True:
        try:
            return await work(scope)
        except PyMongoError as error:
            late = clock.time() - begun > PATIENCE_SECONDS
            if session is None or not first or late or not worth_another_try(error, min(attempt, TRIES_AT_MOST - 2)):
                raise
        await session.abort_transaction()
        await nap(attempt)
        await session.start_transaction(read_concern=SNAPSHOT, write_concern=DURABLE)
        attempt += 1


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
