"""Rows into the user's tables: what an import does inside its transaction, each verb one piece of work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from rowlock.storage.chunk import in_key_order
from rowlock.storage.refusals import Refusals
from rowlock.storage.sqlite.put import Put, savepoint
from rowlock.storage.sqlite.rehearse import rehearsed
from rowlock.storage.sqlite.shape import creation, found, place, quoted
from rowlock.storage.sqlite.wipe import wiped
from rowlock.storage.tables import Column, FoundTable, Load, Loaded, Mode

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")


class Loading(ABC):
    """The verbs of an import on tables that are not Rowlock's."""

    @abstractmethod
    async def _run(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do the work on the transaction's connection, in its thread."""

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

    async def load(self, load: Load, frame: pl.DataFrame) -> Loaded:
        return await self._run(lambda connection: _load(connection, load, frame))

    async def merge(self, load: Load, staged: str) -> Loaded:
        return await self._run(lambda connection: _merge(connection, load, staged))

    async def rehearse(self, load: Load, frame: pl.DataFrame, *, wiped: Mapping[str, Any] | None = None) -> Loaded:
        return await self._run(lambda connection: rehearsed(connection, load, frame, wiped))


def _load(connection: apsw.Connection, load: Load, frame: pl.DataFrame) -> Loaded:
    put = Put(connection, load)
    frame = in_key_order(load, frame)
    if load.direct or load.mode is Mode.REPLACE or not load.key:
        inserted = put.straight(frame)
        if inserted is not None:
            return Loaded(inserted)
    with put.staged(frame):
        return put.all(frame["row"].to_list(), Refusals(load))


class _Refused(Exception):
    """Some rows were refused, and all or none were asked for."""


def _merge(connection: apsw.Connection, load: Load, staged: str) -> Loaded:
    put, refusals = Put(connection, load), Refusals(load)
    try:
        with savepoint(connection), put.taken_over(staged) as numbers:
            loaded = put.all(numbers, refusals)
            if refusals.rows:
                raise _Refused
            return loaded
    except _Refused:
        return Loaded(refused=refusals.in_order())
