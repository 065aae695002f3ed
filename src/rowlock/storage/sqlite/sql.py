"""Run Rowlock's named statements on its own connections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apsw

from rowlock.storage.sqlite.rows import Row
from rowlock.storage.statements import statements

SQL = statements("sqlite")

Bindings = Sequence[Any] | Mapping[str, Any]


def run(connection: apsw.Connection, name: str, bindings: Bindings = ()) -> list[Row]:
    return connection.execute(SQL[name], bindings).fetchall()


def run_each(connection: apsw.Connection, name: str, bindings: Iterable[Bindings]) -> list[Row]:
    """Run the statement once per set of bindings; return the rows of all runs."""
    return connection.executemany(SQL[name], bindings).fetchall()


def value(connection: apsw.Connection, name: str, bindings: Bindings = ()) -> Any:
    """Return the first column of the first row; None without a row."""
    return connection.execute(SQL[name], bindings).get
