"""Loads rows into users' tables, inside an import's transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import asyncpg

from rowlock.errors import ImportFault, StatementRefused
from rowlock.storage.chunk import all_new, in_key_order
from rowlock.storage.exact import INEXACT, inexact, reason
from rowlock.storage.imports import ImportId
from rowlock.storage.postgres.connection import message, translated_errors
from rowlock.storage.postgres.loading.diff import Diff, diff
from rowlock.storage.postgres.loading.dry_run import dry_run
from rowlock.storage.postgres.loading.merge import LeftOut, Merge
from rowlock.storage.postgres.loading.row_errors import refused, rows_fault
from rowlock.storage.postgres.loading.stage import LOAD_SECONDS, Stage, copy, in_utc, numbered
from rowlock.storage.postgres.loading.table_schema import (
    TableSchema,
    changing,
    creation,
    find_table,
    found,
    must_have,
    place,
    quoted,
)
from rowlock.storage.postgres.loading.wipe import check_references, wiped
from rowlock.storage.row_errors import RowErrors
from rowlock.storage.tables import Column, FoundTable, Load, Loaded, Mode, Refused

if TYPE_CHECKING:
    import polars as pl


class Loading:
    """The import verbs on users' tables."""

    connection: Any
    _url: str

    def staging_table(self, import_id: ImportId) -> str:
        return f"rowlock.stage_{import_id.replace('-', '')}"

    async def table(self, name: str) -> FoundTable | None:
        with translated_errors(self._url):
            return await found(self.connection, name)

    async def create_table(self, name: str, columns: Sequence[Column], key: Sequence[str]) -> None:
        with translated_errors(self._url):
            try:
                async with self.connection.transaction():
                    await self.connection.execute(creation(name, columns, key))
            except asyncpg.InvalidSchemaNameError as error:
                raise StatementRefused(f"table {name} cannot be created: {message(error)}") from error
            except (asyncpg.UniqueViolationError, asyncpg.DuplicateTableError, asyncpg.DuplicateObjectError):
                # IF NOT EXISTS checks first and creates later: another session created it in between.
                await must_have(self.connection, name)

    async def drop_table(self, name: str) -> None:
        with translated_errors(self._url):
            await self.connection.execute(f"DROP TABLE IF EXISTS {place(name)}")

    async def wipe(self, table: str, scope: Mapping[str, Any]) -> int:
        with translated_errors(self._url):
            table_schema = await must_have(self.connection, table, list(scope))
            return await wiped(self.connection, table_schema, scope)

    async def check_references(self, table: str) -> None:
        with translated_errors(self._url):
            await check_references(self.connection, await must_have(self.connection, table, []))

    async def load(self, load: Load, frame: pl.DataFrame) -> Loaded:
        with translated_errors(self._url):
            table_schema = await self._checked(load)
            frame = await asyncio.to_thread(in_key_order, load, frame)
            if load.direct or load.mode is Mode.REPLACE or not load.key:
                apart = Diff(frame, 0, frame.clear())
            else:
                apart = await diff(self.connection, load, table_schema, frame)
            inserted = await self._straight(load, table_schema, apart.new) if len(apart.new) else 0
            if inserted is None:
                return await self._staged(load, table_schema, frame)
            rest = await self._staged(load, table_schema, apart.rest) if len(apart.rest) else Loaded()
            return replace(rest, inserted=rest.inserted + inserted, unchanged=rest.unchanged + apart.same)

    async def _staged(self, load: Load, table_schema: TableSchema, frame: pl.DataFrame) -> Loaded:
        row_errors = RowErrors()
        stage = Stage(self.connection, load, table_schema)
        await stage.create()
        await stage.fill(frame, row_errors)
        loaded = await Merge(self.connection, load, table_schema, stage, frame["row"].to_list()).all(row_errors)
        await stage.drop()
        return loaded

    async def merge(self, load: Load, staged: str) -> Loaded:
        with translated_errors(self._url):
            table_schema = await self._checked(load)
            source = await must_have(self.connection, staged, [column.name for column in load.columns])
            row_errors, stage = RowErrors(), Stage(self.connection, load, table_schema)
            bad: dict[int, Refused] = {}
            for rows, name, why in await self._inexact(load, table_schema, source):
                bad = {row: Refused(row, INEXACT, why, name) for row in rows} | bad
            row_errors.add(*bad.values())
            if row_errors.rows:
                return Loaded(refused=row_errors.in_order())
            undo = self.connection.transaction()
            await undo.start()
            try:
                await stage.create()
                await stage.fill_from(load, source.sql)
                loaded = await Merge(self.connection, load, table_schema, stage, None).all(row_errors)
                await stage.drop()
            except asyncpg.PostgresError as error:
                await undo.rollback()
                if not rows_fault(error):
                    raise
                await self._refuse(load, table_schema, source, row_errors)
                if not row_errors.rows:
                    raise ImportFault(f"{load.table} refused a row, and all are kept or none: {_why(error)}") from error
                return Loaded(refused=row_errors.in_order())
            if not row_errors.rows:
                await undo.commit()
                return loaded
            await undo.rollback()
            rows = await self.connection.fetch(numbered(load, source.sql))
            return Loaded(refused=[replace(each, row=rows[each.row][0]) for each in row_errors.in_order()])

    async def remove_replaced(self, load: Load, rows_max: int) -> int:
        return 0  # on PostgreSQL an import that replaces is staged

    async def unstage(self, staged: str, rows: Sequence[int]) -> None:
        with translated_errors(self._url):
            statement = f"DELETE FROM {place(staged)} WHERE row = ANY($1::bigint[])"  # noqa: S608 - quoted
            await self.connection.execute(statement, list(rows), timeout=LOAD_SECONDS)

    async def dry_run(self, load: Load, frame: pl.DataFrame, *, wiped: Mapping[str, Any] | None = None) -> Loaded:
        with translated_errors(self._url):
            if await find_table(self.connection, load.table) is None:
                return await asyncio.to_thread(all_new, load, frame)
            table_schema = await self._checked(load)
            ordered = await asyncio.to_thread(in_key_order, load, frame)
            return await dry_run(self.connection, load, table_schema, ordered, wiped)

    async def _refuse(self, load: Load, table_schema: TableSchema, source: TableSchema, row_errors: RowErrors) -> None:
        """Finds the rows of a staging table that the columns of the table do not accept."""
        undo, stage = self.connection.transaction(), Stage(self.connection, load, table_schema)
        await undo.start()
        try:
            await stage.create()
            await stage.refuse_from(source.sql, row_errors)
        finally:
            await undo.rollback()

    async def _inexact(
        self, load: Load, table_schema: TableSchema, source: TableSchema
    ) -> list[tuple[list[int], str, str]]:
        """Returns the rows of a staging table with values that the table would change, by column, with the reason."""
        found = []
        for column in load.columns:
            kept = table_schema.keeps.get(column.name)
            changes = kept and changing(quoted(column.name), column.kind, kept, table_schema.bases[column.name])
            if kept and changes:
                async with in_utc(self.connection):  # local time is ambiguous in the hour repeated at DST end
                    rows = await self.connection.fetch(
                        f"SELECT {quoted('row')} FROM {source.sql} WHERE {changes}",  # noqa: S608 - quoted
                        timeout=LOAD_SECONDS,
                    )
                found.append(([row[0] for row in rows], column.name, reason(column.name, column.kind, kept)))
        return found

    async def _checked(self, load: Load) -> TableSchema:
        table_schema = await must_have(self.connection, load.table, [column.name for column in load.columns])
        if load.key and frozenset(load.key) not in table_schema.keys:
            raise ImportFault(
                f"table {load.table} has no unique index on {', '.join(load.key)}: create one, or a primary key"
            )
        return table_schema

    async def _straight(self, load: Load, table_schema: TableSchema, frame: pl.DataFrame) -> int | None:
        """Copies into the table itself; returns None and does nothing if any row fails."""
        if await asyncio.to_thread(list, inexact(load, table_schema.keeps, frame)):
            return None
        names = [column.name for column in load.columns]
        try:
            async with self.connection.transaction():
                if table_schema.deferrable:  # an error at the commit would name no row
                    await self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
                inserted = await copy(self.connection, table_schema.schema, table_schema.name, names, frame.drop("row"))
                if inserted != len(frame):
                    raise LeftOut
                return inserted
        except (LeftOut, asyncpg.FeatureNotSupportedError):
            return None  # a table with row-level security refuses COPY
        except asyncpg.PostgresError as error:
            if not rows_fault(error):
                raise
            return None


def _why(error: asyncpg.PostgresError) -> str:
    message(error)  # strips row data from the stack
    return refused(error, 0).reason
