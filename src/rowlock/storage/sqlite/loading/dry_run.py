"""Dry run: load and roll back, then report what would change, with a sample of rows before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import apsw

from rowlock.storage.chunk import all_new, in_key_order
from rowlock.storage.plain import plain
from rowlock.storage.row_errors import RowErrors
from rowlock.storage.sqlite.loading.merge import STAGE, Merge, savepoint
from rowlock.storage.sqlite.loading.table_schema import find_table, quoted
from rowlock.storage.sqlite.loading.wipe import wiped
from rowlock.storage.tables import Change, Load, Loaded

if TYPE_CHECKING:
    import polars as pl


class _Undo(Exception):
    """Raised to roll back a savepoint."""


def dry_run(connection: apsw.Connection, load: Load, frame: pl.DataFrame, scope: Mapping[str, Any] | None) -> Loaded:
    """Return what the load would do (after a wipe, if `scope` is given); leaves the transaction unchanged."""
    import polars as pl

    if find_table(connection, load.table) is None:
        return all_new(load, frame)

    put = Merge(connection, load)
    row_errors = RowErrors()
    frame = put.exact(in_key_order(load, frame), row_errors)
    with put.staged(frame):
        numbers = frame["row"].to_list()
        loaded = _undone(connection, put, numbers, row_errors, scope)
        bad = pl.Series([refused.row for refused in loaded.refused], dtype=pl.UInt32)
        places = frame["row"].is_in(bad).arg_true().to_list()
        connection.executemany(f"DELETE FROM {STAGE} WHERE rowid = ? + 1", [(place,) for place in places])  # noqa: S608
        return replace(
            loaded,
            changed=_changed(connection, put) if put.updates else {},
            sample=_sample(connection, put, numbers, scope is not None) if load.sample else [],
        )


def _undone(
    connection: apsw.Connection,
    put: Merge,
    numbers: Sequence[int],
    row_errors: RowErrors,
    scope: Mapping[str, Any] | None,
) -> Loaded:
    loaded = None
    try:
        with savepoint(connection):
            if scope is not None:
                wiped(connection, put.load.table, scope)
            loaded = put.all(numbers, row_errors)
            raise _Undo
    except _Undo:
        assert loaded is not None
        return loaded


def _changed(connection: apsw.Connection, put: Merge) -> dict[str, int]:
    if not put.differs:
        return {}
    counts = ", ".join(f"count(*) FILTER (WHERE {differs})" for differs in put.differs.values())
    row: Any = connection.execute(
        f"SELECT {counts} FROM {STAGE} s CROSS JOIN {put.table_schema.sql} t WHERE {put.same_key}"  # noqa: S608 - quoted
    ).fetchone()
    return dict(zip(put.differs, row, strict=True))


def _sample(connection: apsw.Connection, put: Merge, numbers: Sequence[int], replaces: bool) -> list[Change]:
    """Return the first rows, by key, that would be inserted or updated; the first of all rows if `replaces`."""
    old = ", ".join(f"t.{quoted(name)}" for name in put.names)
    new = ", ".join(f"s.c{place}" for place in range(len(put.names)))
    meets = bool(put.load.key) and (put.updates or replaces)
    same = put.same_key if meets else "FALSE"
    # In the LEFT JOIN, a key column of the table is NULL only if no row has the staged row's key.
    missing = f"t.{quoted(put.load.key[0])} IS NULL" if meets else "TRUE"
    differs = "TRUE" if replaces else " OR ".join(put.differs.values()) or "FALSE"
    rows: list[Any] = connection.execute(
        f"SELECT s.rowid - 1, {missing}, {old}, {new} FROM {STAGE} s LEFT JOIN {put.table_schema.sql} t ON {same}"  # noqa: S608
        f" WHERE {missing} OR {differs} ORDER BY s.rowid LIMIT {int(put.load.sample)}"
    ).fetchall()
    width = len(put.names)
    return [
        Change(
            numbers[row[0]],
            None if row[1] else dict(zip(put.names, map(plain, row[2 : 2 + width]), strict=True)),
            dict(zip(put.names, map(plain, row[2 + width :]), strict=True)),
        )
        for row in rows
    ]
