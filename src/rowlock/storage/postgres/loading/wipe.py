"""Deletes rows of a user's table by column values, before a load replaces them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import asyncpg

from rowlock.storage.postgres.connection import message
from rowlock.storage.postgres.loading.stage import LOAD_SECONDS, spelled
from rowlock.storage.postgres.loading.table_schema import TEXTS, TableSchema, quoted
from rowlock.storage.row_errors import referred_to

_DEFERRABLE = """
SELECT n.nspname, c.conname, c.conrelid::regclass::text AS child
FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_namespace n ON n.oid = c.connamespace
WHERE c.contype = 'f' AND c.condeferrable AND c.confrelid = $1::text::regclass AND c.conrelid <> c.confrelid
ORDER BY 1, 2
"""


async def wiped(connection: Any, table_schema: TableSchema, scope: Mapping[str, Any]) -> int:
    """Deletes the rows that a load of these values would have created; returns how many."""
    conditions, given = ["TRUE"], []
    types = {column.name: column.type for column in table_schema.columns}
    for name, value in scope.items():
        if value is None:
            conditions.append(f"{quoted(name)} IS NULL")
            continue
        given.append(spelled(value))
        # Rounded as the column rounds, but not truncated: a text that is too long matches no row.
        type = table_schema.bare[name] if table_schema.bases[name] in TEXTS else types[name]
        column, cell = quoted(name), f"CAST(${len(given)}::text AS {type})"
        if table_schema.bases[name] == "json":
            column, cell = f"{column}::jsonb", f"{cell}::jsonb"
        conditions.append(f"{column} = {cell}")
    statement = f"DELETE FROM {table_schema.sql} WHERE {' AND '.join(conditions)}"  # noqa: S608 - quoted
    try:
        done: str = await connection.execute(statement, *given, timeout=LOAD_SECONDS)
    except (asyncpg.ForeignKeyViolationError, asyncpg.RestrictViolationError) as error:
        message(error)  # strips row data from the stack
        raise referred_to(table_schema.name, error.constraint_name) from error
    return int(done.split()[-1])


async def check_references(connection: Any, table_schema: TableSchema) -> None:
    """Raises ImportFault if a deferred constraint would refuse the commit, because rows of other tables refer to it."""
    for schema, name, child in await connection.fetch(_DEFERRABLE, table_schema.sql):
        try:
            await connection.execute(f"SET CONSTRAINTS {quoted(schema)}.{quoted(name)} IMMEDIATE", timeout=LOAD_SECONDS)
        except (asyncpg.ForeignKeyViolationError, asyncpg.RestrictViolationError) as error:
            message(error)  # strips row data from the stack
            raise referred_to(table_schema.name, f"{name} of {child}") from error
