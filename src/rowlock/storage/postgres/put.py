"""Staged rows into their table: what is there already falls away, what is new is inserted, the rest updated.

    insert   those whose key is not there, by key
    forget   staged rows that the table has exactly so; before the others where most are
    update   those that differ, locked by key beforehand

All loads insert before they update, and do each by key: so none can wait for another that waits for it. Where the table
refuses a statement, parts of the rows are tried, and of a small part each row, so that those to blame are found.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from rowlock.storage.postgres.refuse import refused, rows_fault
from rowlock.storage.postgres.shape import Shape, quoted
from rowlock.storage.postgres.stage import LOAD_SECONDS, Stage
from rowlock.storage.refusals import Refusals, key_exists
from rowlock.storage.tables import Load, Loaded, Mode, Refused

UNIQUE_TRIES = 3
"""How often a key may come into the table while its row is on the way there."""

PROBED_ROWS = 200
PARTS = 8
ROW_BY_ROW = 64
"""So many rows are not divided again: to try one costs a single message, to find it by dividing many."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the work, for the staged rows that a condition names."""

    prepare: Callable[[str], Awaitable[list[Refused]]]  # says whose keys are there
    statement: Callable[[str], str]


_SETTINGS = (
    "SELECT current_setting('enable_hashjoin'), current_setting('enable_mergejoin'), current_setting('work_mem')"
)
_LOOK_UP = "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL work_mem = '32MB'"
_SET_AGAIN = """
SELECT set_config('enable_hashjoin', $1, true), set_config('enable_mergejoin', $2, true),
    set_config('work_mem', $3, true)
"""


def watched(load: Load) -> list[str]:
    """The columns that make a row differ."""
    passed = {*load.key, *load.unwatched, *load.untouched}
    return [column.name for column in load.columns if column.name not in passed]


@asynccontextmanager
async def looking_up(connection: Any, shape: Shape) -> AsyncIterator[None]:
    """Let statements look every key up in its index; a plan that reads the table costs each chunk all of it."""
    before = await connection.fetchrow(_SETTINGS)
    await connection.execute(_LOOK_UP)
    if shape.deferrable:  # what is refused as late as at the commit names no row
        await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    yield
    await connection.execute(_SET_AGAIN, *before)


class Put:
    """One load of staged rows; `numbers` are their row numbers, by place, where that is another."""

    def __init__(self, connection: Any, load: Load, shape: Shape, stage: Stage, numbers: Sequence[int] | None) -> None:
        self._connection = connection
        self._load = load
        self._shape = shape
        self._stage = stage
        self._numbers = numbers
        own = dict(zip(stage.names, stage.own, strict=True))
        self.same_key = stage.same_key
        self.differs = {
            name: _differs(f"t.{quoted(name)}", f"s.{own[name]}", shape.bases[name]) for name in watched(load)
        }
        self._differs = " OR ".join(self.differs.values()) or "FALSE"
        self._set = ", ".join(
            f"{quoted(name)} = s.{own[name]}" for name in stage.names if name not in {*load.key, *load.untouched}
        )

    @property
    def updates(self) -> bool:
        return bool(self._load.key) and self._load.mode is Mode.UPSERT

    async def all(self, refusals: Refusals) -> Loaded:
        """Put every staged row; in the end each was inserted, updated, found unchanged or refused."""
        whole, before = self._stage, len(refusals.rows)
        insert, update = Part(self._find_existing, self._insertion), Part(self._hold, self._update)
        async with looking_up(self._connection, self._shape):
            known = self.updates and await self._mostly_there()
            if known:
                await self._forget_unchanged("TRUE")
            left = self._stage.rows
            inserted = await self._tried(insert, 0, whole.span, refusals) if left else 0
            left -= inserted + len(refusals.rows) - before
            if left and self.updates and not known:
                await self._forget_unchanged("s.old")
                left = self._stage.rows
            changes = left and self.updates and self.differs
            updated = await self._tried(update, 0, whole.span, refusals) if changes else 0
        if self._stage is not whole:
            await self._stage.drop()
        unchanged = whole.rows - inserted - updated - (len(refusals.rows) - before)
        return Loaded(inserted, updated, unchanged, refusals.in_order())

    async def _mostly_there(self) -> bool:
        """Whether most keys seem to be in the table; what is there falls away first, or last, which is only cheaper."""
        step = max(1, self._stage.rows // PROBED_ROWS)
        seen, there = await self._connection.fetchrow(
            f"SELECT count(*), count(*) FILTER (WHERE EXISTS (SELECT FROM {self._shape.sql} t WHERE {self.same_key}))"  # noqa: S608 - quoted
            f" FROM {self._stage.sql} s WHERE s.n % {step} = 0",
            timeout=LOAD_SECONDS,
        )
        return bool(2 * there > seen)

    async def _tried(self, part: Part, begin: int, end: int, refusals: Refusals, tries: int = 1) -> int:
        """Do a part of the work for the rows at these places, but for those of them that the table refuses."""
        where = "TRUE" if end - begin == self._stage.span else f"s.n >= {begin} AND s.n < {end}"
        alone = end - begin == 1
        while True:
            try:
                async with self._connection.transaction():
                    exist = await part.prepare(where)
                    done = await self._run(part.statement(where))
                refusals.add(*exist)
                return done
            except asyncpg.PostgresError as error:
                if not rows_fault(error):
                    raise
                failure = error
            if not isinstance(failure, asyncpg.UniqueViolationError) or tries >= (UNIQUE_TRIES if alone else 2):
                break
            tries += 1
        await self._stage.make_divisible()
        if alone:
            refusals.add(refused(failure, self._number(begin)))
            await self._stage.remove([begin])
            return 0
        if end - begin <= ROW_BY_ROW:
            return await self._each(part, begin, end, refusals)
        step = max(ROW_BY_ROW, -(-(end - begin) // PARTS))
        done = 0
        for start in range(begin, end, step):
            done += await self._tried(part, start, min(start + step, end), refusals)
        return done

    async def _each(self, part: Part, begin: int, end: int, refusals: Refusals) -> int:
        """Do a part of the work for each of a few rows by itself, with one message for each."""
        here = f"s.n >= {begin} AND s.n < {end}"
        done, bad, contested = 0, list[int](), list[int]()
        async with self._connection.transaction():
            refusals.add(*await part.prepare(here))
            rows = await self._connection.fetch(f"SELECT s.n FROM {self._stage.sql} s WHERE {here} ORDER BY s.n")  # noqa: S608
            first = "SAVEPOINT rowlock_row"
            for (place,) in rows:
                try:
                    done += await self._run(f"{first}; {part.statement(f's.n = {place}')}")
                    first = "RELEASE rowlock_row; SAVEPOINT rowlock_row"
                except asyncpg.PostgresError as error:
                    if not rows_fault(error):
                        raise
                    first = "ROLLBACK TO rowlock_row"
                    failure = error
                else:
                    continue
                if isinstance(failure, asyncpg.UniqueViolationError):
                    contested.append(place)
                else:
                    bad.append(place)
                    refusals.add(refused(failure, self._number(place)))
            if first.startswith("ROLLBACK"):
                await self._connection.execute(first)
            await self._stage.remove(bad)
        for place in contested:  # its key may have come into the table meanwhile: it is looked for once more
            done += await self._tried(part, place, place + 1, refusals, UNIQUE_TRIES)
        return done

    async def _find_existing(self, where: str) -> list[Refused]:
        """Tell the rows whose keys are in the table from the new ones; where all are to be new they are refused."""
        if not self._load.key:
            return []
        if self.updates:
            await self._run(
                f"UPDATE {self._stage.sql} s SET old = TRUE FROM {self._shape.sql} t"  # noqa: S608 - quoted
                f" WHERE {self.same_key} AND NOT s.old AND {where}"
            )
            return []
        exist = await self._stage.existing(where)
        await self._stage.remove(exist)
        return [key_exists(self._load, self._number(place)) for place in exist]

    def _insertion(self, where: str) -> str:
        names = ", ".join(map(quoted, self._stage.names))
        values = ", ".join(f"s.{own}" for own in self._stage.own)
        return (
            f"INSERT INTO {self._shape.sql} ({names})"  # noqa: S608 - quoted
            f" SELECT {values} FROM {self._stage.sql} s WHERE NOT s.old AND {where} ORDER BY s.n"
        )

    async def _forget_unchanged(self, where: str) -> None:
        """Go on with the rows that the table does not have exactly so: to copy few is less than to delete many."""
        same = f"SELECT FROM {self._shape.sql} t WHERE {self.same_key} AND NOT ({self._differs})"
        self._stage = await self._stage.only(f"{where} AND NOT EXISTS ({same})")

    async def _hold(self, where: str) -> list[Refused]:
        """Lock the rows that are to be updated, by key."""
        await self._connection.execute(
            f"SELECT count(*) FROM (SELECT FROM {self._stage.sql} s, {self._shape.sql} t"  # noqa: S608 - quoted
            f" WHERE {self.same_key} AND s.old AND {where} AND ({self._differs})"
            f" ORDER BY s.n FOR NO KEY UPDATE OF t) held",
            timeout=LOAD_SECONDS,
        )
        return []

    def _update(self, where: str) -> str:
        return (
            f"UPDATE {self._shape.sql} t SET {self._set} FROM {self._stage.sql} s"  # noqa: S608 - quoted
            f" WHERE {self.same_key} AND s.old AND {where} AND ({self._differs})"
        )

    def _number(self, place: int) -> int:
        return self._numbers[place] if self._numbers is not None else place

    async def _run(self, statement: str) -> int:
        done: str = await self._connection.execute(statement, timeout=LOAD_SECONDS)
        return int(done.split()[-1])


def _differs(old: str, new: str, base: str) -> str:
    """Whether a value is another one: letter case counts even where the column ignores it, the layout of JSON never."""
    if base == "json":
        old, new = f"{old}::jsonb", f"{new}::jsonb"
    elif base in ("text", "varchar", "bpchar", "citext"):
        old, new = f'{old}::text COLLATE "C"', f'{new}::text COLLATE "C"'
    return f"{old} IS DISTINCT FROM {new}"
