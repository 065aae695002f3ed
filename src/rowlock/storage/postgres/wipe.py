"""Deletes rows of a user's table by column values, before a load replaces them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import asyncpg

from rowlock.storage.postgres.connection import message
from rowlock.storage.postgres.stage import LOAD_SECONDS, spelled
from rowlock.storage.postgres.table_schema import TEXTS, TableSchema, quoted
from rowlock.storage.row_errors import referred_to


async def wiped(connection: Any, shape: TableSchema, scope: Mapping[str, Any]) -> int:
    """Deletes the rows that a load of these values would have created; returns how many."""
    conditions, given = ["TRUE"], []
    types = {column.name: column.type for column in shape.columns}
    for name, value in scope.items():
        if value is None:
            conditions.append(f"{quoted(name)} IS NULL")
            continue
        given.append(spelled(value))
        # Rounded as the column rounds, but not truncated: a text that is too long matches no row.
        type = shape.bare[name] if shape.bases[name] in TEXTS else types[name]
        column, cell = quoted(name), f"CAST(${len(given)}::text AS {type})"
        if shape.bases[name] == "json":
            column, cell = f"{column}::jsonb", f"{cell}::jsonb"
        conditions.append(f"{column} = {cell}")
    statement = f"DELETE FROM {shape.sql} WHERE {' AND '.join(conditions)}"  # noqa: S608 - quoted
    try:
        done: str = await connection.execute(statement, *given, timeout=LOAD_SECONDS)
    except (asyncpg.ForeignKeyViolationError, asyncpg.RestrictViolationError) as error:
        message(error)  # strips row data from the stack
        raise referred_to(shape.name, error.constraint_name) from error
    return int(done.split()[-1])
