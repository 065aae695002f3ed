"""Rows into the user's tables: what an import does inside its transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import asyncpg

from rowlock.errors import ImportFault, StoreError
from rowlock.storage.chunk import all_new, in_key_order
from rowlock.storage.postgres.beside import Beside, beside
from rowlock.storage.postgres.connection import message, own_words
from rowlock.storage.postgres.put import Put
from rowlock.storage.postgres.refuse import refused, rounding, rows_fault
from rowlock.storage.postgres.rehearse import rehearsed
from rowlock.storage.postgres.shape import Shape, creation, found, must_have, place, quoted, shape_of
from rowlock.storage.postgres.stage import LOAD_SECONDS, Stage, copy, numbered, too_precise
from rowlock.storage.postgres.wipe import wiped
from rowlock.storage.refusals import Refusals
from rowlock.storage.tables import Column, FoundTable, Kind, Load, Loaded, Mode

if TYPE_CHECKING:
    import polars as pl


class Loading:
    """The verbs of an import on tables that are not Rowlock's."""

    connection: Any
    _url: str

    async def table(self, name: str) -> FoundTable | None:
        with own_words(self._url):
            return await found(self.connection, name)

    async def create_table(self, name: str, columns: Sequence[Column], key: Sequence[str]) -> None:
        with own_words(self._url):
            try:
                async with self.connection.transaction():
                    await self.connection.execute(creation(name, columns, key))
            except asyncpg.InvalidSchemaNameError as error:
                raise StoreError(f"table {name} cannot be created: {message(error)}") from error
            except (asyncpg.UniqueViolationError, asyncpg.DuplicateTableError, asyncpg.DuplicateObjectError):
                # IF NOT EXISTS looks, and then creates: another has done so in between.
                await must_have(self.connection, name)

    async def drop_table(self, name: str) -> None:
        with own_words(self._url):
            await self.connection.execute(f"DROP TABLE IF EXISTS {place(name)}")

    async def wipe(self, table: str, scope: Mapping[str, Any]) -> int:
        with own_words(self._url):
            shape = await must_have(self.connection, table, list(scope))
            return await wiped(self.connection, shape, scope)

    async def load(self, load: Load, frame: pl.DataFrame) -> Loaded:
        with own_words(self._url):
            shape = await self._checked(load)
            frame = await asyncio.to_thread(in_key_order, load, frame)
            if load.direct or load.mode is Mode.REPLACE or not load.key:
                apart = Beside(frame, 0, frame.clear())
            else:
                apart = await beside(self.connection, load, shape, frame)
            inserted = await self._straight(load, shape, apart.new) if len(apart.new) else 0
            if inserted is None:
                return await self._staged(load, shape, frame)
            rest = await self._staged(load, shape, apart.rest) if len(apart.rest) else Loaded()
            unchanged = rest.unchanged + apart.same + len(apart.new) - inserted
            return replace(rest, inserted=rest.inserted + inserted, unchanged=unchanged)

    async def _staged(self, load: Load, shape: Shape, frame: pl.DataFrame) -> Loaded:
        refusals = Refusals(load)
        stage = Stage(self.connection, load, shape)
        await stage.create()
        await stage.fill(frame, refusals)
        loaded = await Put(self.connection, load, shape, stage, frame["row"].to_list()).all(refusals)
        await stage.drop()
        return loaded

    async def merge(self, load: Load, staged: str) -> Loaded:
        with own_words(self._url):
            shape = await self._checked(load)
            source = await must_have(self.connection, staged, [column.name for column in load.columns])
            refusals, stage = Refusals(load), Stage(self.connection, load, shape)
            for rows, name in await self._rounded(load, shape, source):
                refusals.add(*(rounding(row, name, shape.places[name]) for row in rows))
            if refusals.rows:
                return Loaded(refused=refusals.in_order())
            undo = self.connection.transaction()
            await undo.start()
            try:
                await stage.create()
                await stage.fill_from(load, source.sql)
                loaded = await Put(self.connection, load, shape, stage, None).all(refusals)
                await stage.drop()
            except asyncpg.PostgresError as error:
                await undo.rollback()
                if not rows_fault(error):
                    raise
                raise ImportFault(f"{load.table} refused a row, and all are kept or none: {_why(error)}") from error
            if not refusals.rows:
                await undo.commit()
                return loaded
            await undo.rollback()
            rows = await self.connection.fetch(numbered(load, source.sql))
            return Loaded(refused=[replace(each, row=rows[each.row][0]) for each in refusals.in_order()])

    async def rehearse(self, load: Load, frame: pl.DataFrame, *, wiped: Mapping[str, Any] | None = None) -> Loaded:
        with own_words(self._url):
            if await shape_of(self.connection, load.table) is None:
                return await asyncio.to_thread(all_new, load, frame)
            shape = await self._checked(load)
            ordered = await asyncio.to_thread(in_key_order, load, frame)
            return await rehearsed(self.connection, load, shape, ordered, wiped)

    async def _rounded(self, load: Load, shape: Shape, source: Shape) -> list[tuple[list[int], str]]:
        """The rows of a staging table with numbers that the table would round."""
        found = []
        for column in load.columns:
            if column.kind is Kind.DECIMAL and column.name in shape.places:
                name = quoted(column.name)
                rows = await self.connection.fetch(
                    f"SELECT {quoted('row')} FROM {source.sql} WHERE {name} <> round({name}, $1)"  # noqa: S608 - quoted
                    f" ORDER BY 1 LIMIT {load.refused_max + 1}",
                    shape.places[column.name],
                    timeout=LOAD_SECONDS,
                )
                found.append(([row[0] for row in rows], column.name))
        return found

    async def _checked(self, load: Load) -> Shape:
        shape = await must_have(self.connection, load.table, [column.name for column in load.columns])
        if load.key and frozenset(load.key) not in shape.keys:
            raise ImportFault(
                f"table {load.table} has no unique index on {', '.join(load.key)}: create one, or a primary key"
            )
        return shape

    async def _straight(self, load: Load, shape: Shape, frame: pl.DataFrame) -> int | None:
        """Copy into the table itself; None, and nothing done, where that does not go well with every row."""
        if await asyncio.to_thread(list, too_precise(load, shape, frame)):
            return None
        names = [column.name for column in load.columns]
        try:
            async with self.connection.transaction():
                if shape.deferrable:  # what is refused as late as at the commit names no row
                    await self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
                return await copy(self.connection, shape.schema, shape.name, names, frame.drop("row"))
        except asyncpg.FeatureNotSupportedError:
            return None  # a table whose rows are guarded by policies takes no COPY
        except asyncpg.PostgresError as error:
            if not rows_fault(error):
                raise
            return None


def _why(error: asyncpg.PostgresError) -> str:
    message(error)  # the stack shows it, too
    return refused(error, 0).reason
