"""Finds the rows that a collection would reject, before they are written: an error would end the transaction.

validator   the server matches the documents against the validator, then against the rule of each field for the reason
unique      the documents with the values of the rows are read; the rows are checked in the order of their writes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import bson
from bson.codec_options import CodecOptions

from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.loading.cells import same
from rowlock.storage.mongo.loading.table_schema import TableSchema, UniqueIndex, collection, column
from rowlock.storage.tables import Refused

BATCH_ROWS = 1_000
BATCH_BYTES = 8 * 1024 * 1024
_OPTIONS: CodecOptions[Document] = CodecOptions(tz_aware=True)


@dataclass(slots=True)
class Write:
    """A row to write: the document as it will be, and as it is if it exists already."""

    row: int
    after: Document
    before: Document | None = None
    changes: Document = field(default_factory=dict)  # of an update: $set and $unset


def not_null(row: int, name: str) -> Refused:
    return Refused(row, "not_null", f"{name} must have a value", name)


async def broken(scope: Scope, table_schema: TableSchema, writes: Sequence[Write]) -> list[Refused]:
    """Return the errors of rows that break the validator of the collection."""
    if table_schema.validator is None:
        return []
    rows = {write.after["_id"]: write for write in writes}
    found: list[Refused] = []
    for batch in _batches([write.after for write in writes]):
        wrong = await _matching(scope, batch, {"$nor": [dict(table_schema.validator)]})
        bad = [document for document in batch if document["_id"] in wrong]
        if not bad:
            continue
        reasons = await _reasons(scope, table_schema, bad)
        for document in bad:
            write = rows[document["_id"]]
            names = [name for name in table_schema.rules if document["_id"] in reasons.get(name, ())]
            found.append(_broken(table_schema, write, names))
    return found


def _broken(table_schema: TableSchema, write: Write, names: Sequence[str]) -> Refused:
    for name in names:
        if write.after.get(name) is None:
            return not_null(write.row, column(name))
    said = [str(table_schema.rules[name].get("description") or f"for {column(name)}") for name in names]
    rules = ", ".join(said) or str(
        (table_schema.validator or {}).get("$jsonSchema", {}).get("description", "the validator")
    )
    return Refused(write.row, "check", f"the row breaks a rule of the table ({rules})")


async def _reasons(scope: Scope, table_schema: TableSchema, bad: Sequence[Document]) -> dict[str, set[Any]]:
    """Return by field the ids of the documents that break its rule."""
    names = list(table_schema.rules)
    found: dict[str, set[Any]] = {}
    for start in range(0, len(names), 50):
        part = names[start : start + 50]
        sides = {}
        for place, name in enumerate(part):
            rule: Document = {"properties": {name: table_schema.rules[name]}}
            if name in table_schema.required:
                rule["required"] = [name]
            sides[f"f{place}"] = [{"$match": {"$nor": [{"$jsonSchema": rule}]}}, {"$project": {"_id": 1}}]
        cursor = await scope.db.aggregate([_given(bad), {"$facet": sides}])
        for told in await cursor.to_list():
            for place, name in enumerate(part):
                found[name] = {one["_id"] for one in told[f"f{place}"]}
    return found


async def contradicting(
    scope: Scope, table_schema: TableSchema, writes: Sequence[Write], key: Iterable[str], wiped: Document | None
) -> list[Refused]:
    """Return the errors of rows with a taken value in a unique index; the index of the key was checked already."""
    own = frozenset(key)
    indexes = [
        index
        for index in table_schema.indexes
        if not (index.is_key and frozenset(index.fields) == own) and not any("." in name for name in index.fields)
    ]
    if not indexes or not writes:
        return []
    taken = [await _Taken.of(scope, table_schema, index, writes, wiped) for index in indexes]
    refused = []
    for write in writes:
        full = next((one for one in taken if not one.free(write)), None)
        if full is None:
            for one in taken:
                one.take(write)
        else:
            names = [column(name) for name in full.index.fields]
            reason = f"another row has the same {', '.join(names)}"
            refused.append(Refused(write.row, "unique", reason, names[0] if len(names) == 1 else None))
    return refused


async def members(scope: Scope, index: UniqueIndex, documents: Sequence[Document]) -> list[Document]:
    """Return those of these documents, which are not stored, that the index would contain."""
    if index.sparse:
        documents = [each for each in documents if any(name in each for name in index.fields)]
    if index.where is None:
        return list(documents)
    inside = set[Any]()
    for batch in _batches(documents):
        inside |= await _matching(scope, batch, dict(index.where))
    return [each for each in documents if each["_id"] in inside]


class _Taken:
    """Which document has which values in one index, after the rows so far."""

    def __init__(self, index: UniqueIndex, inside: set[Any] | None) -> None:
        self.index = index
        self._inside = inside  # ids of the rows that a partial index contains; None: all
        self._holders: dict[Any, Any] = {}

    @classmethod
    async def of(
        cls,
        scope: Scope,
        table_schema: TableSchema,
        index: UniqueIndex,
        writes: Sequence[Write],
        wiped: Document | None,
    ) -> _Taken:
        inside: set[Any] | None = None
        if index.where is not None:
            inside = set()
            for batch in _batches([write.after for write in writes]):
                inside |= await _matching(scope, batch, dict(index.where))
        taken = cls(index, inside)
        others: list[Document] = [dict(index.where)] if index.where else []
        others += [{"$nor": [wiped]}] if wiped is not None else []
        wanted = [write.after for write in writes if taken._is_in(write.after)]
        more: Document = {"collation": dict(index.collation)} if index.collation else {}
        async for found in look_up(scope, table_schema, index.fields, wanted, others, more):
            taken._holders[taken._values(found)] = found["_id"]
        return taken

    def free(self, write: Write) -> bool:
        if not self._is_in(write.after):
            return True
        own = write.after["_id"]
        return bool(self._holders.get(self._values(write.after), own) == own)

    def take(self, write: Write) -> None:
        if write.before is not None:
            before = self._values(write.before)
            if self._holders.get(before) == write.after["_id"]:
                del self._holders[before]
        if self._is_in(write.after):
            self._holders[self._values(write.after)] = write.after["_id"]

    def _is_in(self, document: Document) -> bool:
        if self._inside is not None and document["_id"] not in self._inside:
            return False
        return not self.index.sparse or any(name in document for name in self.index.fields)

    def _values(self, document: Document) -> Any:
        values = [document.get(name) for name in self.index.fields]
        folded = [value.casefold() if self.index.folds and isinstance(value, str) else value for value in values]
        return tuple(map(same, folded))


async def look_up(
    scope: Scope,
    table_schema: TableSchema,
    fields: Sequence[str],
    documents: Sequence[Document],
    others: Sequence[Document] = (),
    more: Mapping[str, Any] | None = None,
) -> Any:
    """Yield the collection's documents that have the same values in these fields as one of the given documents."""
    size = 10 * BATCH_ROWS if len(fields) == 1 else BATCH_ROWS // 2
    for batch in _batches([{name: each.get(name) for name in fields} for each in documents], size):
        one_field: Document = {fields[0]: {"$in": [each[fields[0]] for each in batch]}}
        where = one_field if len(fields) == 1 else {"$or": batch}
        asked = {"$and": [where, *others]} if others else where
        async for found in scope[collection(table_schema.name)].find(asked, session=scope.session, **(more or {})):
            yield found


async def _matching(scope: Scope, documents: Sequence[Document], where: Document) -> set[Any]:
    """Return the ids of the documents, which are not stored, that match."""
    cursor = await scope.db.aggregate([_given(documents), {"$match": where}, {"$project": {"_id": 1}}])
    return {one["_id"] for one in await cursor.to_list()}


def _given(documents: Sequence[Document]) -> Document:
    return {"$documents": {"$literal": list(documents)}}


def _batches(documents: Sequence[Document], rows: int = BATCH_ROWS) -> Iterator[list[Document]]:
    """Yield the documents in batches that fit into a command."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        more = len(bson.encode(document, codec_options=_OPTIONS))
        if batch and (len(batch) >= rows or size + more > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += more
    if batch:
        yield batch
