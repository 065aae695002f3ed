"""Merges a frame into a collection: first decides the outcome of each row, then writes, all in one transaction.

    look     the documents that have the keys of the rows
    judge    each row is new, differs, is unchanged, or would be rejected
    write    updates, then inserts, by key

A change by others since the transaction began is a conflict, and ends it: what was read is still true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bson.objectid import ObjectId
from pymongo import InsertOne, UpdateOne

from rowlock.errors import ImportFault
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.loading import table_schema as tables
from rowlock.storage.mongo.loading.cells import CellRefused, keeper, same
from rowlock.storage.mongo.loading.intents import Intents
from rowlock.storage.mongo.loading.replace import RowIds, make_room, old
from rowlock.storage.mongo.loading.row_errors import Write, broken, contradicting, look_up, not_null
from rowlock.storage.mongo.loading.table_schema import TableSchema, must_have
from rowlock.storage.row_errors import RowErrors, key_exists
from rowlock.storage.tables import Load, Loaded, Mode, Refused

if TYPE_CHECKING:
    import polars as pl

WRITE_ROWS = 5_000


@dataclass(slots=True)
class Row:
    """A row of the load; `values` has the value of each field, or None."""

    number: int
    cells: Sequence[Any]
    values: Document
    key: Any


@dataclass(slots=True)
class Judged:
    """The outcomes of a load's rows."""

    updates: list[Write] = field(default_factory=list)
    inserts: list[Write] = field(default_factory=list)
    unchanged: int = 0
    existing: dict[Any, Document] = field(default_factory=dict)  # by key
    rows: list[Row] = field(default_factory=list)  # those without errors

    def loaded(self, row_errors: RowErrors) -> Loaded:
        return Loaded(len(self.inserts), len(self.updates), self.unchanged, row_errors.in_order())


class Merge:
    """One load into a collection."""

    def __init__(
        self,
        scope: Scope,
        load: Load,
        table_schema: TableSchema,
        intents: Intents | None = None,
        ids: RowIds | None = None,
    ) -> None:
        self._scope = scope
        self._intents = intents  # without transactions: what this chunk's attempts were about to write
        self._ids = ids if intents is None else intents.ids
        self._wiped = None if load.replaces is None else old(table_schema, load.replaces)
        self.load = load
        self.table_schema = table_schema
        self.names = [column.name for column in load.columns]
        self.fields = [tables.field(name) for name in self.names]
        self.key = [tables.field(name) for name in load.key] or ([] if intents is None else ["_id"])
        kept = {tables.field(name) for name in (*load.key, *load.untouched)}
        self._set = [name for name in self.fields if name not in kept]
        unwatched = {tables.field(name) for name in load.unwatched}
        self.watched = [name for name in self._set if name not in unwatched]
        self._keepers = [
            keeper(column.kind, table_schema.types.get(name, frozenset()))
            for column, name in zip(load.columns, self.fields, strict=True)
        ]

    @classmethod
    async def begun(cls, scope: Scope, load: Load, intents: Intents | None = None, ids: RowIds | None = None) -> Merge:
        table_schema = await must_have(scope, load.table, [column.name for column in load.columns])
        put = cls(scope, load, table_schema, intents, ids)
        if load.key and frozenset(put.key) not in table_schema.keys:
            raise ImportFault(
                f"table {load.table} has no unique index on {', '.join(load.key)}: create one, or a primary key"
            )
        return put

    @property
    def updates(self) -> bool:
        return bool(self.load.key) and self.load.mode is Mode.UPSERT

    async def judged(
        self, given: Iterable[tuple[int, Sequence[Any]]], row_errors: RowErrors, wiped: Document | None = None
    ) -> Judged:
        """Decide the outcomes of these rows, given in the order of keys, as if what matches `wiped` were removed."""
        wiped = self._wiped if wiped is None else wiped
        rows = await asyncio.to_thread(self._rows, given, row_errors)
        judged = Judged(existing=await self._existing(rows))
        there = judged.existing
        if wiped is not None and there:
            gone = [document["_id"] for document in there.values()]
            asked = {"$and": [{"_id": {"$in": gone}}, wiped]}
            found = self._scope[tables.collection(self.load.table)].find(asked, {"_id": 1}, session=self._scope.session)
            doomed = {one["_id"] async for one in found}
            there = {key: document for key, document in there.items() if document["_id"] not in doomed}
        for row in rows:
            before = there.get(row.key) if self.key else None
            if before is None:
                self._insert(row, judged, row_errors)
            elif not self.updates:
                if not self.inserted(row, before):
                    row_errors.add(key_exists(replace(self.load, key=self.key), row.number))
            elif self.differing(row, before):
                self._update(row, before, judged, row_errors)
            else:
                judged.unchanged += 1
        for refuse in (self._broken, self._contradicting):
            for one in await refuse(judged, wiped):
                row_errors.add(one)
            bad = {refused.row for refused in row_errors.rows}
            judged.updates = [write for write in judged.updates if write.row not in bad]
            judged.inserts = [write for write in judged.inserts if write.row not in bad]
        bad = {refused.row for refused in row_errors.rows}
        judged.rows = [row for row in rows if row.number not in bad]
        return judged

    async def write(self, judged: Judged) -> None:
        collection = self._scope[tables.collection(self.load.table)]
        await self.make_room(judged)
        writes: list[InsertOne[Document] | UpdateOne] = []
        writes += [UpdateOne({"_id": write.after["_id"]}, write.changes) for write in judged.updates]
        writes += [InsertOne(write.after) for write in judged.inserts]
        for start in range(0, len(writes), WRITE_ROWS):
            await collection.bulk_write(writes[start : start + WRITE_ROWS], session=self._scope.session)

    async def make_room(self, judged: Judged) -> None:
        """Remove the documents that the load replaces and that would conflict with rows to insert."""
        if self._wiped is not None:
            await make_room(self._scope, self.table_schema, judged.inserts, self._wiped)

    def inserted(self, row: Row, before: Document) -> bool:
        """Whether this or an earlier attempt inserted the document with this row's key for this row."""
        return self._intents is not None and row.number in self._intents.inserts and before["_id"] == row.values["_id"]

    def differing(self, row: Row, before: Document) -> list[str]:
        """Return the watched fields in which a row differs from the document with its key."""
        return [name for name in self.watched if same(row.values.get(name)) != same(before.get(name))]

    def _rows(self, given: Iterable[tuple[int, Sequence[Any]]], row_errors: RowErrors) -> list[Row]:
        rows = []
        for number, cells in given:
            try:
                values = {
                    name: None if cell is None else keep(cell)
                    for name, keep, cell in zip(self.fields, self._keepers, cells, strict=True)
                }
            except CellRefused as error:
                row_errors.add(Refused(number, error.code, error.reason))
                continue
            if self._ids is not None:
                values.setdefault("_id", self._ids.id_of(number))
            rows.append(Row(number, cells, values, tuple(same(values[name]) for name in self.key)))
        return rows

    async def _existing(self, rows: Sequence[Row]) -> dict[Any, Document]:
        if not self.key:
            return {}
        found: dict[Any, Document] = {}
        async for document in look_up(self._scope, self.table_schema, self.key, [row.values for row in rows]):
            found[tuple(same(document.get(name)) for name in self.key)] = document
        return found

    def _insert(self, row: Row, judged: Judged, row_errors: RowErrors) -> None:
        if lacking := self._lacking(row, self.fields):
            row_errors.add(not_null(row.number, lacking))
            return
        values = {
            name: value for name, value in row.values.items() if value is not None or self.table_schema.takes_null(name)
        }
        judged.inserts.append(Write(row.number, {"_id": ObjectId(), **values}))

    def _update(self, row: Row, before: Document, judged: Judged, row_errors: RowErrors) -> None:
        if lacking := self._lacking(row, self._set):
            row_errors.add(not_null(row.number, lacking))
            return
        sets: Document = {}
        gone: Document = {}
        for name in self._set:
            value = row.values[name]
            if value is None and not self.table_schema.takes_null(name):
                gone[name] = ""
            else:
                sets[name] = value
        after = {name: value for name, value in {**before, **sets}.items() if name not in gone}
        changes: Document = {"$set": sets} if sets else {}
        changes |= {"$unset": gone} if gone else {}
        judged.updates.append(Write(row.number, after, before, changes))

    def _lacking(self, row: Row, names: Iterable[str]) -> str | None:
        """Return the first column that must have a value and has none, or None."""
        return next(
            (
                tables.column(name)
                for name in names
                if row.values[name] is None and not self.table_schema.nullable(name)
            ),
            None,
        )

    async def _broken(self, judged: Judged, wiped: Document | None) -> list[Refused]:
        return await broken(self._scope, self.table_schema, [*judged.updates, *judged.inserts])

    async def _contradicting(self, judged: Judged, wiped: Document | None) -> list[Refused]:
        return await contradicting(self._scope, self.table_schema, [*judged.updates, *judged.inserts], self.key, wiped)


def numbered(frame: pl.DataFrame) -> Iterable[tuple[int, Sequence[Any]]]:
    """Yield (number, cells) of the rows of a frame that is in the order of keys."""
    for number, *cells in frame.iter_rows():
        yield number, cells
