"""Records of users' tables: their schema, how rows are loaded into them, and the result."""

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
    digits: int | None = None  # of a decimal, in total
    places: int | None = None  # of these, after the decimal point


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column of an existing table."""

    name: str
    type: str  # as the database names it
    kind: Kind | None  # None: nothing can be loaded into it
    nullable: bool
    has_default: bool  # or is generated: a load may omit it
    folds: bool = False  # compares some different texts (such as letter case) as equal
    generated: bool = False  # the database computes its values and accepts none


@dataclass(frozen=True, slots=True)
class FoundTable:
    """An existing table."""

    name: str
    columns: Sequence[FoundColumn]
    keys: Sequence[frozenset[str]]  # the columns of each unique index over all rows
    empty: bool
    refers_to_itself: bool = False  # has a foreign key to itself


class Mode(StrEnum):
    """What a load does with rows that exist already."""

    UPSERT = "upsert"  # insert new rows, update rows that differ
    INSERT = "insert"  # insert; an existing key is an error of its row
    REPLACE = "replace"  # wipe existing rows, then insert


@dataclass(frozen=True, slots=True)
class Replaces:
    """Rows that an import replaces chunk by chunk: those with these values that it has not loaded itself."""

    import_id: str
    scope: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Load:
    """How the rows of a frame are loaded into a table."""

    table: str  # name, or schema.name
    columns: Sequence[Column]
    key: Sequence[str]  # empty: every row is inserted
    mode: Mode
    untouched: Sequence[str] = ()  # columns that are inserted but never updated
    unwatched: Sequence[str] = ()  # columns that are written, but alone cause no update (provenance)
    direct: bool = False  # likely no key of these rows exists: try to insert directly first
    sample: int = 0  # number of changed rows to return, before and after; for a dry run
    later: bool = False  # a later load tries rows with missing references again: refuse them here untried
    replaces: Replaces | None = None  # the older rows that these replace


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that the database refused."""

    row: int
    # key_exists, not_null, foreign_key, check, unique, policy, suppressed, deleted, out_of_range, too_precise,
    # too_long, refused
    code: str
    reason: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One row that a dry run would insert or update."""

    row: int
    before: Mapping[str, Any] | None  # None: a new row
    after: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load."""

    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    refused: Sequence[Refused] = ()
    changed: Mapping[str, int] | None = None  # for a dry run: how often each column would change
    sample: Sequence[Change] = ()
