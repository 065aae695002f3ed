"""Dry run of a load: runs it, reports what would change with a sample before and after, and rolls it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rowlock.storage.plain import plain
from rowlock.storage.postgres.loading.merge import Merge
from rowlock.storage.postgres.loading.stage import LOAD_SECONDS, Stage
from rowlock.storage.postgres.loading.table_schema import TableSchema, must_have, quoted
from rowlock.storage.postgres.loading.wipe import wiped
from rowlock.storage.row_errors import RowErrors
from rowlock.storage.tables import Change, Load, Loaded

if TYPE_CHECKING:
    import polars as pl


async def dry_run(
    connection: Any, load: Load, table_schema: TableSchema, frame: pl.DataFrame, scope: Mapping[str, Any] | None
) -> Loaded:
    """Returns what a load would do, after a wipe if `scope` is given; leaves the transaction unchanged."""
    whole = connection.transaction()
    await whole.start()
    try:
        row_errors = RowErrors()
        stage = Stage(connection, load, table_schema)
        await stage.create()
        await stage.fill(frame, row_errors)
        put = Merge(connection, load, table_schema, stage, frame["row"].to_list())
        attempt = connection.transaction()
        await attempt.start()
        try:
            if scope is not None:
                await must_have(connection, load.table, list(scope))
                await wiped(connection, table_schema, scope)
            loaded = await put.all(row_errors)
        finally:
            await attempt.rollback()
        return await _looked_at(connection, load, table_schema, stage, put, frame, loaded, scope is not None)
    finally:
        await whole.rollback()


async def _looked_at(
    connection: Any,
    load: Load,
    table_schema: TableSchema,
    stage: Stage,
    put: Merge,
    frame: pl.DataFrame,
    loaded: Loaded,
    replaces: bool,
) -> Loaded:
    import polars as pl

    bad = [refused.row for refused in loaded.refused]
    await stage.remove(frame["row"].is_in(pl.Series(bad, dtype=pl.UInt32)).arg_true().to_list())
    changed = await _changed(connection, table_schema, stage, put) if put.updates else {}
    numbers = frame["row"].to_list()
    sample = await _sample(connection, load, table_schema, stage, put, numbers, replaces) if load.sample else []
    return replace(loaded, changed=changed, sample=sample)


async def _changed(connection: Any, table_schema: TableSchema, stage: Stage, put: Merge) -> dict[str, int]:
    if not put.differs:
        return {}
    counts = ", ".join(f"count(*) FILTER (WHERE {differs})" for differs in put.differs.values())
    row = await connection.fetchrow(
        f"SELECT {counts} FROM {stage.sql} s JOIN {table_schema.sql} t ON {put.same_key}",  # noqa: S608 - quoted
        timeout=LOAD_SECONDS,
    )
    return dict(zip(put.differs, row, strict=True))


async def _sample(
    connection: Any,
    load: Load,
    table_schema: TableSchema,
    stage: Stage,
    put: Merge,
    numbers: Sequence[int],
    replaces: bool,
) -> list[Change]:
    """Returns the first rows, by key, that would be inserted, updated, or put in place of a row with the same key."""
    old = ", ".join(f"t.{quoted(name)}" for name in stage.names)
    new = ", ".join(f"s.{own}" for own in stage.own)
    same = put.same_key if load.key and (put.updates or replaces) else "FALSE"
    differs = "TRUE" if replaces else " OR ".join(put.differs.values()) if put.updates and put.differs else "FALSE"
    rows = await connection.fetch(
        f"SELECT s.n, t.tableoid IS NOT NULL, {old}, {new} FROM {stage.sql} s"  # noqa: S608 - quoted
        f" LEFT JOIN {table_schema.sql} t ON {same} WHERE t.tableoid IS NULL OR {differs}"
        f" ORDER BY s.n LIMIT {int(load.sample)}",
        timeout=LOAD_SECONDS,
    )
    return [_change(tuple(row), stage.names, table_schema, numbers) for row in rows]


def _change(row: tuple[Any, ...], names: Sequence[str], table_schema: TableSchema, numbers: Sequence[int]) -> Change:
    bases = [table_schema.bases[name] for name in names]
    old, new = (
        {name: plain(value, base in ("json", "jsonb")) for name, base, value in zip(names, bases, values, strict=True)}
        for values in (row[2 : 2 + len(names)], row[2 + len(names) :])
    )
    return Change(numbers[row[0]], old if row[1] else None, new)
