"""Read the schema of a user's SQLite table: columns, types, unique keys, references and triggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import apsw

from rowlock.errors import ImportFault, StatementRefused
from rowlock.storage.exact import Form, Keeps
from rowlock.storage.references import SelfReference
from rowlock.storage.tables import Column, FoundColumn, FoundTable, Kind

# The first of these words that a declared type contains decides, as in SQLite's own affinity rules.
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
# Decimals are text: NUMERIC would keep 15 digits. Times are ISO 8601 text, which DATE, DATETIME and TIME do not change.
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
_REFERENCES = 'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?, ?) ORDER BY id, seq'
_TRIGGERS = """
SELECT EXISTS (SELECT 1 FROM {schema}.sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(:table))
    OR EXISTS (SELECT 1 FROM sqlite_temp_master WHERE type = 'trigger' AND lower(tbl_name) = lower(:table))
"""
_HAS_ROWID = "SELECT NOT wr, strict FROM pragma_table_list WHERE name = ? AND schema = ?"


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The schema of a user's table, as far as loads need it."""

    sql: str  # schema and name, quoted
    columns: Sequence[FoundColumn]
    keys: Sequence[frozenset[str]]
    keeps: Mapping[str, Keeps]  # by lower-case name: columns that do not store every value exactly
    refers: bool  # has foreign keys, to other tables or itself
    own_references: Sequence[SelfReference]
    triggers: bool


def quoted(name: str) -> str:
    """Quote an identifier."""
    return '"' + name.replace('"', '""') + '"'


def place(connection: apsw.Connection, name: str) -> tuple[str, str]:
    """Split `name` or `schema.name` into schema and table (default schema: main)."""
    schema, dot, table = name.partition(".")
    schemas = {row[0].lower() for row in connection.execute("SELECT name FROM pragma_database_list")}
    return (schema, table) if dot and table and schema.lower() in schemas else ("main", name)


def find_table(connection: apsw.Connection, name: str) -> TableSchema | None:
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
    keyed = sorted((row for row in rows if row[4]), key=lambda row: int(row[4]))
    primary = {column: type.upper() for column, type, *_ in keyed}
    ((has_rowid, strict),) = connection.execute(_HAS_ROWID, (table, schema)).fetchall()
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
            generated=bool(hidden),
        )
        for column, type, filled, default, pk, hidden in rows
    ]
    references: list[Any] = connection.execute(_REFERENCES, (table, schema)).fetchall()
    own_references = _own(table, list(primary), references)
    triggers = connection.execute(_TRIGGERS.format(schema=quoted(schema)), {"table": table}).fetchall()
    keys = list(dict.fromkeys(key for key in keys if key))
    keeps = {each.name.lower(): kept for each in columns if (kept := _keeps(each.type, bool(strict))) != Keeps()}
    return TableSchema(
        f"{quoted(schema)}.{quoted(table)}",
        columns,
        keys,
        keeps,
        refers=bool(references),
        own_references=own_references,
        triggers=triggers == [(1,)],
    )


def must_have(connection: apsw.Connection, name: str, columns: Sequence[str] = ()) -> TableSchema:
    """Return the table's schema; raises StatementRefused if the table or one of these columns is missing."""
    table_schema = find_table(connection, name)
    if table_schema is None:
        raise StatementRefused(f"there is no table {name}")
    there = {column.name.lower() for column in table_schema.columns}
    if missing := [column for column in columns if column.lower() not in there]:
        raise StatementRefused(f"table {name} has no column {', '.join(missing)}")
    return table_schema


def found(connection: apsw.Connection, name: str) -> FoundTable | None:
    table_schema = find_table(connection, name)
    if table_schema is None:
        return None
    ((filled,),) = connection.execute(f"SELECT EXISTS (SELECT 1 FROM {table_schema.sql})").fetchall()  # noqa: S608 - quoted
    return FoundTable(
        name, table_schema.columns, table_schema.keys, not filled, refers_to_itself=bool(table_schema.own_references)
    )


def creation(connection: apsw.Connection, name: str, columns: Sequence[Column], key: Sequence[str]) -> str:
    """Return the statement that creates a table."""
    parts = [
        f"{quoted(column.name)} {_MADE_OF.get(column.kind, 'TEXT')}{'' if column.nullable else ' NOT NULL'}"
        for column in columns
    ]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    schema, table = place(connection, name)
    return f"CREATE TABLE IF NOT EXISTS {quoted(schema)}.{quoted(table)} ({', '.join(parts)})"


def _own(table: str, primary: Sequence[str], references: Sequence[Any]) -> list[SelfReference]:
    """Return the foreign keys to the same table; one that names no columns refers to the primary key."""
    found = []
    for _, rows in groupby(references, key=lambda row: row[0]):
        parts = list(rows)
        if parts[0][1].lower() == table.lower():
            referred = primary if parts[0][3] is None else [row[3] for row in parts]
            columns = [row[2].lower() for row in parts]
            found.append(SelfReference("", columns, [column.lower() for column in referred]))
    return found


def _indexed(connection: apsw.Connection, schema: str, index: str) -> frozenset[str]:
    names: list[Any] = [column for (column,) in connection.execute(_INDEXED, (index, schema))]
    return frozenset() if None in names else frozenset(names)  # an index on an expression is no key


def _folds(connection: apsw.Connection, schema: str, table: str, column: str) -> bool:
    _, collation, *_ = connection.column_metadata(schema, table, column)
    return collation.upper() not in ("BINARY", "RTRIM")


def _keeps(declared: str, strict: bool) -> Keeps:
    """Return how a declared type changes values, by SQLite's affinity rules."""
    upper = declared.upper()
    if "INT" in upper:
        return Keeps(form=Form.NUMERIC, as_number=True)
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT", "BLOB")) or not upper or (strict and upper == "ANY"):
        return Keeps()
    if any(word in upper for word in ("REAL", "FLOA", "DOUB")):
        return Keeps(form=Form.DOUBLE, as_number=True)
    return Keeps(form=Form.NUMERIC, as_number=True)


def _kind(declared: str) -> Kind | None:
    upper = declared.upper()
    if "BLOB" in upper:
        return None
    return next((kind for word, kind in _KINDS if word in upper), Kind.TEXT if not upper else Kind.DECIMAL)
