"""Frames on their way into PostgreSQL: encoded in a thread while the slice before is sent, by COPY.

The text format of COPY, not CSV: one line is one row, so that an error names its row, and a line of `\\.` inside a
value cannot end the data early.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
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


@asynccontextmanager
async def in_utc(connection: Any) -> AsyncIterator[None]:
    """COPY is given moments of UTC in ISO's form; elsewhere the session's zone and form would be taken."""
    before = await connection.fetchrow(_ZONE_AND_FORM)
    await connection.execute(_SET_ZONE_AND_FORM, "UTC", "ISO, YMD")
    yield
    await connection.execute(_SET_ZONE_AND_FORM, *before)


class Stage:
    """Rows in a temporary table: `n`, their place in the order of keys; c0, c1, …, typed like the destination; `old`:
    the key is in the table already. Of the columns all, or some of them."""

    def __init__(self, connection: Any, load: Load, shape: Shape, names: Sequence[str] | None = None) -> None:
        self._connection = connection
        self._load = load
        own = {column.name: f"c{place}" for place, column in enumerate(load.columns)}
        self.names = list(own) if names is None else names
        self.table = f"rowlock_stage_{next(_numbers)}"
        self.sql = f"pg_temp.{quoted(self.table)}"
        self.own = [own[name] for name in self.names]
        self.same_key = " AND ".join(f"t.{quoted(name)} = s.{own[name]}" for name in load.key)
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
            bad = await self.copy(frame[begin : begin + window])
            if bad is None:
                begin, window = begin + window, window * 4
                continue
            error, line, column = bad
            if line:
                await self.copy(frame[begin : begin + line], again=True)
            refusals.add(refused(error, numbers[begin + line], column))
            begin, window = begin + line + 1, max(WINDOW_ROWS_AFTER_ERROR, line)
        self.rows = self.span - len(refusals.rows)

    async def fill_from(self, load: Load, staged: str) -> None:
        """Take over the rows of a staging table, each value as a direct load would have made it."""
        values = [f"CAST({quoted(name)} AS {self._shape.bare[name]})" for name in self.names]
        async with in_utc(self._connection):
            done = await self._connection.execute(
                f"INSERT INTO {self.sql} (n, {', '.join(self.own)})"  # noqa: S608 - quoted
                f" SELECT row_number() OVER (ORDER BY {_order(load)}) - 1, {', '.join(values)} FROM {staged}",
                timeout=LOAD_SECONDS,
            )
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

    async def copy(
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

    async def existing(self, where: str) -> list[int]:
        """The places of those of the rows `s` for which this holds, and whose keys are in the table."""
        rows = await self._connection.fetch(
            f"SELECT s.n FROM {self.sql} s WHERE {where}"  # noqa: S608 - quoted
            f" AND EXISTS (SELECT FROM {self._shape.sql} t WHERE {self.same_key})",
            timeout=LOAD_SECONDS,
        )
        return [row[0] for row in rows]

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

    marked = [column.name for column in frame.iter_columns() if column.dtype == pl.String and _has_marks(column)]
    if marked:
        texts = pl.col(marked)
        for plain, escaped in _ESCAPES:
            texts = texts.str.replace_all(plain, escaped, literal=True)
        frame = frame.with_columns(texts)
    return _written(frame)


def _has_marks(texts: pl.Series) -> bool:
    """Whether any of them has a character that means something to COPY; to look into one long text is the quickest."""
    import polars as pl

    text: bytes = texts.str.join("").cast(pl.Binary).item()
    return any(plain.encode() in text for plain, _ in _ESCAPES)


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
