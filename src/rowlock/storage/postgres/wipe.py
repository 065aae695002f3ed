"""Rows of the user's table removed by what their columns hold, before others take their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.storage.postgres.shape import TEXTS, Shape, quoted
from rowlock.storage.postgres.stage import LOAD_SECONDS, spelled


async def wiped(connection: Any, shape: Shape, scope: Mapping[str, Any]) -> int:
    """Delete the rows that a load of these values would have made, and count them."""
    conditions, given = ["TRUE"], []
    types = {column.name: column.type for column in shape.columns}
    for name, value in scope.items():
        if value is None:
            conditions.append(f"{quoted(name)} IS NULL")
            continue
        given.append(spelled(value))
        # Rounded as the column rounds, but not cut off: a text that is too long is no other row's.
        type = shape.bare[name] if shape.bases[name] in TEXTS else types[name]
        column, cell = quoted(name), f"CAST(${len(given)}::text AS {type})"
        if shape.bases[name] == "json":
            column, cell = f"{column}::jsonb", f"{cell}::jsonb"
        conditions.append(f"{column} = {cell}")
    statement = f"DELETE FROM {shape.sql} WHERE {' AND '.join(conditions)}"  # noqa: S608 - quoted
    done: str = await connection.execute(statement, *given, timeout=LOAD_SECONDS)
    return int(done.split()[-1])
