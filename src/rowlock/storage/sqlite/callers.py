"""Run the same SQL through apsw or sqlite3, on Rowlock's own connection or on the caller's."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Protocol

import apsw

from rowlock.storage.sqlite.rows import Row
from rowlock.storage.sqlite.sql import Bindings


class Caller(Protocol):
    """The interface of a connection that enqueue needs."""

    @property
    def in_transaction(self) -> bool: ...

    def begin(self) -> None:
        """Begin the transaction that the driver would begin by itself before a write, if it does so."""

    def rows(self, sql: str, bindings: Bindings = ()) -> list[Row]: ...

    def each(self, sql: str, bindings: Iterable[Bindings]) -> list[Row]:
        """Run the statement once per set of bindings; return the rows of all runs."""


class ApswCaller:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        if connection.row_trace is not None:
            self._cursor.row_trace = _as_it_is

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def begin(self) -> None:
        return  # apsw never begins one by itself

    def rows(self, sql: str, bindings: Bindings = ()) -> list[Row]:
        return self._cursor.execute(sql, bindings).fetchall()

    def each(self, sql: str, bindings: Iterable[Bindings]) -> list[Row]:
        return self._cursor.executemany(sql, bindings).fetchall()


class Sqlite3Caller:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._cursor.row_factory = None

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def begin(self) -> None:
        # sqlite3 begins a transaction before an INSERT, but not before our SAVEPOINT, whose release would then commit.
        level = self._connection.isolation_level
        if level is not None and not self._connection.in_transaction:
            self._cursor.execute(f"BEGIN {level}")

    def rows(self, sql: str, bindings: Bindings = ()) -> list[Row]:
        return self._cursor.execute(sql, bindings).fetchall()

    def each(self, sql: str, bindings: Iterable[Bindings]) -> list[Row]:
        return [row for binding in bindings for row in self._cursor.execute(sql, binding).fetchall()]


def caller_of(connection: Any, opened: Collection[Path]) -> Caller:
    """Wrap the caller's connection; `opened` are the files that this process has open in stores.

    Raises TypeError for a sqlite3 connection to one of them, and for any other kind of connection.
    """
    if isinstance(connection, apsw.Connection) and not getattr(connection, "is_async", False):
        return ApswCaller(connection)
    if isinstance(connection, sqlite3.Connection):
        if (path := _file_of(connection, opened)) is not None:
            # Two copies of SQLite in one process do not see each other's locks: both commit, and one commit is lost.
            raise TypeError(
                f"cannot enqueue through a sqlite3.Connection while this process has {path} open in a store, whose "
                "SQLite is another than the sqlite3 module's: one would overwrite what the other commits. "
                "Pass an apsw.Connection, or enqueue before the store is opened, or keep your tables in another file"
            )
        return Sqlite3Caller(connection)
    raise TypeError(
        f"cannot enqueue through a {type(connection).__module__}.{type(connection).__qualname__}: "
        "the SQLite store takes an apsw.Connection or a sqlite3.Connection"
    )


def _file_of(connection: sqlite3.Connection, paths: Collection[Path]) -> Path | None:
    """Return which of these files the connection has open, also under another name; None if it has none of them."""
    cursor = connection.cursor()
    cursor.row_factory = None
    files = [file for _, _, file in cursor.execute("PRAGMA database_list").fetchall() if file]
    there = [path for path in paths if path.exists()]  # a deleted file may still be open
    return next((path for path in there for file in files if os.path.samefile(file, path)), None)


def _as_it_is(cursor: apsw.Cursor, row: Row) -> Row:
    return row
