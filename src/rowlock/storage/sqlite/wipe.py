"""Rows of the user's table removed by what their columns hold, before others take their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apsw

from rowlock.storage.chunk import alone
from rowlock.storage.sqlite.put import kept_rows
from rowlock.storage.sqlite.shape import must_have, quoted


def wiped(connection: apsw.Connection, table: str, scope: Mapping[str, Any]) -> int:
    """Delete the rows that a load of these values would have made, and count them."""
    shape = must_have(connection, table, list(scope))
    conditions = " AND ".join(f"{quoted(column)} IS ?" for column in scope) or "TRUE"
    given = [_kept(value) for value in scope.values()]
    connection.execute(f"DELETE FROM {shape.sql} WHERE {conditions}", given)  # noqa: S608 - quoted
    return connection.changes()


def _kept(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    ((cell,),) = next(kept_rows(alone(value)))
    return cell
