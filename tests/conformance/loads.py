"""Helpers that load rows and read tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import polars as pl

from conformance.tables import rows
from rowlock.storage.contract import Store
from rowlock.storage.tables import Column, Kind, Load, Loaded, Mode

KEY = Column("id", Kind.INTEGER)
NAME = Column("name", Kind.TEXT, nullable=True)
CITY = Column("city", Kind.TEXT, nullable=True)
PEOPLE = (KEY, NAME, CITY)
UPSERT = Load("people", PEOPLE, ["id"], Mode.UPSERT)
INSERT = replace(UPSERT, mode=Mode.INSERT)
DIRECT = replace(UPSERT, direct=True)
FIRST_ROW = 2

_TYPES: dict[Kind, Any] = {
    Kind.INTEGER: pl.Int64,
    Kind.FLOAT: pl.Float64,
    Kind.BOOLEAN: pl.Boolean,
    Kind.DATE: pl.Date,
    Kind.DATETIME: pl.Datetime("us", "UTC"),
    Kind.TIME: pl.Time,
}
_names = count(1)


def new_name(word: str = "people") -> str:
    return f"{word}_{next(_names)}"


def frame(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> pl.DataFrame:
    """Return rows as a chunk's frame, numbered as in a file with one header line."""
    schema = {column.name: _TYPES.get(column.kind, pl.String) for column in columns}
    return pl.DataFrame([tuple(row) for row in rows], schema=schema, orient="row").select(
        pl.int_range(FIRST_ROW, pl.len() + FIRST_ROW, dtype=pl.UInt32).alias("row"), pl.all()
    )


async def create(store: Store, load: Load) -> None:
    async with store.transaction() as transaction:
        await transaction.drop_table(load.table)
        await transaction.create_table(load.table, load.columns, load.key)


async def put(store: Store, load: Load, *given: Sequence[Any]) -> Loaded:
    async with store.transaction() as transaction:
        return await transaction.load(load, frame(load.columns, given))


async def dry_run(store: Store, load: Load, *given: Sequence[Any]) -> Loaded:
    async with store.transaction() as transaction:
        return await transaction.dry_run(load, frame(load.columns, given))


async def held(store: Store, load: Load) -> list[tuple[Any, ...]]:
    """Return the table's rows in the load's columns, sorted by the first one."""
    return await rows(store, load.table, *(column.name for column in load.columns))


def counts(loaded: Loaded) -> tuple[int, int, int, int]:
    """Return (inserted, updated, unchanged, refused)."""
    return loaded.inserted, loaded.updated, loaded.unchanged, len(loaded.refused)


def codes(loaded: Loaded) -> list[tuple[int, str]]:
    return [(refused.row, refused.code) for refused in loaded.refused]
