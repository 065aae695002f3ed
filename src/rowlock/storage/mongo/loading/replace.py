"""Replaces documents with those of an import, chunk by chunk, so that no transaction has to hold all of them.

A chunk removes the old documents that have its keys, or another unique value of its rows, in the transaction that
inserts its rows. Those that no row has replaced are removed at the end. An import knows its own documents by `_id`:
the first seven bytes come from the import's id, so that the documents need neither a mark nor a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from bson.objectid import ObjectId

from rowlock.storage.imports import ImportId
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.loading.row_errors import Write, look_up, members
from rowlock.storage.mongo.loading.table_schema import TableSchema, collection, must_have
from rowlock.storage.mongo.loading.wipe import condition
from rowlock.storage.tables import Load, Replaces

_IDS_AT_ONCE = 5_000
_NUMBER_BITS = 40  # the low bits of an `_id`, by which the rows of an import differ


class RowIds:
    """The `_id` of each row of one load of an import; `number` counts the loads of a chunk's hook."""

    def __init__(self, import_id: ImportId, number: int) -> None:
        self._first = _first(import_id) | number % 2**8 << 32

    def id_of(self, row: int) -> ObjectId:
        """Return the `_id` under which this row is inserted: the same in every attempt."""
        return _object_id(self._first | row % 2**32)


def old(table_schema: TableSchema, replaces: Replaces) -> Document:
    """Return the query for the documents that this import replaces."""
    first = _first(replaces.import_id)
    own = {"$gte": _object_id(first), "$lte": _object_id(first | 2**_NUMBER_BITS - 1)}
    return {"$and": [condition(table_schema, replaces.scope), {"_id": {"$not": own}}]}


async def make_room(scope: Scope, table_schema: TableSchema, inserts: Sequence[Write], wiped: Document) -> None:
    """Remove the old documents that have the same values in a unique index as these rows."""
    gone: set[ObjectId] = set()
    for index in table_schema.indexes:
        if any("." in name for name in index.fields):
            continue
        rows = await members(scope, index, [write.after for write in inserts])
        others = [wiped, *([dict(index.where)] if index.where else [])]
        more: Document = {"collation": dict(index.collation)} if index.collation else {}
        async for found in look_up(scope, table_schema, index.fields, rows, others, more):
            gone.add(found["_id"])
    await _remove(scope, table_schema.name, list(gone))


async def remove_left(scope: Scope, load: Load, rows_max: int) -> int:
    """Remove up to `rows_max` old documents that no row has replaced; return their number."""
    assert load.replaces is not None
    table_schema = await must_have(scope, load.table, list(load.replaces.scope))
    asked = old(table_schema, load.replaces)
    found = scope[collection(load.table)].find(asked, {"_id": 1}, session=scope.session).limit(rows_max)
    left = [one["_id"] async for one in found]
    await _remove(scope, load.table, left)
    return len(left)


async def _remove(scope: Scope, table: str, ids: Sequence[ObjectId]) -> None:
    for start in range(0, len(ids), _IDS_AT_ONCE):
        part = {"_id": {"$in": ids[start : start + _IDS_AT_ONCE]}}
        await scope[collection(table)].delete_many(part, session=scope.session)


def _first(import_id: ImportId) -> int:
    given = UUID(import_id).int
    # The seconds of the import, as in any ObjectId, and bits of its id that differ from imports of the same second.
    return ((given >> 80) // 1000 % 2**32 << 64) | given % 2**24 << _NUMBER_BITS


def _object_id(number: int) -> ObjectId:
    return ObjectId(number.to_bytes(12, "big"))
