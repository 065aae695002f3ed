"""Merge a frame into a SQLite table, in one piece of work.

    stage    load a temporary table with the destination's column affinities, so that both sides are converted alike
    count    count the keys that exist in the table, and the rows that differ
    update   update the rows that differ
    insert   insert staged rows whose key does not exist, in key order

If the table refuses or skips rows, each row is merged by itself. No other connection writes meanwhile: the transaction
has held the write lock from its start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import apsw

from rowlock.errors import ImportFault
from rowlock.storage.exact import INEXACT, Keeps, inexact
from rowlock.storage.references import References
from rowlock.storage.row_errors import KEY_EXISTS, SUPPRESSED, RowErrors, key_exists, suppressed
from rowlock.storage.sqlite.loading.row_errors import ROWS_FAULT, refused
from rowlock.storage.sqlite.loading.table_schema import TableSchema, must_have, quoted
from rowlock.storage.tables import Kind, Load, Loaded, Mode, Refused

if TYPE_CHECKING:
    import polars as pl

SLICE_ROWS = 16_384
_CHANGED = (Kind.INTEGER, Kind.DECIMAL, Kind.TEXT, Kind.JSON)  # kinds whose values an affinity may change
STAGE = "temp.rowlock_stage"
_INSERTED, _UPDATED, _UNCHANGED = "inserted", "updated", "unchanged"


class Merge:
    """One load. The stage has c0, c1, … for the columns; its rowid is the row's place in key order, from 1."""

    def __init__(self, connection: apsw.Connection, load: Load) -> None:
        self._connection = connection
        self.load = load
        self.names = [column.name for column in load.columns]
        self.table_schema = _checked(connection, load, self.names)
        self._own = [f"c{place}" for place in range(len(self.names))]
        own = dict(zip(self.names, self._own, strict=True))
        self.same_key = " AND ".join(f"t.{quoted(name)} = s.{own[name]}" for name in load.key)
        # Letter case counts, even if the column's collation ignores it.
        self.differs = {
            name: f"t.{quoted(name)} COLLATE BINARY IS NOT s.{own[name]}"
            for name in self.names
            if name not in {*load.key, *load.unwatched, *load.untouched}
        }
        self._differing = " OR ".join(self.differs.values()) if self.updates and self.differs else "FALSE"
        self._set = ", ".join(
            f"{quoted(name)} = s.{own[name]}" for name in self.names if name not in {*load.key, *load.untouched}
        )
        self._targets = ", ".join(map(quoted, self.names))
        self._values = ", ".join(f"s.{each}" for each in self._own)
        self._keeps = {name: kept for name in self.names if (kept := self.table_schema.keeps.get(name.lower()))}
        self.rows = 0
        # Check deferred foreign keys here: an error at commit names no row. Earlier violations are not of this load.
        self._watches = self.table_schema.refers and not _owes(connection)

    @property
    def updates(self) -> bool:
        return bool(self.load.key) and self.load.mode is Mode.UPSERT

    def exact(self, frame: pl.DataFrame, row_errors: RowErrors) -> pl.DataFrame:
        """Return the rows whose values the table stores exactly; the others are added to `row_errors`."""
        return self._exact(frame, self._keeps, row_errors)

    def _exact(self, frame: pl.DataFrame, keeps: Mapping[str, Keeps], row_errors: RowErrors) -> pl.DataFrame:
        import polars as pl

        keep = pl.repeat(True, len(frame), dtype=pl.Boolean, eager=True)
        for name, changed, why in inexact(self.load, keeps, frame):
            rows = frame.filter(changed & keep)["row"].to_list()
            row_errors.add(*(Refused(row, INEXACT, why, name) for row in rows))
            keep = keep & ~changed
        return frame if keep.all() else frame.filter(keep)

    def check_exact(self, staged: str, row_errors: RowErrors) -> None:
        """Add the rows of a staging table with values that the table would change to `row_errors`."""
        import polars as pl

        source = must_have(self._connection, staged, self.names)
        places = [n for n, c in enumerate(self.load.columns) if c.name in self._keeps and c.kind in _CHANGED]
        if not places:
            return
        wanted = ", ".join([quoted("row"), *(quoted(self.names[place]) for place in places)])
        found = self._connection.execute(f"SELECT {wanted} FROM {source.sql}")  # noqa: S608 - quoted
        schema = {
            "row": pl.Int64(),
            **{self._own[n]: pl.Int64() if self.load.columns[n].kind is Kind.INTEGER else pl.String() for n in places},
        }
        keeps = {self.names[place]: self._keeps[self.names[place]] for place in places}
        while rows := list(islice(found, SLICE_ROWS)):
            self._exact(pl.DataFrame(rows, schema=schema, orient="row"), keeps, row_errors)

    def straight(self, frame: pl.DataFrame) -> int | None:
        """Insert into the table directly and return the row count; None, with nothing inserted, if any row fails."""
        if self.table_schema.triggers:
            return None  # triggers may skip rows, and their own writes would be counted
        marks = ", ".join("?" * len(self.names))
        statement = f"INSERT OR ABORT INTO {self.table_schema.sql} ({self._targets}) VALUES ({marks})"  # noqa: S608 - quoted
        before = self._connection.total_changes()
        try:
            with self._deferring(), savepoint(self._connection):
                for rows in kept_rows(frame.drop("row")):
                    self._connection.executemany(statement, rows)
                self._check_owed()
        except ROWS_FAULT:
            return None
        return self._connection.total_changes() - before

    @contextmanager
    def staged(self, frame: pl.DataFrame) -> Iterator[None]:
        """Stage the rows of a frame, which is in key order, for the duration of the block."""
        with self._stage():
            marks = ", ".join("?" * len(self.names))
            statement = f"INSERT INTO {STAGE} ({', '.join(self._own)}) VALUES ({marks})"  # noqa: S608 - own names
            for rows in kept_rows(frame.drop("row")):
                self._connection.executemany(statement, rows)
            self.rows = len(frame)
            yield

    @contextmanager
    def taken_over(self, staged: str) -> Iterator[list[int]]:
        """Stage the rows of a staging table for the duration of the block; yields their row numbers, by place."""
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
        self._connection.execute(
            f"CREATE TEMP TABLE rowlock_stage AS SELECT {typed} FROM {self.table_schema.sql} LIMIT 0"  # noqa: S608
        )
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute(f"DROP TABLE {STAGE}")

    def all(self, numbers: Sequence[int], row_errors: RowErrors) -> Loaded:
        """Merge every staged row: each is inserted, updated, unchanged or refused."""
        try:
            with self._deferring(), savepoint(self._connection):
                loaded, there = self._at_once()
            row_errors.add(*(key_exists(self.load, numbers[place - 1]) for place in there))
        except (*ROWS_FAULT, _LeftOut) as error:
            self._check_transaction(error)
            loaded = self._one_by_one(numbers, row_errors)
        return replace(loaded, refused=row_errors.in_order())

    def _at_once(self) -> tuple[Loaded, list[int]]:
        """Merge all rows with one UPDATE and one INSERT; also return the places of existing keys, if all must be new.

        No other connection writes meanwhile: raises _LeftOut if the statements do not reach the rows counted before.
        """
        existing, differing = self._there()
        new = self.rows - existing
        there = [] if self.updates or not existing else self._existing()
        updated = self._run(self._update()) if differing else 0
        inserted = self._run(self._insert()) if new else 0
        self._check_owed()
        if (inserted, updated) != (new, differing):
            raise _LeftOut
        if self.updates:
            return Loaded(inserted, updated, existing - differing), []
        return Loaded(inserted), there

    def _there(self) -> tuple[int, int]:
        """Return how many keys exist in the table, and how many of those rows to update."""
        if not self.load.key:
            return 0, 0
        row: Any = self._connection.execute(
            f"SELECT count(*), count(*) FILTER (WHERE {self._differing})"  # noqa: S608
            f" FROM {STAGE} s CROSS JOIN {self.table_schema.sql} t"
            f" WHERE {self.same_key}"
        ).fetchone()
        return int(row[0]), int(row[1])

    def _one_by_one(self, numbers: Sequence[int], row_errors: RowErrors) -> Loaded:
        """Merge each row by itself, after the rows that it refers to; the rows of a reference cycle go together."""
        done: Counter[str] = Counter()
        for group in self._groups(numbers, row_errors):
            if len(group) > 1:
                with self._deferring():
                    error = self._tried(group, numbers, row_errors, done)
                if error is None:
                    continue
            for place in group:
                error = self._tried([place], numbers, row_errors, done)
                if error is not None:
                    row_errors.add(refused(error, numbers[place - 1]))
        return Loaded(done[_INSERTED], done[_UPDATED], done[_UNCHANGED])

    def _tried(
        self, places: Sequence[int], numbers: Sequence[int], row_errors: RowErrors, done: Counter[str]
    ) -> apsw.Error | None:
        """Merge all of these rows and return None, or merge none and return the error."""
        before = self._connection.total_changes()
        self._connection.execute("SAVEPOINT tried")
        try:
            outcomes = [self._one(place) for place in places]
            self._check_owed()
        except ROWS_FAULT as error:
            self._check_transaction(error)
            # A refused statement undoes itself, unless a trigger used RAISE(FAIL) or the constraint is deferred. Roll
            # back only then: SQLite reads the schema again (1.6 ms), because this transaction created the stage.
            undo = "ROLLBACK TO tried; " if self._connection.total_changes() != before else ""
            self._connection.execute(f"{undo}RELEASE tried")
            return error
        self._connection.execute("RELEASE tried")
        for place, outcome in zip(places, outcomes, strict=True):
            if outcome == KEY_EXISTS:
                row_errors.add(key_exists(self.load, numbers[place - 1]))
            elif outcome == SUPPRESSED:
                row_errors.add(suppressed(numbers[place - 1]))
            else:
                done[outcome] += 1
        return None

    def _one(self, place: int) -> str:
        """Merge one row; return its outcome."""
        differs: Any = None
        if self.load.key:
            differs = self._connection.execute(
                f"SELECT {self._differing} FROM {STAGE} s CROSS JOIN {self.table_schema.sql} t"  # noqa: S608 - quoted
                f" WHERE {self.same_key} AND s.rowid = ?",
                (place,),
            ).fetchone()
        if differs is None:
            return _INSERTED if self._run(f"{self._insert(looks=False)} WHERE s.rowid = ?", place) else SUPPRESSED
        if not self.updates:
            return KEY_EXISTS
        if not differs[0]:
            return _UNCHANGED
        return _UPDATED if self._run(f"{self._update()} AND s.rowid = ?", place) else SUPPRESSED

    def _groups(self, numbers: Sequence[int], row_errors: RowErrors) -> list[list[int]]:
        """Return the places of the staged rows, in groups, in the order in which to merge them."""
        places = range(1, self.rows + 1)
        if not self.table_schema.own_references:
            return [[place] for place in places]
        own = {name.lower(): column for name, column in zip(self.names, self._own, strict=True)}
        for place, reference in enumerate(self.table_schema.own_references):
            if columns := ", ".join(own[name] for name in reference.referred if name in own):
                self._connection.execute(f"CREATE INDEX {STAGE}_{place} ON rowlock_stage ({columns})")
        queries = [each.query(own, STAGE, "rowid", self.table_schema.sql) for each in self.table_schema.own_references]
        found: list[Any] = [row for query in queries if query for row in self._connection.execute(query)]
        references = References.of(found)
        groups = references.groups(places)
        if not self.load.later:
            return groups
        hopeless = references.hopeless(groups)
        row_errors.add(*(refused(_refers_to_nothing(), numbers[place - 1]) for place in sorted(hopeless)))
        return [group for group in groups if hopeless.isdisjoint(group)]

    @contextmanager
    def _deferring(self) -> Iterator[None]:
        """Check foreign keys when `_check_owed` is called, instead of after each statement."""
        before = self._connection.pragma("defer_foreign_keys")
        if self._watches:
            self._connection.pragma("defer_foreign_keys", True)
        try:
            yield
        finally:
            if self._watches and self._connection.in_transaction:
                self._connection.pragma("defer_foreign_keys", before)

    def _check_transaction(self, error: Exception) -> None:
        """Raise ImportFault if a trigger has ended the whole transaction."""
        if not self._connection.in_transaction:
            raise ImportFault(
                f"a trigger of table {self.load.table} has undone the whole step of the import by RAISE(ROLLBACK): let "
                f"it say RAISE(ABORT), which refuses one row, then resume the import"
            ) from error

    def _check_owed(self) -> None:
        if self._watches and _owes(self._connection):
            raise _refers_to_nothing()

    def _existing(self) -> list[int]:
        rows: Any = self._connection.execute(
            f"SELECT s.rowid FROM {STAGE} s CROSS JOIN {self.table_schema.sql} t WHERE {self.same_key}"  # noqa: S608
        )
        return [row[0] for row in rows.fetchall()]

    # OR ABORT overrides ON CONFLICT IGNORE and REPLACE in the table's own constraints.

    def _insert(self, looks: bool = True) -> str:
        there = f"EXISTS (SELECT 1 FROM {self.table_schema.sql} t WHERE {self.same_key})" if self.load.key else "FALSE"  # noqa: S608
        return (
            f"INSERT OR ABORT INTO {self.table_schema.sql} ({self._targets})"  # noqa: S608 - quoted
            f" SELECT {self._values} FROM {STAGE} s{f' WHERE NOT {there}' if looks else ''}"
        )

    def _update(self) -> str:
        return (
            f"UPDATE OR ABORT {self.table_schema.sql} AS t SET {self._set} FROM {STAGE} s"  # noqa: S608 - quoted
            f" WHERE {self.same_key} AND ({self._differing})"
        )

    def _run(self, statement: str, *places: int) -> int:
        self._connection.execute(statement, places)
        return self._connection.changes()


class _LeftOut(Exception):
    """Raised if the database skipped rows without an error."""


def _refers_to_nothing() -> apsw.Error:
    error = apsw.exception_for(apsw.SQLITE_CONSTRAINT_FOREIGNKEY)
    assert isinstance(error, apsw.Error)
    return error


def _owes(connection: apsw.Connection) -> bool:
    """Return whether a deferred foreign key is violated, which the commit would refuse."""
    return connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0] > 0


@contextmanager
def savepoint(connection: apsw.Connection) -> Iterator[None]:
    """Run the block in a savepoint, which is rolled back if the block raises."""
    connection.execute("SAVEPOINT load")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO load; RELEASE load")
        raise
    connection.execute("RELEASE load")


def kept_rows(frame: pl.DataFrame) -> Iterator[Iterable[tuple[Any, ...]]]:
    """Yield the rows in slices, as SQLite stores them: dates and times as ISO 8601 text."""
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


def _checked(connection: apsw.Connection, load: Load, names: Sequence[str]) -> TableSchema:
    table_schema = must_have(connection, load.table, names)
    wanted = {name.lower() for name in load.key}
    if wanted and wanted not in [{name.lower() for name in key} for key in table_schema.keys]:
        raise ImportFault(
            f"table {load.table} has no unique index on {', '.join(load.key)}: create one, or a primary key"
        )
    return table_schema
