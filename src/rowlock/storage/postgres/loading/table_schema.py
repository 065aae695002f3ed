"""Reads the schema of a user's table: its columns, the values that they accept, and its unique keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.errors import ImportFault, StatementRefused
from rowlock.storage.exact import Form, Keeps
from rowlock.storage.references import SelfReference
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
_RANGES = {"float4": "1.2e-38 AND 3.4e38", "float8": "2.3e-308 AND 1.7e308"}
_NO_TABLES = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index"}
_NAME_AND_KIND = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text AS kind,
    EXISTS (SELECT FROM pg_constraint d WHERE d.conrelid = c.oid AND d.condeferrable) AS deferrable,
    EXISTS (
        SELECT FROM pg_constraint d WHERE d.conrelid = c.oid AND d.confrelid = c.oid AND d.contype = 'f'
    ) AS refers_to_itself
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)
"""
# Resolves nested domains to the base type; a domain's NOT NULL and default apply to the column.
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
    CASE WHEN b.typname = 'numeric' AND modifier >= 4 THEN ((modifier - 4) & 2047 # 1024) - 1024 END AS places,
    CASE WHEN b.typname IN ('timestamp', 'timestamptz', 'time') AND modifier >= 0 THEN modifier END AS second_places,
    CASE WHEN b.typname = 'varchar' AND modifier >= 4 THEN modifier - 4 END AS characters,
    CASE WHEN b.typname = 'name' THEN b.typlen - 1 END AS bytes
FROM taken JOIN pg_type b ON b.oid = taken.base AND b.typtype <> 'd'
LEFT JOIN pg_collation c ON c.oid = taken.attcollation ORDER BY attnum
"""
# An index with another collation than its column's cannot look rows up.
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
_OWN_REFERENCES = """
SELECT d.conname::text AS name, (
    SELECT array_agg(a.attname::text ORDER BY k.place) FROM unnest(d.conkey) WITH ORDINALITY AS k (number, place)
    JOIN pg_attribute a ON a.attrelid = d.conrelid AND a.attnum = k.number
) AS columns, (
    SELECT array_agg(a.attname::text ORDER BY k.place) FROM unnest(d.confkey) WITH ORDINALITY AS k (number, place)
    JOIN pg_attribute a ON a.attrelid = d.confrelid AND a.attnum = k.number
) AS referred
FROM pg_constraint d WHERE d.conrelid = $1::text::regclass AND d.confrelid = d.conrelid AND d.contype = 'f'
ORDER BY d.conname
"""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The schema of a table, as statements need it."""

    sql: str  # schema and name, quoted
    schema: str
    name: str
    columns: Sequence[FoundColumn]
    bare: Mapping[str, str]  # types without length, so that a cast truncates nothing
    bases: Mapping[str, str]  # types with domains resolved
    keeps: Mapping[str, Keeps]  # columns that do not keep every value exactly
    keys: Sequence[frozenset[str]]
    deferrable: bool  # some of its constraints can be deferred to the commit
    refers_to_itself: bool


def quoted(name: str) -> str:
    """Returns a quoted identifier, with any characters."""
    return '"' + name.replace('"', '""') + '"'


def place(name: str) -> str:
    """Returns the quoted table for `name` or `schema.name`."""
    schema, dot, table = name.partition(".")
    return f"{quoted(schema)}.{quoted(table)}" if schema and dot and table else quoted(name)


async def find_table(connection: Any, name: str) -> TableSchema | None:
    """Returns a table's schema, found by the search path; None if missing. A table name may itself contain a dot."""
    for candidate in dict.fromkeys((place(name), quoted(name))):
        if (row := await connection.fetchrow(_NAME_AND_KIND, candidate)) is not None:
            break
    else:
        return None
    if row["kind"] not in ("r", "p"):
        raise ImportFault(f"{name} is {_NO_TABLES.get(row['kind'], 'no table')}: rows are loaded into tables only")
    columns = await connection.fetch(_COLUMNS, row["oid"])
    keys = await connection.fetch(_KEYS, row["oid"])
    return TableSchema(
        sql=f"{quoted(row['nspname'])}.{quoted(row['relname'])}",
        schema=row["nspname"],
        name=row["relname"],
        columns=[_column(each) for each in columns],
        bare={each["attname"]: each["bare"] for each in columns},
        bases={each["attname"]: each["base"] for each in columns},
        keeps={each["attname"]: kept for each in columns if (kept := _keeps(each)) != Keeps()},
        keys=[frozenset(each["names"]) for each in keys],
        deferrable=row["deferrable"],
        refers_to_itself=row["refers_to_itself"],
    )


async def own_references(connection: Any, table_schema: TableSchema) -> list[SelfReference]:
    """Returns the foreign keys from a table to itself."""
    rows = await connection.fetch(_OWN_REFERENCES, table_schema.sql)
    return [SelfReference(row["name"], row["columns"], row["referred"]) for row in rows]


async def must_have(connection: Any, name: str, columns: Sequence[str] = ()) -> TableSchema:
    """Returns the schema of a table; raises StatementRefused if the table or one of these columns is missing."""
    table_schema = await find_table(connection, name)
    if table_schema is None:
        raise StatementRefused(f"there is no table {name}")
    if missing := [column for column in columns if column not in table_schema.bare]:
        raise StatementRefused(f"table {name} has no column {', '.join(missing)}")
    return table_schema


async def found(connection: Any, name: str) -> FoundTable | None:
    table_schema = await find_table(connection, name)
    if table_schema is None:
        return None
    empty = await connection.fetchval(f"SELECT NOT EXISTS (SELECT FROM {table_schema.sql})")  # noqa: S608 - quoted
    return FoundTable(
        name, table_schema.columns, table_schema.keys, empty, refers_to_itself=table_schema.refers_to_itself
    )


def creation(name: str, columns: Sequence[Column], key: Sequence[str]) -> str:
    """Returns the statement that creates a table."""
    parts = [f"{quoted(column.name)} {_type(column)}{'' if column.nullable else ' NOT NULL'}" for column in columns]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    return f"CREATE TABLE IF NOT EXISTS {place(name)} ({', '.join(parts)})"


def changing(name: str, kind: Kind, kept: Keeps, base: str) -> str | None:
    """Returns SQL for whether a column with the base type `base` would change a value; None if it never does."""
    if kind in (Kind.DATETIME, Kind.TIME):
        return None if kept.second_places is None else f"{name} <> CAST({name} AS {base}({kept.second_places}))"
    if kept.bytes is not None:
        return f"octet_length({name}) > {kept.bytes}"
    if kept.characters is not None:
        return f"char_length({name}) > {kept.characters} AND char_length(rtrim({name}, ' ')) <= {kept.characters}"
    if kind not in (Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT):
        return None
    number = f"CAST(CAST({name} AS text) AS numeric)"
    if kept.places is not None:
        return f"{number} <> round({number}, {kept.places})"
    if kept.form is not None and kind is not Kind.FLOAT:
        size = f"abs({number})"  # a cast of an out-of-range value would fail
        return (
            f"CASE WHEN coalesce({number}, 0) = 0 THEN FALSE WHEN {size} BETWEEN {_RANGES[base]}"
            f" THEN CAST(CAST(CAST({name} AS {base}) AS text) AS numeric) <> {number} ELSE TRUE END"
        )
    return None


def _column(row: Any) -> FoundColumn:
    kind = None if row["made"] else _KINDS.get(row["base"])
    return FoundColumn(
        row["attname"],
        row["type"],
        kind,
        nullable=not row["filled"],
        has_default=row["given"],
        folds=row["folds"],
        generated=row["made"],
    )


def _keeps(row: Any) -> Keeps:
    form = {"float4": Form.SINGLE, "float8": Form.DOUBLE}.get(row["base"])
    return Keeps(
        places=row["places"],
        second_places=row["second_places"],
        form=form,
        characters=row["characters"],
        bytes=row["bytes"],
    )


def _type(column: Column) -> str:
    if column.kind is not Kind.DECIMAL:
        return _MADE_OF[column.kind]
    if column.digits is None or column.places is None:
        return "NUMERIC"  # NUMERIC(12) alone would hold whole numbers only
    return f"NUMERIC({int(column.digits)}, {int(column.places)})"
