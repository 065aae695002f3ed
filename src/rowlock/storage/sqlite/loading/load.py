"""Load rows into the user's tables, inside an import's transaction; each method is one piece of work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from rowlock.storage.chunk import in_key_order
from rowlock.storage.imports import ImportId
from rowlock.storage.row_errors import RowErrors
from rowlock.storage.sqlite.loading.dry_run import dry_run
from rowlock.storage.sqlite.loading.merge import Merge, savepoint
from rowlock.storage.sqlite.loading.table_schema import creation, found, place, quoted
from rowlock.storage.sqlite.loading.wipe import check_references, wiped
from rowlock.storage.tables import Column, FoundTable, Load, Loaded, Mode

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")


class Loading(ABC):
    """Transaction methods that an import uses on the user's tables."""

    @abstractmethod
    async def _run(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run the work on the transaction's connection, in its thread."""

    def staging_table(self, import_id: ImportId) -> str:
        return f"rowlock_stage_{import_id.replace('-', '')}"

    async def table(self, name: str) -> FoundTable | None:
        return await self._run(lambda connection: found(connection, name))

    async def create_table(self, name: str, columns: Sequence[Column], key: Sequence[str]) -> None:
        await self._run(lambda connection: connection.execute(creation(connection, name, columns, key)))

    async def drop_table(self, name: str) -> None:
        def work(connection: apsw.Connection) -> None:
            schema, table = place(connection, name)
            connection.execute(f"DROP TABLE IF EXISTS {quoted(schema)}.{quoted(table)}")

        await self._run(work)

    async def wipe(self, table: str, scope: Mapping[str, Any]) -> int:
        return await self._run(lambda connection: wiped(connection, table, scope))

    async def check_references(self, table: str) -> None:
        await self._run(lambda connection: check_references(connection, table))

    async def load(self, load: Load, frame: pl.DataFrame) -> Loaded:
        return await self._run(lambda connection: _load(connection, load, frame))

    async def merge(self, load: Load, staged: str) -> Loaded:
        return await self._run(lambda connection: _merge(connection, load, staged))

    async def remove_replaced(self, load: Load, rows_max: int) -> int:
        return 0  # nothing to remove: on SQLite an import that replaces rows stages them

    async def unstage(self, staged: str, rows: Sequence[int]) -> None:
        def work(connection: apsw.Connection) -> None:
            schema, table = place(connection, staged)
            statement = f'DELETE FROM {quoted(schema)}.{quoted(table)} WHERE "row" = ?'  # noqa: S608 - quoted
            connection.executemany(statement, [(row,) for row in rows])

        await self._run(work)

    async def dry_run(self, load: Load, frame: pl.DataFrame, *, wiped: Mapping[str, Any] | None = None) -> Loaded:
        return await self._run(lambda connection: dry_run(connection, load, frame, wiped))


def _load(connection: apsw.Connection, load: Load, frame: pl.DataFrame) -> Loaded:
    put, row_errors = Merge(connection, load), RowErrors()
    frame = put.exact(in_key_order(load, frame), row_errors)
    if load.direct or load.mode is Mode.REPLACE or not load.key:
        inserted = put.straight(frame)
        if inserted is not None:
            return Loaded(inserted, refused=row_errors.in_order())
    with put.staged(frame):
        return put.all(frame["row"].to_list(), row_errors)


class _Refused(Exception):
    """Raised if the database refuses a row of a merge, which loads all rows or none."""


def _merge(connection: apsw.Connection, load: Load, staged: str) -> Loaded:
    put, row_errors = Merge(connection, load), RowErrors()
    try:
        put.check_exact(staged, row_errors)
        if row_errors.rows:
            raise _Refused
        with savepoint(connection), put.taken_over(staged) as numbers:
            loaded = put.all(numbers, row_errors)
            if row_errors.rows:
                raise _Refused
            return loaded
    except _Refused:
        return Loaded(refused=row_errors.in_order())
