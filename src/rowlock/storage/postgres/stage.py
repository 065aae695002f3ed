"""Frames on their way into PostgreSQL: encoded in a thread while the slice before is sent, by COPY.

The text format of COPY, not CSV: one line is one row, so that an error names its row, and a line of `\\.` inside a
value cannot end the data early.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from copy import copy as copied
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any

import asyncpg

from rowlock.storage.chunk import alone
from rowlock.storage.postgres.refuse import copied_line, refused, rounding, rows_fault
from rowlock.storage.postgres.shape import Shape, quoted
from rowlock.storage.refusals import Refusals
from rowlock.storage.tables import Kind, Load

if TYPE_CHECKING:
    import polars as pl

LOAD_SECONDS = 3_600.0  # for one statement over a whole chunk, or a whole file; a job has its own deadline
SLICE_ROWS = 16_384
WINDOW_ROWS_AFTER_ERROR = 64  # what is sent in vain behind a bad row: where one is, there are more
NULL = "\\N"

_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_ZONE_AND_FORM = "SELECT current_setting('timezone'), current_setting('datestyle')"
_SET_ZONE_AND_FORM = "SELECT set_config('timezone', $1, true), set_config('datestyle', $2, true)"
_numbers = count(1)


async def copy(connection: Any, schema: str, table: str, columns: Sequence[str], frame: pl.DataFrame) -> int:
    """Append a frame, whose columns are in this order, to a table; the number of rows that it took."""
    async with aclosing(_encoded(frame)) as source:
        done: str = await connection.copy_to_table(
            table, schema_name=schema, columns=columns, source=source, format="text", null=NULL, timeout=LOAD_SECONDS
        )
    return int(done.split()[-1])


class Stage:
    """Rows in a temporary table: `n`, their place in the order of keys; c0, c1, …, typed like the destination; `old`:
    the key is in the table already."""

    def __init__(self, connection: Any, load: Load, shape: Shape) -> None:
        self._connection = connection
        self._load = load
        self.names = [column.name for column in load.columns]
        self.table = f"rowlock_stage_{next(_numbers)}"
        self.sql = f"pg_temp.{quoted(self.table)}"
        self.own = [f"c{place}" for place in range(len(self.names))]
        self._shape = shape
        self.rows = 0
        self.span = 0  # places are below this
        self._indexed = False

    async def create(self) -> None:
        typed = ", ".join(f"{quoted(name)} AS {own}" for name, own in zip(self.names, self.own, strict=True))
        await self._connection.execute(
            f"CREATE TEMP TABLE {quoted(self.table)} ON COMMIT DROP AS"  # noqa: S608 - quoted
            f" SELECT 0::bigint AS n, {typed}, FALSE AS old FROM {self._shape.sql} WITH NO DATA;"
            f" ALTER TABLE {self.sql} ALTER old SET DEFAULT FALSE"
        )

    async def fill(self, frame: pl.DataFrame, refusals: Refusals) -> None:
        """Copy a frame in; rows with a value that its column does not take are refused, the others staged."""
        import polars as pl

        self.span = len(frame)
        frame = frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("n"))
        exact = pl.repeat(True, len(frame), dtype=pl.Boolean, eager=True)
        for name, rounded in too_precise(self._load, self._shape, frame):
            rows = frame.filter(rounded & exact)["row"].to_list()
            refusals.add(*(rounding(row, name, self._shape.places[name]) for row in rows))
            exact = exact & ~rounded
        frame = frame.filter(exact)
        numbers, frame = frame["row"], frame.select("n", *self.own)
        begin, end, window = 0, len(frame), len(frame)
        while begin < end:
            bad = await self._copy(frame[begin : begin + window])
            if bad is None:
                begin, window = begin + window, window * 4
                continue
            error, line, column = bad
            if line:
                await self._copy(frame[begin : begin + line], again=True)
            refusals.add(refused(error, numbers[begin + line], column))
            begin, window = begin + line + 1, max(WINDOW_ROWS_AFTER_ERROR, line)
        self.rows = self.span - len(refusals.rows)

    async def fill_from(self, load: Load, staged: str) -> None:
        """Take over the rows of a staging table, each value as a direct load would have made it."""
        values = [f"CAST({quoted(name)} AS {self._shape.bare[name]})" for name in self.names]
        # COPY is given moments of UTC in ISO's form; a cast would take the session's zone and form.
        before = await self._connection.fetchrow(_ZONE_AND_FORM)
        await self._connection.execute(_SET_ZONE_AND_FORM, "UTC", "ISO, YMD")
        done = await self._connection.execute(
            f"INSERT INTO {self.sql} (n, {', '.join(self.own)}) SELECT row_number() OVER (ORDER BY {_order(load)}) - 1,"  # noqa: S608 - quoted
            f" {', '.join(values)} FROM {staged}",
            timeout=LOAD_SECONDS,
        )
        await self._connection.execute(_SET_ZONE_AND_FORM, *before)
        self.span = self.rows = int(done.split()[-1])

    async def only(self, condition: str) -> Stage:
        """Another stage, with those of the rows `s` for which this holds."""
        rest = copied(self)
        rest.table = f"rowlock_stage_{next(_numbers)}"
        rest.sql, rest._indexed = f"pg_temp.{quoted(rest.table)}", False
        done = await self._connection.execute(
            f"CREATE TEMP TABLE {quoted(rest.table)} ON COMMIT DROP AS SELECT s.* FROM {self.sql} s WHERE {condition}",  # noqa: S608 - quoted
            timeout=LOAD_SECONDS,
        )
        rest.rows = int(done.split()[-1])
        return rest

    async def _copy(
        self, frame: pl.DataFrame, again: bool = False
    ) -> tuple[asyncpg.PostgresError, int, str | None] | None:
        """Stage these rows, or none of them and say which one is to blame."""
        try:
            async with self._connection.transaction():
                await copy(self._connection, "pg_temp", self.table, ["n", *self.own], frame)
        except asyncpg.PostgresError as error:
            line, column = copied_line(error, self.names)
            if again or line is None or not rows_fault(error):
                raise
            return error, line, column
        return None

    async def make_divisible(self) -> None:
        """Prepare for statements over a few of the rows."""
        if not self._indexed:
            await self._connection.execute(f"CREATE UNIQUE INDEX ON {self.sql} (n)")
            self._indexed = True

    async def remove(self, places: Sequence[int]) -> None:
        if places:
            await self._connection.execute(f"DELETE FROM {self.sql} WHERE n = ANY ($1::bigint[])", places)  # noqa: S608

    async def drop(self) -> None:
        await self._connection.execute(f"DROP TABLE {self.sql}")


def too_precise(load: Load, shape: Shape, frame: pl.DataFrame) -> Iterator[tuple[str, pl.Series]]:
    """The columns that would round values of a frame, and in which rows.

    PostgreSQL does so without a word, and what is in the table is then not what was in the file.
    """
    import polars as pl

    for place, column in enumerate(load.columns):
        kept = shape.places.get(column.name)
        if column.kind is not Kind.DECIMAL or kept is None or (column.places is not None and column.places <= kept):
            continue
        texts = frame[f"c{place}"]
        likely = texts.str.contains(f"[eE]|\\.[0-9]{{{kept}}}[0-9]*[1-9]" if kept >= 0 else "[1-9]").fill_null(False)
        rows = [row for row in likely.arg_true() if _places(texts[row]) > kept]
        if rows:
            yield column.name, pl.zeros(len(texts), dtype=pl.Boolean, eager=True).scatter(rows, True)


def _places(number: str) -> int:
    """How many digits a number needs behind the point; of whole tens it is -1."""
    _, digits, exponent = Decimal(number).as_tuple()
    written = "".join(map(str, digits)).rstrip("0")
    return -int(exponent) - (len(digits) - len(written)) if written else -len(number)


async def _encoded(frame: pl.DataFrame) -> AsyncGenerator[bytes, None]:
    """The lines of a frame, a slice at a time; the next one is made while this one is sent."""
    ahead: asyncio.Task[bytes] | None = None
    try:
        for part in frame.iter_slices(SLICE_ROWS):
            behind, ahead = ahead, asyncio.create_task(asyncio.to_thread(encode, part))
            if behind is not None:
                yield await behind
        if ahead is not None:
            yield await ahead
    finally:
        if ahead is not None and not ahead.done():
            await asyncio.wait([ahead])


def encode(frame: pl.DataFrame) -> bytes:
    """Lines for COPY in its text format; a moment without a zone is one of UTC."""
    import polars as pl

    lines = _written(frame)
    # To count is much cheaper than to look into every text: what is too many has come out of one.
    marks = (b"\\", b"\t", b"\n", b"\r")
    nulls = sum(column.null_count() for column in frame.iter_columns())
    if [lines.count(mark) for mark in marks] == [nulls, len(frame) * (frame.width - 1), len(frame), 0]:
        return lines
    texts = pl.col(pl.String)
    for plain, escaped in _ESCAPES:
        texts = texts.str.replace_all(plain, escaped, literal=True)
    return _written(frame.with_columns(texts))


def spelled(value: Any) -> str:
    """One value in the words in which COPY is given it, but for the escapes."""
    return value if isinstance(value, str) else _written(alone(value))[:-1].decode()


def _written(frame: pl.DataFrame) -> bytes:
    lines = io.BytesIO()
    frame.write_csv(
        lines,
        include_header=False,
        separator="\t",
        quote_style="never",
        null_value=NULL,
        datetime_format="%Y-%m-%d %H:%M:%S%.f+00",
        time_format="%H:%M:%S%.f",
    )
    return lines.getvalue()


def numbered(load: Load, staged: str) -> str:
    """A query for the row numbers of a staging table, in the order in which `fill_from` takes them over."""
    return f"SELECT {quoted('row')} FROM {staged} ORDER BY {_order(load)}"  # noqa: S608 - quoted


def _order(load: Load) -> str:
    return ", ".join(map(quoted, load.key)) or quoted("row")
