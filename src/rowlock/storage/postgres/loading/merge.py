"""Merges staged rows into their table: drops identical rows, inserts new ones, updates the others.

    insert   rows whose key is not in the table, in order of keys
    forget   staged rows identical in the table; before the others if these are most
    update   rows that differ, locked in order of keys beforehand

All loads insert before they update, and do each in order of keys, so they never deadlock. If the table refuses a
statement, it is divided into parts, and small parts into rows, to find the rows at fault.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import asyncpg

from rowlock.storage.postgres.loading.row_by_row import try_each
from rowlock.storage.postgres.loading.row_errors import refers_to_nothing, refused, rows_fault
from rowlock.storage.postgres.loading.stage import LOAD_SECONDS, Stage
from rowlock.storage.postgres.loading.table_schema import TableSchema, own_references, quoted
from rowlock.storage.references import References
from rowlock.storage.row_errors import RowErrors, key_exists, suppressed
from rowlock.storage.tables import Load, Loaded, Mode, Refused

UNIQUE = "23505"
UNIQUE_TRIES = 3
"""How often a row is tried when another session inserts its key at the same time."""

PROBED_ROWS = 200
PARTS = 8
ROW_BY_ROW = 2_048
"""Parts of up to this many rows are not divided further: the server tries each row by itself."""


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of work (insert or update), for the staged rows that a condition selects."""

    prepare: Callable[[str], Awaitable[tuple[list[Refused], int]]]  # (rows whose keys exist, rows to reach)
    reached: Callable[[str], str]  # a query for the places of the rows that the statement should reach
    statement: Callable[[str], str]


class LeftOut(Exception):
    """The database has skipped some rows without an error."""


_SETTINGS = (
    "SELECT current_setting('enable_hashjoin'), current_setting('enable_mergejoin'), current_setting('work_mem')"
)
_LOOK_UP = "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL work_mem = '32MB'"
_SET_AGAIN = """
SELECT set_config('enable_hashjoin', $1, true), set_config('enable_mergejoin', $2, true),
    set_config('work_mem', $3, true)
"""


def watched(load: Load) -> list[str]:
    """Returns the columns that make a row differ."""
    passed = {*load.key, *load.unwatched, *load.untouched}
    return [column.name for column in load.columns if column.name not in passed]


@asynccontextmanager
async def looking_up(connection: Any, table_schema: TableSchema) -> AsyncIterator[None]:
    """Makes statements look up every key in its index; a plan that scans the table would cost each chunk all of it."""
    before = await connection.fetchrow(_SETTINGS)
    await connection.execute(_LOOK_UP)
    if table_schema.deferrable:  # an error at the commit would name no row
        await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    yield
    await connection.execute(_SET_AGAIN, *before)


class Merge:
    """One load of staged rows; `numbers` maps places to row numbers if they differ."""

    def __init__(
        self, connection: Any, load: Load, table_schema: TableSchema, stage: Stage, numbers: Sequence[int] | None
    ) -> None:
        self._connection = connection
        self._load = load
        self._table_schema = table_schema
        self._stage = stage
        self._numbers = numbers
        self._ranked: list[int] | None = None  # old place by new place, if rows refer to each other
        self._within: set[int] = set()  # places in the same group as the place before
        own = dict(zip(stage.names, stage.own, strict=True))
        self.same_key = stage.same_key
        self.differs = {
            name: _differs(f"t.{quoted(name)}", f"s.{own[name]}", table_schema.bases[name]) for name in watched(load)
        }
        self._differs = " OR ".join(self.differs.values()) or "FALSE"
        self._set = ", ".join(
            f"{quoted(name)} = s.{own[name]}" for name in stage.names if name not in {*load.key, *load.untouched}
        )

    @property
    def updates(self) -> bool:
        return bool(self._load.key) and self._load.mode is Mode.UPSERT

    async def all(self, row_errors: RowErrors) -> Loaded:
        """Merges every staged row: each ends as inserted, updated, unchanged or refused."""
        whole = self._stage
        insert = Part(self._find_existing, self._new, self._insertion)
        update = Part(self._hold, self._differing, self._update)
        unchanged = updated = 0
        async with looking_up(self._connection, self._table_schema):
            known = self.updates and await self._mostly_there()
            if known:
                unchanged = await self._forget_unchanged("TRUE", self._stage.rows)
            left, before = self._stage.rows, len(row_errors.rows)
            inserted = await self._tried(insert, 0, whole.span, row_errors) if left else 0
            left -= inserted + len(row_errors.rows) - before
            if left and self.updates and not known:
                unchanged = await self._forget_unchanged("s.old", left)
                left = self._stage.rows
            if left and self.updates and self.differs:
                before = len(row_errors.rows)
                updated = await self._tried(update, 0, whole.span, row_errors)
                left -= updated + len(row_errors.rows) - before
                if left:  # other sessions or a trigger have changed these rows meanwhile
                    unchanged += left - await self._refuse_gone(row_errors)
        if self._stage is not whole:
            await self._stage.drop()
        return Loaded(inserted, updated, unchanged, row_errors.in_order())

    async def _mostly_there(self) -> bool:
        """Returns whether most keys seem to exist; identical rows are then dropped first, which only affects speed."""
        step = max(1, self._stage.rows // PROBED_ROWS)
        seen, there = await self._connection.fetchrow(
            "SELECT count(*), count(*) FILTER (WHERE EXISTS"  # noqa: S608 - quoted
            f" (SELECT FROM {self._table_schema.sql} t WHERE {self.same_key}))"
            f" FROM {self._stage.sql} s WHERE s.n % {step} = 0",
            timeout=LOAD_SECONDS,
        )
        return bool(2 * there > seen)

    async def _tried(self, part: Part, begin: int, end: int, row_errors: RowErrors, tries: int = 1) -> int:
        """Does a part of the work for the rows at these places, except those that the table refuses."""
        where = "TRUE" if end - begin == self._stage.span else f"s.n >= {begin} AND s.n < {end}"
        alone = end - begin == 1
        failure: asyncpg.PostgresError | None
        while True:
            try:
                async with self._connection.transaction():
                    exist, count = await part.prepare(where)
                    done = await self._run(part.statement(where))
                    if 0 < done < count:
                        raise LeftOut
                    left_out = await self._places(part.reached(where)) if done < count else []
                row_errors.add(*exist, *(suppressed(self._number(place)) for place in left_out))
                await self._stage.remove(left_out)
                return done
            except LeftOut:
                failure = None
                break
            except asyncpg.PostgresError as error:
                if not rows_fault(error):
                    raise
                failure = error
            if not isinstance(failure, asyncpg.UniqueViolationError) or tries >= (UNIQUE_TRIES if alone else 2):
                break
            tries += 1
        if (
            self._table_schema.refers_to_itself and self._ranked is None
        ):  # nothing was divided yet, so these are all rows
            await self._rank(row_errors)
            if (left := len(self._ranked or ())) < end - begin:
                return await self._tried(part, 0, left, row_errors) if left else 0
        await self._stage.make_divisible()
        if alone and failure is not None:
            row_errors.add(refused(failure, self._number(begin)))
            await self._stage.remove([begin])
            return 0
        starts = self._divided(begin, end)
        if len(starts) == 1:
            return await self._each(part, begin, end, row_errors)
        done = 0
        for start, stop in pairwise([*starts, end]):
            done += await self._tried(part, start, stop, row_errors)
        return done

    def _divided(self, begin: int, end: int) -> list[int]:
        """Returns where the parts of a part begin; only one if its rows are to be tried one by one."""
        step = max(ROW_BY_ROW, -(-(end - begin) // PARTS))
        starts = [begin]
        for start in range(begin + step, end, step):
            while start in self._within:
                start += 1
            if starts[-1] < start < end:
                starts.append(start)
        return starts

    async def _each(self, part: Part, begin: int, end: int, row_errors: RowErrors) -> int:
        """Does a part of the work for each of a few rows by itself, with one message per row.

        Rows that refer to each other in a cycle are tried together first.
        """
        here = f"s.n >= {begin} AND s.n < {end}"
        if self._within.isdisjoint(range(begin, end)):
            tried = await self._each_in_server(part, here, row_errors)
            if tried is not None:
                return tried
        done, bad, contested = 0, list[int](), list[int]()
        async with self._connection.transaction():
            row_errors.add(*(await part.prepare(here))[0])
            waiting = self._units(await self._places(part.reached(here)))[::-1]
            first = "SAVEPOINT rowlock_row"
            while waiting:
                unit = waiting.pop()
                place, count = unit[0], 0
                which = f"s.n = {place}" if len(unit) == 1 else f"s.n >= {place} AND s.n <= {unit[-1]}"
                failure = None
                try:
                    count = await self._run(f"{first}; {part.statement(which)}")
                    first = "RELEASE rowlock_row; SAVEPOINT rowlock_row"
                except asyncpg.PostgresError as error:
                    if not rows_fault(error):
                        raise
                    first = "ROLLBACK TO rowlock_row"
                    failure = error
                if count == len(unit):
                    done += count
                elif len(unit) > 1:
                    first = "ROLLBACK TO rowlock_row"
                    waiting += [[each] for each in reversed(unit)]
                elif isinstance(failure, asyncpg.UniqueViolationError):
                    contested.append(place)
                else:
                    bad.append(place)
                    number = self._number(place)
                    row_errors.add(suppressed(number) if failure is None else refused(failure, number))
            if first.startswith("ROLLBACK"):
                await self._connection.execute(first)
            await self._stage.remove(bad)
        for place in contested:  # another session may have inserted its key: look it up again
            done += await self._tried(part, place, place + 1, row_errors, UNIQUE_TRIES)
        return done

    async def _each_in_server(self, part: Part, here: str, row_errors: RowErrors) -> int | None:
        """Does a part of the work for each of these rows; returns None and does nothing if the server cannot."""
        done, where, contested = 0, here, list[int]()
        while True:
            try:
                async with self._connection.transaction():
                    exist, _ = await part.prepare(where)
                    each = part.statement("s.n = rowlock_place")
                    tried = await try_each(self._connection, f"{self._stage.table}_said", part.reached(where), each)
                    if tried is None:
                        raise LeftOut
            except LeftOut:
                break
            row_errors.add(*exist, *(suppressed(self._number(place)) for place in tried.left_out))
            done += tried.done
            again = [] if contested else [n for n, said in tried.refused.items() if said.sqlstate == UNIQUE]
            bad = {n: said for n, said in tried.refused.items() if said.sqlstate != UNIQUE or contested}
            row_errors.add(*(refused(said, self._number(place)) for place, said in bad.items()))
            await self._stage.remove([*bad, *tried.left_out])
            if not again:
                return done
            # Another session may have inserted the key: look it up again.
            contested, where = again, f"s.n = ANY ('{{{','.join(map(str, again))}}}')"
        for place in contested:
            done += await self._tried(part, place, place + 1, row_errors, UNIQUE_TRIES)
        return done if contested else None

    def _units(self, places: Sequence[int]) -> list[list[int]]:
        """Returns the places, with those of one group together."""
        units: list[list[int]] = []
        for place in places:
            if units and place in self._within:
                units[-1].append(place)
            else:
                units.append([place])
        return units

    async def _rank(self, row_errors: RowErrors) -> None:
        """Renumbers the staged rows so that each follows those that it refers to."""
        own = dict(zip(self._stage.names, self._stage.own, strict=True))
        found: list[Any] = []
        for reference in await own_references(self._connection, self._table_schema):
            if query := reference.query(own, self._stage.sql, "n", self._table_schema.sql):
                await self._stage.make_findable([own[name] for name in reference.referred if name in own])
                found += await self._connection.fetch(query, timeout=LOAD_SECONDS)
        references = References.of(found)
        groups = references.groups(await self._places(f"SELECT s.n FROM {self._stage.sql} s ORDER BY s.n"))  # noqa: S608
        if self._load.later:
            hopeless = references.hopeless(groups)
            row_errors.add(*(refers_to_nothing(self._number(place)) for place in sorted(hopeless)))
            await self._stage.remove(sorted(hopeless))
            groups = [group for group in groups if hopeless.isdisjoint(group)]
        self._ranked = [place for group in groups for place in group]
        await self._stage.reorder(self._ranked)
        ends = accumulate(map(len, groups))
        self._within = {
            place for end, group in zip(ends, groups, strict=True) for place in range(end - len(group) + 1, end)
        }

    async def _find_existing(self, where: str) -> tuple[list[Refused], int]:
        """Separates rows whose keys are in the table from new ones; refuses them if the load only inserts."""
        exist: list[int] = []
        marked = 0
        if self.updates:
            marked = await self._run(
                f"UPDATE {self._stage.sql} s SET old = TRUE FROM {self._table_schema.sql} t"  # noqa: S608 - quoted
                f" WHERE {self.same_key} AND NOT s.old AND {where}"
            )
        elif self._load.key:
            exist = await self._stage.existing(where)
            await self._stage.remove(exist)
        if where == "TRUE":
            count = self._stage.rows - marked - len(exist)
        else:
            count = await self._connection.fetchval(f"SELECT count(*) FROM ({self._new(where)}) new")  # noqa: S608
        return [key_exists(self._load, self._number(place)) for place in exist], count

    def _new(self, where: str) -> str:
        return f"SELECT s.n FROM {self._stage.sql} s WHERE NOT s.old AND {where} ORDER BY s.n"  # noqa: S608 - own names

    def _insertion(self, where: str) -> str:
        names = ", ".join(map(quoted, self._stage.names))
        values = ", ".join(f"s.{own}" for own in self._stage.own)
        return (
            f"INSERT INTO {self._table_schema.sql} ({names})"  # noqa: S608 - quoted
            f" SELECT {values} FROM {self._stage.sql} s WHERE NOT s.old AND {where} ORDER BY s.n"
        )

    async def _forget_unchanged(self, where: str, rows: int) -> int:
        """Continues with those of `rows` staged rows that are not identical in the table; returns how many were.

        Copying the few others is cheaper than deleting many.
        """
        same = f"SELECT FROM {self._table_schema.sql} t WHERE {self.same_key} AND NOT ({self._differs})"
        self._stage = await self._stage.only(f"{where} AND NOT EXISTS ({same})")
        return rows - self._stage.rows

    async def _hold(self, where: str) -> tuple[list[Refused], int]:
        """Locks the rows to be updated, in order of keys, and counts them."""
        count: int = await self._connection.fetchval(
            f"SELECT count(*) FROM ({self._differing(where)}) held",  # noqa: S608 - quoted
            timeout=LOAD_SECONDS,
        )
        return [], count

    def _differing(self, where: str) -> str:
        return (
            f"SELECT s.n FROM {self._stage.sql} s, {self._table_schema.sql} t"  # noqa: S608 - quoted
            f" WHERE {self.same_key} AND s.old AND {where} AND ({self._differs})"
            f" ORDER BY s.n FOR NO KEY UPDATE OF t"
        )

    async def _refuse_gone(self, row_errors: RowErrors) -> int:
        """Refuses the rows that were deleted since they were found; returns how many."""
        gone = await self._places(
            f"SELECT s.n FROM {self._stage.sql} s WHERE s.old"  # noqa: S608 - quoted
            f" AND NOT EXISTS (SELECT FROM {self._table_schema.sql} t WHERE {self.same_key}) ORDER BY s.n"
        )
        reason = f"the row with this {', '.join(self._load.key)} was deleted while it was to be updated"
        row_errors.add(*(Refused(self._number(place), "deleted", reason) for place in gone))
        return len(gone)

    def _update(self, where: str) -> str:
        return (
            f"UPDATE {self._table_schema.sql} t SET {self._set} FROM {self._stage.sql} s"  # noqa: S608 - quoted
            f" WHERE {self.same_key} AND s.old AND {where} AND ({self._differs})"
        )

    def _number(self, place: int) -> int:
        if self._ranked is not None:
            place = self._ranked[place]
        return self._numbers[place] if self._numbers is not None else place

    async def _places(self, query: str) -> list[int]:
        return [row[0] for row in await self._connection.fetch(query, timeout=LOAD_SECONDS)]

    async def _run(self, statement: str) -> int:
        done: str = await self._connection.execute(statement, timeout=LOAD_SECONDS)
        return int(done.split()[-1])


def _differs(old: str, new: str, base: str) -> str:
    """Returns SQL for whether values differ: letter case counts even if the column ignores it, JSON layout never."""
    if base == "json":
        old, new = f"{old}::jsonb", f"{new}::jsonb"
    elif base in ("text", "varchar", "bpchar", "citext"):
        old, new = f'{old}::text COLLATE "C"', f'{new}::text COLLATE "C"'
    return f"{old} IS DISTINCT FROM {new}"
