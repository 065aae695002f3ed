"""What a table of the user's looks like: its columns, what they take, and which of them are unique together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.errors import ImportFault, StoreError
from rowlock.storage.tables import Column, FoundColumn, FoundTable, Kind

TEXTS = ("text", "varchar", "bpchar", "citext", "name")
_KINDS = {
    **dict.fromkeys(TEXTS, Kind.TEXT),
    **dict.fromkeys(("int2", "int4", "int8"), Kind.INTEGER),
    **dict.fromkeys(("float4", "float8"), Kind.FLOAT),
    **dict.fromkeys(("timestamp", "timestamptz"), Kind.DATETIME),
    **dict.fromkeys(("json", "jsonb"), Kind.JSON),
    "numeric": Kind.DECIMAL,
    "bool": Kind.BOOLEAN,
    "date": Kind.DATE,
    "time": Kind.TIME,
    "uuid": Kind.UUID,
}
_MADE_OF = {
    Kind.TEXT: "TEXT",
    Kind.INTEGER: "BIGINT",
    Kind.FLOAT: "DOUBLE PRECISION",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.DATETIME: "TIMESTAMPTZ",
    Kind.TIME: "TIME",
    Kind.UUID: "UUID",
    Kind.JSON: "JSONB",
}
_NO_TABLES = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index"}
_NAME_AND_KIND = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text AS kind,
    EXISTS (SELECT FROM pg_constraint d WHERE d.conrelid = c.oid AND d.condeferrable) AS deferrable
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)
"""
# A domain is what it stands for, however many domains lie between; its NOT NULL and its default are the column's.
_COLUMNS = """
WITH RECURSIVE taken AS (
    SELECT a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attnotnull AS filled,
        a.attgenerated <> '' OR a.attidentity = 'a' AS made,
        a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '' AS given, a.atttypid AS base,
        a.atttypmod AS modifier
    FROM pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT attnum, attname, atttypid, atttypmod, attcollation, filled OR d.typnotnull, made,
        given OR d.typdefault IS NOT NULL, d.typbasetype, d.typtypmod
    FROM taken JOIN pg_type d ON d.oid = taken.base AND d.typtype = 'd'
)
SELECT attname, format_type(atttypid, atttypmod) AS type, format_type(atttypid, -1) AS bare, filled, made, given,
    CASE b.typtype WHEN 'e' THEN 'text' ELSE b.typname END AS base,
    b.typname = 'citext' OR NOT coalesce(c.collisdeterministic, TRUE) AS folds,
    CASE WHEN b.typname = 'numeric' AND modifier >= 4 THEN ((modifier - 4) & 2047 # 1024) - 1024 END AS places
FROM taken JOIN pg_type b ON b.oid = taken.base AND b.typtype <> 'd'
LEFT JOIN pg_collation c ON c.oid = taken.attcollation ORDER BY attnum
"""
# An index with another collation than its column's is of no use for looking rows up.
_KEYS = """
SELECT (
    SELECT array_agg(a.attname::text) FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE k.place <= i.indnkeyatts
) AS names
FROM pg_index i
WHERE i.indrelid = $1 AND i.indisunique AND NOT EXISTS (
    SELECT FROM unnest(i.indkey::int2[], i.indcollation::oid[]) AS k (number, collation_)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
    WHERE k.collation_ <> a.attcollation
) AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """A table, as statements need to know it."""

    sql: str  # schema and name, quoted
    schema: str
    name: str
    columns: Sequence[FoundColumn]
    bare: Mapping[str, str]  # types without length, in which a cast cuts nothing off
    bases: Mapping[str, str]  # types behind the domains
    places: Mapping[str, int]  # that a number keeps behind the point, where that is limited
    keys: Sequence[frozenset[str]]
    deferrable: bool  # some of its rules may be checked as late as at the commit


def quoted(name: str) -> str:
    """An identifier, whatever it consists of."""
    return '"' + name.replace('"', '""') + '"'


def place(name: str) -> str:
    """The table that a name, or schema.name, stands for."""
    schema, dot, table = name.partition(".")
    return f"{quoted(schema)}.{quoted(table)}" if schema and dot and table else quoted(name)


async def shape_of(connection: Any, name: str) -> Shape | None:
    """How a table looks, found by the search path; one whose name has a dot in it is found, too."""
    for candidate in dict.fromkeys((place(name), quoted(name))):
        if (row := await connection.fetchrow(_NAME_AND_KIND, candidate)) is not None:
            break
    else:
        return None
    if row["kind"] not in ("r", "p"):
        raise ImportFault(f"{name} is {_NO_TABLES.get(row['kind'], 'no table')}: rows are loaded into tables only")
    columns = await connection.fetch(_COLUMNS, row["oid"])
    keys = await connection.fetch(_KEYS, row["oid"])
    return Shape(
        sql=f"{quoted(row['nspname'])}.{quoted(row['relname'])}",
        schema=row["nspname"],
        name=row["relname"],
        columns=[_column(each) for each in columns],
        bare={each["attname"]: each["bare"] for each in columns},
        bases={each["attname"]: each["base"] for each in columns},
        places={each["attname"]: each["places"] for each in columns if each["places"] is not None},
        keys=[frozenset(each["names"]) for each in keys],
        deferrable=row["deferrable"],
    )


async def must_have(connection: Any, name: str, columns: Sequence[str] = ()) -> Shape:
    """The shape of a table that has to be there with these columns."""
    shape = await shape_of(connection, name)
    if shape is None:
        raise StoreError(f"there is no table {name}")
    if missing := [column for column in columns if column not in shape.bare]:
        raise StoreError(f"table {name} has no column {', '.join(missing)}")
    return shape


async def found(connection: Any, name: str) -> FoundTable | None:
    shape = await shape_of(connection, name)
    if shape is None:
        return None
    empty = await connection.fetchval(f"SELECT NOT EXISTS (SELECT FROM {shape.sql})")  # noqa: S608 - quoted
    return FoundTable(name, shape.columns, shape.keys, empty)


def creation(name: str, columns: Sequence[Column], key: Sequence[str]) -> str:
    """The statement that creates a table."""
    parts = [f"{quoted(column.name)} {_type(column)}{'' if column.nullable else ' NOT NULL'}" for column in columns]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    return f"CREATE TABLE IF NOT EXISTS {place(name)} ({', '.join(parts)})"


def _column(row: Any) -> FoundColumn:
    kind = None if row["made"] else _KINDS.get(row["base"])
    return FoundColumn(
        row["attname"],
        row["type"],
        kind,
        nullable=not row["filled"],
        has_default=row["given"],
        folds=row["folds"],
    )


def _type(column: Column) -> str:
    if column.kind is not Kind.DECIMAL:
        return _MADE_OF[column.kind]
    if column.digits is None or column.places is None:
        return "NUMERIC"  # NUMERIC(12) alone would be one of whole numbers
    return f"NUMERIC({int(column.digits)}, {int(column.places)})"
