"""A frame into a table of SQLite: staged beside it, then set against it, all in one piece of work.

    stage    a temporary table with the affinities of the destination: what is compared was converted alike
    insert   staged rows whose key is not there, by key
    update   those that differ

Nobody else writes meanwhile: the transaction has held the write lock from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import apsw

from rowlock.errors import ImportFault
from rowlock.storage.refusals import Refusals, key_exists
from rowlock.storage.sqlite.refuse import ROWS_FAULT, refused
from rowlock.storage.sqlite.shape import Shape, must_have, quoted
from rowlock.storage.tables import Load, Loaded, Mode

if TYPE_CHECKING:
    import polars as pl

SLICE_ROWS = 16_384
STAGE = "temp.rowlock_stage"


class Put:
    """One load; the stage has `n`, the place by key, and c0, c1, … for the columns."""

    def __init__(self, connection: apsw.Connection, load: Load) -> None:
        self._connection = connection
        self.load = load
        self.names = [column.name for column in load.columns]
        self.shape = _checked(connection, load, self.names)
        self._own = [f"c{place}" for place in range(len(self.names))]
        own = dict(zip(self.names, self._own, strict=True))
        self.same_key = " AND ".join(f"t.{quoted(name)} = s.{own[name]}" for name in load.key)
        # Letter case counts even where the column ignores it.
        self.differs = {
            name: f"t.{quoted(name)} COLLATE BINARY IS NOT s.{own[name]}"
            for name in self.names
            if name not in {*load.key, *load.unwatched, *load.untouched}
        }
        self._set = ", ".join(
            f"{quoted(name)} = s.{own[name]}" for name in self.names if name not in {*load.key, *load.untouched}
        )
        self._targets = ", ".join(map(quoted, self.names))
        self._values = ", ".join(f"s.{each}" for each in self._own)
        self.rows = 0
        # Rules that wait for the commit would name no row there. What is owed already is not of this load.
        self._watches = self.shape.refers and not _owes(connection)

    @property
    def updates(self) -> bool:
        return bool(self.load.key) and self.load.mode is Mode.UPSERT

    def straight(self, frame: pl.DataFrame) -> int | None:
        """Insert into the table itself; None, and nothing done, where that does not go well with every row."""
        marks = ", ".join("?" * len(self.names))
        statement = f"INSERT OR ABORT INTO {self.shape.sql} ({self._targets}) VALUES ({marks})"  # noqa: S608 - quoted
        try:
            with savepoint(self._connection):
                for rows in kept_rows(frame.drop("row")):
                    self._connection.executemany(statement, rows)
                self._check_owed()
        except ROWS_FAULT:
            return None
        return len(frame)

    @contextmanager
    def staged(self, frame: pl.DataFrame) -> Iterator[None]:
        """Have the rows of a frame, which is in the order of keys, on the stage."""
        with self._stage():
            marks = ", ".join("?" * len(self.names))
            statement = f"INSERT INTO {STAGE} ({', '.join(self._own)}) VALUES ({marks})"  # noqa: S608 - own names
            for rows in kept_rows(frame.drop("row")):
                self._connection.executemany(statement, rows)
            self.rows = len(frame)
            yield

    @contextmanager
    def taken_over(self, staged: str) -> Iterator[list[int]]:
        """Have the rows of a staging table on the stage; their row numbers, by place."""
        source = must_have(self._connection, staged, self.names)
        with self._stage():
            order = ", ".join(map(quoted, self.load.key)) or quoted("row")
            self.rows = self._run(
                f"INSERT INTO {STAGE} ({', '.join(self._own)}) SELECT {self._targets}"  # noqa: S608 - quoted
                f" FROM {source.sql} ORDER BY {order}"
            )
            numbers = f"SELECT {quoted('row')} FROM {source.sql} ORDER BY {order}"  # noqa: S608 - quoted
            yield [row[0] for row in self._connection.execute(numbers)]

    @contextmanager
    def _stage(self) -> Iterator[None]:
        typed = ", ".join(f"{quoted(name)} AS {own}" for name, own in zip(self.names, self._own, strict=True))
        self._connection.execute(f"CREATE TEMP TABLE rowlock_stage AS SELECT {typed} FROM {self.shape.sql} LIMIT 0")  # noqa: S608
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute(f"DROP TABLE {STAGE}")

    def all(self, numbers: Sequence[int], refusals: Refusals) -> Loaded:
        """Put every staged row; in the end each was inserted, updated, found unchanged or refused."""
        if self.load.key and not self.updates:
            refusals.add(*(key_exists(self.load, numbers[place]) for place in self._existing()))
        updated = self._tried(self._update(), numbers, refusals) if self.updates and self.differs else 0
        inserted = self._tried(self._insert(), numbers, refusals)
        unchanged = self.rows - inserted - updated - len(refusals.rows)
        return Loaded(inserted, updated, unchanged, refusals.in_order())

    def _tried(self, statement: str, numbers: Sequence[int], refusals: Refusals) -> int:
        """Run a statement for all staged rows at once, or, where the table refuses some, for each by itself."""
        try:
            with savepoint(self._connection):
                done = self._run(statement)
                self._check_owed()
                return done
        except ROWS_FAULT:
            if not self._connection.in_transaction:
                raise  # a trigger has rolled everything back
        done = 0
        places = [row[0] for row in self._connection.execute(f"SELECT rowid FROM {STAGE} ORDER BY rowid")]  # noqa: S608
        for place in places:
            try:
                with savepoint(self._connection) if self._watches else nullcontext():
                    self._connection.execute(f"{statement} AND s.rowid = ?", (place,))
                    changes = self._connection.changes()
                    self._check_owed()
                done += changes
            except ROWS_FAULT as error:
                if not self._connection.in_transaction:
                    raise
                refusals.add(refused(error, numbers[place - 1]))
                self._connection.execute(f"DELETE FROM {STAGE} WHERE rowid = ?", (place,))  # noqa: S608 - own name
        return done

    def _check_owed(self) -> None:
        if self._watches and _owes(self._connection):
            raise apsw.exception_for(apsw.SQLITE_CONSTRAINT_FOREIGNKEY)

    def _existing(self) -> list[int]:
        rows: Any = self._connection.execute(
            f"SELECT s.rowid - 1 FROM {STAGE} s CROSS JOIN {self.shape.sql} t WHERE {self.same_key}"  # noqa: S608
        )
        return [row[0] for row in rows.fetchall()]

    # OR ABORT: not what the table itself may say, to ignore a row or to replace another.

    def _insert(self) -> str:
        there = f"EXISTS (SELECT 1 FROM {self.shape.sql} t WHERE {self.same_key})" if self.load.key else "FALSE"  # noqa: S608
        return (
            f"INSERT OR ABORT INTO {self.shape.sql} ({self._targets})"  # noqa: S608 - quoted
            f" SELECT {self._values} FROM {STAGE} s WHERE NOT {there}"
        )

    def _update(self) -> str:
        return (
            f"UPDATE OR ABORT {self.shape.sql} AS t SET {self._set} FROM {STAGE} s"  # noqa: S608 - quoted
            f" WHERE {self.same_key} AND ({' OR '.join(self.differs.values())})"
        )

    def _run(self, statement: str) -> int:
        self._connection.execute(statement)
        return self._connection.changes()


def _owes(connection: apsw.Connection) -> bool:
    """Whether rows refer to what is not there, which the commit would refuse."""
    return connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0] > 0


@contextmanager
def savepoint(connection: apsw.Connection) -> Iterator[None]:
    """All of the block or none of it."""
    connection.execute("SAVEPOINT load")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO load; RELEASE load")
        raise
    connection.execute("RELEASE load")


def kept_rows(frame: pl.DataFrame) -> Iterator[Iterable[tuple[Any, ...]]]:
    """The rows as SQLite keeps them: moments as ISO texts."""
    import polars as pl

    def kept(name: str, kind: pl.DataType) -> pl.Expr:
        column = pl.col(name)
        if kind == pl.Date:
            return column.dt.strftime("%Y-%m-%d")
        if kind == pl.Time:
            return column.dt.strftime("%H:%M:%S%.f")
        if isinstance(kind, pl.Datetime):
            return column.dt.strftime("%Y-%m-%dT%H:%M:%S%.f" + ("+00:00" if kind.time_zone else ""))
        return column

    for part in frame.iter_slices(SLICE_ROWS):
        columns = part.select(kept(name, kind) for name, kind in part.schema.items()).iter_columns()
        yield zip(*(column.to_list() for column in columns), strict=True)  # cheaper than DataFrame.rows()


def _checked(connection: apsw.Connection, load: Load, names: Sequence[str]) -> Shape:
    shape = must_have(connection, load.table, names)
    wanted = {name.lower() for name in load.key}
    if wanted and wanted not in [{name.lower() for name in key} for key in shape.keys]:
        raise ImportFault(
            f"table {load.table} has no unique index on {', '.join(load.key)}: create one, or a primary key"
        )
    return shape
