"""Records in MongoDB: a record is one document, without the fields that are None."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from pymongo.errors import DuplicateKeyError

from rowlock.storage.kinds import Kind, R, Seen
from rowlock.storage.mongo.connection import Document, Scope, Work
from rowlock.storage.mongo.dates import floor
from rowlock.storage.mongo.documents import BY_ID
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.jobs.failures import remove_first

T = TypeVar("T")
_NOW = "_now"


class Recording(ABC):
    """The verbs on records."""

    @abstractmethod
    async def _one(self, work: Work[T]) -> T:
        """Run work that is one statement."""

    async def read(self, kind: Kind[R], *key: Any, by: str | None = None) -> Seen[R]:
        async def look(scope: Scope) -> Seen[R]:
            given = scope.clock.now()
            # With a record comes the server's time, which costs another round trip only if there is none.
            shown = _shown(kind) if given is None else None
            where = _id(kind, key) if by is None else dict(zip(_order(kind, by), map(_stored, key), strict=True))
            found = await scope[kind.collection].find_one(where, shown, session=scope.session)
            if found is None:
                return Seen(None, await scope.now())
            return Seen(_record(kind, found), found[_NOW] if given is None else floor(given))

        return await self._one(look)

    async def insert(self, kind: Kind[R], record: R) -> bool:
        async def add(scope: Scope) -> bool:
            document = _id(kind, kind.key_of(record)) | _set(_fields(kind, record))
            # Look first: an error in a transaction ends it.
            if scope.session is not None and await scope[kind.collection].find_one(
                {"_id": document["_id"]}, {"_id": 1}, session=scope.session
            ):
                return False
            try:
                await scope[kind.collection].insert_one(document, session=scope.session)
            except DuplicateKeyError:
                if scope.session is None:
                    return False
                raise  # the next try of the transaction sees it
            return True

        return await self._one(add)

    async def update(self, kind: Kind[R], read: R, changed: R) -> bool:
        # Only what changes is written: a field that a newer release has added stays.
        before, after = _fields(kind, read), _fields(kind, changed)
        differing = {name: value for name, value in after.items() if value != before[name]}
        changes: Document = {}
        if written := _set(differing):
            changes["$set"] = written
        if gone := differing.keys() - written.keys():
            changes["$unset"] = dict.fromkeys(gone, "")

        async def change(scope: Scope) -> bool:
            if not changes:
                found = await scope[kind.collection].find_one(_same(kind, read), {"_id": 1}, session=scope.session)
                return found is not None
            done = await scope[kind.collection].update_one(
                _same(kind, read), changes, hint=BY_ID, session=scope.session
            )
            return done.matched_count > 0

        return await self._one(change)

    async def delete(self, kind: Kind[R], read: R) -> bool:
        async def delete(scope: Scope) -> bool:
            done = await scope[kind.collection].delete_one(_same(kind, read), hint=BY_ID, session=scope.session)
            return done.deleted_count > 0

        return await self._one(delete)

    async def scan(
        self,
        kind: Kind[R],
        by: str | None = None,
        *,
        equal: Mapping[str, Any] | None = None,
        before: Any = None,
        limit: int | None = None,
    ) -> list[R]:
        if limit is not None and limit <= 0:
            return []
        paths = _paths(kind)
        where = {paths[name]: _stored(value) for name, value in (equal or {}).items()}
        if before is not None:
            where[paths[kind.first(by, equal or {})]] = {"$lt": _stored(before)}
        order = list(_order(kind, by, equal or {}).items())

        async def look(scope: Scope) -> list[Document]:
            found = scope[kind.collection].find(where, session=scope.session).sort(order)
            return await (found if limit is None else found.limit(limit)).to_list()

        return [_record(kind, document) for document in await self._one(look)]

    async def remove(self, kind: Kind[R], by: str, before: Any, limit: int) -> int:
        path = _paths(kind)[kind.first(by)]
        where = {path: {"$lt": _stored(before)}}
        return await self._one(lambda scope: remove_first(scope, kind.collection, where, path, limit))


def indexes_of(kind: Kind[Any]) -> tuple[Index, ...]:
    """Return the indexes of a kind, and its collection."""
    declared = (
        Index(
            kind.collection,
            index.name,
            tuple(_order(kind, index.name).items()),
            unique=index.unique,
            expire_seconds=0 if index.expires else None,
        )
        for index in kind.indexes
    )
    return Index(kind.collection), *declared


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@cache
def _paths(kind: Kind[Any]) -> Mapping[str, str]:
    """Return the path of each field in the document."""
    paths = {column.name: _camel(column.name) for column in kind.columns}
    if len(kind.key) == 1:
        return paths | {kind.key[0]: "_id"}
    return paths | {name: f"_id.{paths[name]}" for name in kind.key}


@cache
def _shown(kind: Kind[Any]) -> Document:
    return dict.fromkeys((_paths(kind)[column.name] for column in kind.others), 1) | {_NOW: "$$NOW"}


def _order(kind: Kind[Any], by: str | None, equal: Container[str] = ()) -> dict[str, int]:
    order = kind.order(by, equal)
    return {_paths(kind)[one.removeprefix("-")]: -1 if one.startswith("-") else 1 for one in order}


def _id(kind: Kind[Any], key: tuple[Any, ...]) -> Document:
    values = [*map(_stored, key)]
    if len(values) == 1:
        return {"_id": values[0]}
    return {"_id": {_camel(name): value for name, value in zip(kind.key, values, strict=True)}}


def _stored(value: Any) -> Any:
    match value:
        case datetime():
            return floor(value)
        case Enum():
            return value.value
    return value


def _fields(kind: Kind[R], record: R) -> Document:
    """Return the fields that are not in the key, None included."""
    return {_paths(kind)[column.name]: _stored(getattr(record, column.name)) for column in kind.others}


def _set(fields: Document) -> Document:
    return {name: value for name, value in fields.items() if value is not None}


def _same(kind: Kind[R], read: R) -> Document:
    """Return the condition that the record is the one that was read; None matches a field that is missing."""
    return _id(kind, kind.key_of(read)) | _fields(kind, read)


def _record(kind: Kind[R], document: Document) -> R:
    values = []
    for column in kind.columns:
        value: Any = document
        for part in _paths(kind)[column.name].split("."):
            value = value.get(part)
        values.append(column.value(value))
    return kind.record(*values)
