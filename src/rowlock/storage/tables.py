"""What passes between an import and the tables of its users: their shape, and how rows are put into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """The kinds of values that a field of a row may have."""

    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DATE = "date"
    DATETIME = "datetime"
    TIME = "time"
    UUID = "uuid"
    JSON = "json"  # anything else, as JSON text


@dataclass(frozen=True, slots=True)
class Column:
    """A column that rows are loaded into."""

    name: str
    kind: Kind
    nullable: bool = False
    length_max: int | None = None  # of text, in characters
    digits: int | None = None  # of a decimal, in all
    places: int | None = None  # of these, behind the point


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column of a table that is there."""

    name: str
    type: str  # in the database's own words
    kind: Kind | None  # None: one that nothing can be loaded into
    nullable: bool
    has_default: bool  # or is generated: it may be left out
    folds: bool = False  # texts that differ, in letter case or more, may be equal to it


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table that is there."""

    name: str
    columns: Sequence[FoundColumn]
    keys: Sequence[frozenset[str]]  # the columns of each unique index that holds for all rows
    empty: bool


class Mode(StrEnum):
    """What becomes of rows that are there already."""

    UPSERT = "upsert"  # insert what is new, update what differs
    INSERT = "insert"  # insert; a key that exists is an error of its row
    REPLACE = "replace"  # wipe what is there, then insert


@dataclass(frozen=True, slots=True)
class Load:
    """How the rows of a frame go into a table."""

    table: str  # name, or schema.name
    columns: Sequence[Column]
    key: Sequence[str]  # empty: rows have none, and each is inserted
    mode: Mode
    untouched: Sequence[str] = ()  # columns that are written when a row is inserted, and never updated
    unwatched: Sequence[str] = ()  # columns that are written, but by themselves make no row differ (provenance)
    direct: bool = False  # likely no key of these rows exists: try the short way first
    sample: int = 0  # keep so many rows before and after; for a dry run
    refused_max: int = 10_000  # more rows that the database refuses fail the load as a whole


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that the database itself did not take."""

    row: int
    code: str  # key_exists, not_null, foreign_key, check, unique, out_of_range, too_precise, too_long, refused
    reason: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One row that a dry run would insert or update."""

    row: int
    before: Mapping[str, Any] | None  # None: it is new
    after: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What became of the rows of a load."""

    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    refused: Sequence[Refused] = ()
    changed: Mapping[str, int] | None = None  # where a sample was asked for: how often each column would change
    sample: Sequence[Change] = ()
