"""Sends frames to PostgreSQL by COPY: a thread encodes the next slice while the previous one is sent.

Uses the text format of COPY, not CSV: one line is one row, so an error names its row, and a line of `\\.` inside a
value cannot end the data early.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from copy import copy as copied
from itertools import count
from typing import TYPE_CHECKING, Any

import asyncpg

from rowlock.storage.chunk import alone
from rowlock.storage.exact import INEXACT, inexact
from rowlock.storage.postgres.loading.row_errors import copied_line, refused, rows_fault
from rowlock.storage.postgres.loading.table_schema import TableSchema, quoted
from rowlock.storage.row_errors import RowErrors
from rowlock.storage.tables import Load, Refused

if TYPE_CHECKING:
    import polars as pl

LOAD_SECONDS = 3_600.0  # for one statement over a chunk or a whole file; a job has its own deadline
SLICE_ROWS = 16_384
WINDOW_ROWS_AFTER_ERROR = 64  # rows per COPY after a bad row: bad rows come in groups, and a failed COPY is wasted
NULL = "\\N"  # COPY's default; set in the statement, it would depend on standard_conforming_strings

_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_ZONE_AND_FORM = "SELECT current_setting('timezone'), current_setting('datestyle')"
_SET_ZONE_AND_FORM = "SELECT set_config('timezone', $1, true), set_config('datestyle', $2, true)"
_numbers = count(1)


async def copy(connection: Any, schema: str, table: str, columns: Sequence[str], frame: pl.DataFrame) -> int:
    """Appends a frame, whose columns are in this order, to a table; returns the number of rows that it accepted."""
    async with aclosing(_encoded(frame)) as source:
        done: str = await connection.copy_to_table(
            table, schema_name=schema, columns=columns, source=source, format="text", timeout=LOAD_SECONDS
        )
    return int(done.split()[-1])


@asynccontextmanager
async def in_utc(connection: Any) -> AsyncIterator[None]:
    """Sets the session to UTC and ISO dates, the form of the times given to COPY, and restores its settings after."""
    before = await connection.fetchrow(_ZONE_AND_FORM)
    await connection.execute(_SET_ZONE_AND_FORM, "UTC", "ISO, YMD")
    yield
    await connection.execute(_SET_ZONE_AND_FORM, *before)


class Stage:
    """Rows in a temporary table, with all or some of the load's columns.

    `n` is the place in the order of keys; c0, c1, … have the types of the destination; `old` means that the key is in
    the table already.
    """

    def __init__(
        self, connection: Any, load: Load, table_schema: TableSchema, names: Sequence[str] | None = None
    ) -> None:
        self._connection = connection
        self._load = load
        own = {column.name: f"c{place}" for place, column in enumerate(load.columns)}
        self.names = list(own) if names is None else names
        self.table = f"rowlock_stage_{next(_numbers)}"
        self.sql = f"pg_temp.{quoted(self.table)}"
        self.own = [own[name] for name in self.names]
        self.same_key = " AND ".join(f"t.{quoted(name)} = s.{own[name]}" for name in load.key)
        self._table_schema = table_schema
        self.rows = 0
        self.span = 0  # places are below this
        self._indexed = False

    async def create(self) -> None:
        typed = ", ".join(f"{quoted(name)} AS {own}" for name, own in zip(self.names, self.own, strict=True))
        await self._connection.execute(
            f"CREATE TEMP TABLE {quoted(self.table)} ON COMMIT DROP AS"  # noqa: S608 - quoted
            f" SELECT 0::bigint AS n, {typed}, FALSE AS old FROM {self._table_schema.sql} WITH NO DATA;"
            f" ALTER TABLE {self.sql} ALTER old SET DEFAULT FALSE"
        )

    async def fill(self, frame: pl.DataFrame, row_errors: RowErrors) -> None:
        """Copies a frame in; refuses rows with a value that its column does not accept, stages the others."""
        import polars as pl

        self.span = len(frame)
        frame = frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("n"))
        exact = pl.repeat(True, len(frame), dtype=pl.Boolean, eager=True)
        for name, changed, why in inexact(self._load, self._table_schema.keeps, frame):
            rows = frame.filter(changed & exact)["row"].to_list()
            row_errors.add(*(Refused(row, INEXACT, why, name) for row in rows))
            exact = exact & ~changed
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
            row_errors.add(refused(error, numbers[begin + line], column))
            begin, window = begin + line + 1, max(WINDOW_ROWS_AFTER_ERROR, line)
        self.rows = self.span - len(row_errors.rows)

    async def fill_from(self, load: Load, staged: str) -> None:
        """Takes over the rows of a staging table, each value converted as in a direct load."""
        values = [f"CAST({quoted(name)} AS {self._table_schema.bare[name]})" for name in self.names]
        async with in_utc(self._connection):
            done = await self._connection.execute(
                f"INSERT INTO {self.sql} (n, {', '.join(self.own)})"  # noqa: S608 - quoted
                f" SELECT row_number() OVER (ORDER BY {_order(load)}) - 1, {', '.join(values)} FROM {staged}",
                timeout=LOAD_SECONDS,
            )
        self.span = self.rows = int(done.split()[-1])

    async def refuse_from(self, staged: str, row_errors: RowErrors) -> None:
        """Refuses the rows of a staging table with a value that its column does not accept, as `fill` finds them."""
        import polars as pl

        texts = ", ".join(f"CAST({quoted(name)} AS text)" for name in self.names)
        schema = {"row": pl.Int64(), **dict.fromkeys(self.own, pl.String())}
        async with in_utc(self._connection):
            cursor = await self._connection.cursor(f"SELECT {quoted('row')}, {texts} FROM {staged}")  # noqa: S608 - quoted
            while rows := await cursor.fetch(SLICE_ROWS, timeout=LOAD_SECONDS):
                await self.fill(pl.DataFrame(list(map(tuple, rows)), schema=schema, orient="row"), row_errors)

    async def only(self, condition: str) -> Stage:
        """Returns another stage with those rows `s` for which this condition holds."""
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
        """Stages these rows; if one fails, stages none and returns (error, line, column)."""
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
        """Returns the places of those rows `s` for which this condition holds and whose keys are in the table."""
        rows = await self._connection.fetch(
            f"SELECT s.n FROM {self.sql} s WHERE {where}"  # noqa: S608 - quoted
            f" AND EXISTS (SELECT FROM {self._table_schema.sql} t WHERE {self.same_key})",
            timeout=LOAD_SECONDS,
        )
        return [row[0] for row in rows]

    async def make_divisible(self) -> None:
        """Creates the index for statements over a few of the rows."""
        if not self._indexed:
            await self._connection.execute(f"CREATE UNIQUE INDEX ON {self.sql} (n)")
            self._indexed = True

    async def reorder(self, places: Sequence[int]) -> None:
        """Gives the row at the first of these places the place 0, and so on. Call within `looking_up`."""
        await self._connection.execute("SET LOCAL enable_hashjoin = on")  # both sides have all rows of the load
        await self._connection.execute(
            f"UPDATE {self.sql} s SET n = r.place - 1 FROM unnest($1::bigint[]) WITH ORDINALITY AS r (n, place)"  # noqa: S608
            " WHERE s.n = r.n",
            places,
            timeout=LOAD_SECONDS,
        )
        await self._connection.execute("SET LOCAL enable_hashjoin = off")

    async def make_findable(self, own: Sequence[str]) -> None:
        """Creates an index on these columns of the stage."""
        if own:
            await self._connection.execute(f"CREATE INDEX ON {self.sql} ({', '.join(own)})")

    async def remove(self, places: Sequence[int]) -> None:
        if places:
            await self._connection.execute(f"DELETE FROM {self.sql} WHERE n = ANY ($1::bigint[])", places)  # noqa: S608

    async def drop(self) -> None:
        await self._connection.execute(f"DROP TABLE {self.sql}")


async def _encoded(frame: pl.DataFrame) -> AsyncGenerator[bytes, None]:
    """Yields the encoded lines of a frame by slices; encodes the next slice while one is sent."""
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
    """Returns lines for COPY in its text format; a time without a zone is in UTC."""
    import polars as pl

    marked = [column.name for column in frame.iter_columns() if column.dtype == pl.String and _has_marks(column)]
    if marked:
        texts = pl.col(marked)
        for plain, escaped in _ESCAPES:
            texts = texts.str.replace_all(plain, escaped, literal=True)
        frame = frame.with_columns(texts)
    return _written(frame)


def _has_marks(texts: pl.Series) -> bool:
    """Returns whether any text has a character that is special to COPY; searching one joined text is the fastest."""
    import polars as pl

    text: bytes = texts.str.join("").cast(pl.Binary).item()
    return any(plain.encode() in text for plain, _ in _ESCAPES)


def spelled(value: Any) -> str:
    """Returns one value as COPY receives it, without the escapes."""
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
    """Returns a query for the row numbers of a staging table, in the order in which `fill_from` reads them."""
    return f"SELECT {quoted('row')} FROM {staged} ORDER BY {_order(load)}"  # noqa: S608 - quoted


def _order(load: Load) -> str:
    return ", ".join(map(quoted, load.key)) or quoted("row")
