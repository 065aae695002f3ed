"""What a table of the user's looks like in SQLite: its columns, what they take, and which are unique together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from rowlock.errors import ImportFault, StoreError
from rowlock.storage.tables import Column, FoundColumn, FoundTable, Kind

# The first word that a declared type contains decides, as with SQLite's own affinities.
_KINDS = (
    ("BOOL", Kind.BOOLEAN),
    ("DATETIME", Kind.DATETIME),
    ("TIMESTAMP", Kind.DATETIME),
    ("DATE", Kind.DATE),
    ("TIME", Kind.TIME),
    ("UUID", Kind.UUID),
    ("JSON", Kind.JSON),
    ("INT", Kind.INTEGER),
    ("CHAR", Kind.TEXT),
    ("CLOB", Kind.TEXT),
    ("TEXT", Kind.TEXT),
    ("STRING", Kind.TEXT),
    ("ANY", Kind.TEXT),
    ("REAL", Kind.FLOAT),
    ("FLOA", Kind.FLOAT),
    ("DOUB", Kind.FLOAT),
    ("DEC", Kind.DECIMAL),
    ("NUM", Kind.DECIMAL),
)
# Decimals are texts: NUMERIC would keep 15 digits of them. Moments are ISO texts, which DATE and its like leave alone.
_MADE_OF = {
    Kind.INTEGER: "INTEGER",
    Kind.FLOAT: "REAL",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.DATETIME: "DATETIME",
    Kind.TIME: "TIME",
}
_TABLE = "SELECT schema, name, type FROM pragma_table_list WHERE lower(name) = lower(?) AND lower(schema) LIKE lower(?)"
_COLUMNS = 'SELECT name, type, "notnull", dflt_value IS NOT NULL, pk, hidden FROM pragma_table_xinfo(?, ?)'
_INDEXES = 'SELECT name FROM pragma_index_list(?, ?) WHERE "unique" AND NOT partial'
_INDEXED = "SELECT name FROM pragma_index_info(?, ?)"
_REFERS = "SELECT EXISTS (SELECT 1 FROM pragma_foreign_key_list(?, ?))"
_HAS_ROWID = "SELECT NOT wr FROM pragma_table_list WHERE name = ? AND schema = ?"


@dataclass(frozen=True, slots=True)
class Shape:
    """A table, as statements need to know it."""

    sql: str  # schema and name, quoted
    columns: Sequence[FoundColumn]
    keys: Sequence[frozenset[str]]
    refers: bool  # to rows of other tables, or its own


def quoted(name: str) -> str:
    """An identifier, whatever it consists of."""
    return '"' + name.replace('"', '""') + '"'


def place(connection: apsw.Connection, name: str) -> tuple[str, str]:
    """The schema and table that a name, or schema.name, stands for."""
    schema, dot, table = name.partition(".")
    schemas = {row[0].lower() for row in connection.execute("SELECT name FROM pragma_database_list")}
    return (schema, table) if dot and table and schema.lower() in schemas else ("main", name)


def shape_of(connection: apsw.Connection, name: str) -> Shape | None:
    schema, table = place(connection, name)
    found = connection.execute(_TABLE, (table, schema)).fetchone()
    if found is None:
        return None
    schema, table, kind = found
    if kind != "table":
        what = "a view" if kind == "view" else f"a {kind} table"
        raise ImportFault(f"{name} is {what}: rows are loaded into ordinary tables only")
    rows: list[Any] = connection.execute(_COLUMNS, (table, schema)).fetchall()
    indexes: list[Any] = connection.execute(_INDEXES, (table, schema)).fetchall()
    keys = [_indexed(connection, schema, index) for (index,) in indexes]
    primary = {column: type.upper() for column, type, _, _, pk, _ in rows if pk}
    ((has_rowid,),) = connection.execute(_HAS_ROWID, (table, schema)).fetchall()
    rowid = bool(has_rowid) and list(primary.values()) == ["INTEGER"]
    if primary:
        keys.append(frozenset(primary))
    columns = [
        FoundColumn(
            column,
            type,
            None if hidden else _kind(type),
            not filled,
            bool(default or hidden or (pk and rowid)),
            folds=_folds(connection, schema, table, column),
        )
        for column, type, filled, default, pk, hidden in rows
    ]
    ((refers,),) = connection.execute(_REFERS, (table, schema)).fetchall()
    keys = list(dict.fromkeys(key for key in keys if key))
    return Shape(f"{quoted(schema)}.{quoted(table)}", columns, keys, bool(refers))


def must_have(connection: apsw.Connection, name: str, columns: Sequence[str] = ()) -> Shape:
    """The shape of a table that has to be there with these columns."""
    shape = shape_of(connection, name)
    if shape is None:
        raise StoreError(f"there is no table {name}")
    there = {column.name.lower() for column in shape.columns}
    if missing := [column for column in columns if column.lower() not in there]:
        raise StoreError(f"table {name} has no column {', '.join(missing)}")
    return shape


def found(connection: apsw.Connection, name: str) -> FoundTable | None:
    shape = shape_of(connection, name)
    if shape is None:
        return None
    ((filled,),) = connection.execute(f"SELECT EXISTS (SELECT 1 FROM {shape.sql})").fetchall()  # noqa: S608 - quoted
    return FoundTable(name, shape.columns, shape.keys, empty=not filled)


def creation(connection: apsw.Connection, name: str, columns: Sequence[Column], key: Sequence[str]) -> str:
    """The statement that creates a table."""
    parts = [
        f"{quoted(column.name)} {_MADE_OF.get(column.kind, 'TEXT')}{'' if column.nullable else ' NOT NULL'}"
        for column in columns
    ]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    schema, table = place(connection, name)
    return f"CREATE TABLE IF NOT EXISTS {quoted(schema)}.{quoted(table)} ({', '.join(parts)})"


def _indexed(connection: apsw.Connection, schema: str, index: str) -> frozenset[str]:
    names: list[Any] = [column for (column,) in connection.execute(_INDEXED, (index, schema))]
    return frozenset() if None in names else frozenset(names)  # one over an expression is of no use here


def _folds(connection: apsw.Connection, schema: str, table: str, column: str) -> bool:
    _, collation, *_ = connection.column_metadata(schema, table, column)
    return collation.upper() not in ("BINARY", "RTRIM")


def _kind(declared: str) -> Kind | None:
    upper = declared.upper()
    if "BLOB" in upper:
        return None
    return next((kind for word, kind in _KINDS if word in upper), Kind.TEXT if not upper else Kind.DECIMAL)
