"""Record kinds: what the control plane stores, and the verbs on it.

A kind is a frozen dataclass with a key. Each store maps it to a real table, and a field to a column; on MongoDB to a
collection, in which fields are camelCase and the key is `_id`. The verbs know no rules: `rowlock.control` reads a
record, decides, and writes only if the record is still the one that was read.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import Enum
from types import UnionType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, get_args, get_type_hints

R = TypeVar("R")

MOMENT = timedelta(milliseconds=1)
"""The smallest step of time that every store keeps."""


class Column(NamedTuple):
    """A field of a record."""

    name: str
    type: type
    uuid: bool

    def value(self, given: Any) -> Any:
        """Returns a value of the database as the field's type: an enum has its name in the database."""
        return self.type(given) if given is not None and issubclass(self.type, Enum) else given


class Index(NamedTuple):
    """An order in which records are read."""

    name: str
    fields: tuple[str, ...]  # "-field": descending
    unique: bool = False
    expires: bool = False  # MongoDB itself removes a record at the time in the field


@dataclass(frozen=True, slots=True, eq=False)
class Kind(Generic[R]):
    """One kind of record, and where it is stored."""

    table: str
    record: type[R]
    key: tuple[str, ...]
    indexes: tuple[Index, ...] = ()
    uuids: frozenset[str] = frozenset()  # fields that hold a UUID
    collection: str = ""  # on MongoDB (default: the table's name)
    columns: tuple[Column, ...] = field(init=False)

    def __post_init__(self) -> None:
        types = get_type_hints(self.record)
        columns = (Column(one.name, _plain(types[one.name]), one.name in self.uuids) for one in fields(self.record))  # type: ignore[arg-type]
        object.__setattr__(self, "columns", tuple(columns))
        object.__setattr__(self, "collection", self.collection or self.table)

    @property
    def others(self) -> tuple[Column, ...]:
        """The columns that are not part of the key."""
        return tuple(column for column in self.columns if column.name not in self.key)

    def order(self, by: str | None, equal: Container[str] = ()) -> tuple[str, ...]:
        """Returns the fields of an index (None: the key) that are not equal to something, descending ones with "-"."""
        fields = self.key if by is None else self.index(by).fields
        return tuple(one for one in fields if one.removeprefix("-") not in equal)

    def index(self, name: str) -> Index:
        return next(index for index in self.indexes if index.name == name)

    def key_of(self, record: R) -> tuple[Any, ...]:
        return tuple(getattr(record, name) for name in self.key)

    def first(self, by: str | None, equal: Container[str] = ()) -> str:
        """Returns the first field of an order: the one that `before` limits."""
        return self.order(by, equal)[0].removeprefix("-")


def _plain(hint: Any) -> type:
    """Returns the type of a field without its None."""
    found: type
    (found,) = [one for one in get_args(hint) if one is not type(None)] if isinstance(hint, UnionType) else [hint]
    return found


class Seen(NamedTuple, Generic[R]):
    """What a read saw: the record, or None, and the store's time."""

    record: R | None
    now: datetime


class Records(Protocol):
    """The verbs on records. Each is atomic on its own, in a store as in a transaction."""

    async def read(self, kind: Kind[R], *key: Any, by: str | None = None) -> Seen[R]:
        """Returns the record with this key, or with this value of a unique index, and the store's time."""

    async def insert(self, kind: Kind[R], record: R) -> bool:
        """Adds a record. Returns False and changes nothing if its key, or a value of a unique index, is taken."""

    async def update(self, kind: Kind[R], read: R, changed: R) -> bool:
        """Replaces a record by one with the same key. Returns False if it is not the one that was read any more."""

    async def delete(self, kind: Kind[R], read: R) -> bool:
        """Removes a record. Returns False and changes nothing if it is not the one that was read any more."""

    async def scan(
        self,
        kind: Kind[R],
        by: str | None = None,
        *,
        equal: dict[str, Any] | None = None,
        before: Any = None,
        limit: int | None = None,
    ) -> list[R]:
        """Returns records in the order of an index (default: by key).

        `equal` maps fields to values. `before` limits the first field of the index that is not in `equal`: only records
        with a lower value are returned.
        """

    async def remove(self, kind: Kind[R], by: str, before: Any, limit: int) -> int:
        """Removes up to `limit` records with a lower value in the index's field, lowest first; returns how many."""
