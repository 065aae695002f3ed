"""Compares the rows of a chunk with the table: which are new, which are identical, and the rest.

Only keys are sent; the table's values for them come back as text. New rows can then be copied straight into the table,
and identical rows are not sent at all. Rows whose texts differ may still have equal values: the stage decides.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rowlock.storage.postgres.loading.merge import PROBED_ROWS, looking_up, watched
from rowlock.storage.postgres.loading.stage import LOAD_SECONDS, NULL, Stage, in_utc
from rowlock.storage.postgres.loading.table_schema import TEXTS, TableSchema, quoted
from rowlock.storage.tables import Load, Mode

if TYPE_CHECKING:
    import polars as pl

# Types compared as text; a float's text may be shortened, and `bpchar` is padded.
_COMPARED = {*TEXTS, "int2", "int4", "int8", "numeric", "date", "uuid"} - {"bpchar"}
_MOMENTS = ("timestamp", "timestamptz")
_MOMENT = "%Y-%m-%d %H:%M:%S%.f"


@dataclass(frozen=True, slots=True)
class Diff:
    """The rows of a chunk, by comparison with the table."""

    new: pl.DataFrame
    same: int  # number of rows identical in the table
    rest: pl.DataFrame


async def diff(connection: Any, load: Load, table_schema: TableSchema, frame: pl.DataFrame) -> Diff:
    """Compares a frame with the table; all rows are `rest` if most differ, or if a key is invalid for its column."""
    import polars as pl

    step = max(1, len(frame) // PROBED_ROWS)
    rows = frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("n"))
    look = _Look(connection, load, table_schema, rows)
    await look.keys.create()
    async with looking_up(connection, table_schema), in_utc(connection):
        found = await look.up(rows.gather_every(step))
        if found is not None and not found.few(len(frame) // step):
            found = None
        if found is not None and step > 1:
            found = await look.up(rows.filter(pl.col("n") % step != 0))
    await look.keys.drop()
    if found is None or not found.few(len(frame)):
        return Diff(frame.clear(), 0, frame)
    there = pl.repeat(False, len(frame), dtype=pl.Boolean, eager=True).scatter(found.places, True)
    rest = found.places.filter(~found.same).sort()
    new = frame.filter(~there) if len(found.places) else frame
    return Diff(new, int(found.same.sum()), frame[rest] if len(rest) else frame.clear())


@dataclass(frozen=True, slots=True)
class _Found:
    """The rows whose keys are in the table."""

    places: pl.Series
    same: pl.Series  # identical in the table

    def few(self, rows: int) -> bool:
        """Returns whether at most half of `rows` rows remain for the stage."""
        return 2 * (len(self.same) - int(self.same.sum())) <= rows


class _Look:
    def __init__(self, connection: Any, load: Load, table_schema: TableSchema, rows: pl.DataFrame) -> None:
        self.keys = Stage(connection, load, table_schema, load.key)
        self._connection = connection
        self._rows = rows  # indexed by place
        self._table_schema = table_schema
        own = {column.name: f"c{place}" for place, column in enumerate(load.columns)}
        names = watched(load)
        self._knows = load.mode is Mode.UPSERT and all(
            _comparable(rows[own[name]].dtype, table_schema.bases[name]) for name in names
        )
        self._names = names if self._knows else []
        self._own = [own[name] for name in self._names]

    async def up(self, rows: pl.DataFrame) -> _Found | None:
        """Looks up these rows in addition to earlier ones; None if a key is invalid for its column."""
        if await self.keys.copy(rows.select("n", *self.keys.own)) is not None:
            return None
        parts: list[bytes] = []

        async def take(data: bytes) -> None:
            parts.append(data)

        shown = "".join(f", t.{quoted(name)}" for name in self._names)
        await self._connection.copy_from_query(
            f"SELECT s.n{shown} FROM {self.keys.sql} s JOIN {self._table_schema.sql} t ON {self.keys.same_key}",  # noqa: S608 - quoted
            output=take,
            format="text",
            timeout=LOAD_SECONDS,
        )
        return await asyncio.to_thread(self._compared, parts)

    def _compared(self, parts: list[bytes]) -> _Found:
        import polars as pl

        lines = b"".join(parts)
        parts.clear()
        schema = {"n": pl.Int64(), **dict.fromkeys(self._own, pl.String())}
        old = _read(lines, schema) if lines else pl.DataFrame(schema=schema)
        places = old["n"]
        mine = self._rows if _all_in_order(places, len(self._rows)) else self._rows[places]
        same = pl.repeat(self._knows, len(old), dtype=pl.Boolean, eager=True)
        for name, own in zip(self._names, self._own, strict=True):
            same = same & _same(mine[own], old[own], self._table_schema.bases[name])
        return _Found(places, same)


def _all_in_order(places: pl.Series, count: int) -> bool:
    return len(places) == count and places.is_sorted() and places.n_unique() == count


def _read(lines: bytes, schema: dict[str, Any]) -> pl.DataFrame:
    import polars as pl

    return pl.read_csv(
        lines,
        has_header=False,
        schema=schema,
        separator="\t",
        quote_char=None,
        null_values=NULL,
        empty_string_is_null=False,
    )


def _comparable(kind: pl.DataType, base: str) -> bool:
    import polars as pl

    if kind == pl.Boolean:
        return base == "bool"
    return base in _MOMENTS if isinstance(kind, pl.Datetime) else base in _COMPARED


def _same(mine: pl.Series, old: pl.Series, base: str) -> pl.Series:
    """Returns a mask of the values that are certainly equal to the table's."""
    import polars as pl

    if mine.dtype == pl.Boolean:
        mine = pl.select(pl.when(mine).then(pl.lit("t")).when(~mine).then(pl.lit("f"))).to_series()
    elif isinstance(mine.dtype, pl.Datetime):
        mine, old = mine.dt.to_string(_MOMENT), old.str.strip_suffix("+00")
    else:
        mine = mine.cast(pl.String)
    same = mine.eq_missing(old)
    if base == "numeric" and not same.all():
        same = _shortened(mine).eq_missing(_shortened(old))
    if "\\" in (old.str.join("").item() or ""):  # an escape in COPY's output: the actual text differs
        same = same & ~old.str.contains("\\", literal=True).fill_null(False)
    return same


def _shortened(numbers: pl.Series) -> pl.Series:
    """Returns decimal numbers without trailing zeros."""
    import polars as pl

    short = numbers.str.strip_chars_end("0").str.strip_chars_end(".")
    return short.zip_with(numbers.str.contains(".", literal=True).fill_null(False), numbers).cast(pl.String)
