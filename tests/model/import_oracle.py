"""The oracle: each row is written alone into a second table, with the driver and without Rowlock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from model.import_cases import Case
from model.import_values import row_of

Key = tuple[Any, ...]
Row = tuple[Any, ...]


@dataclass
class Verdicts:
    """The numbers of the rows by outcome."""

    inserted: set[int] = field(default_factory=set)
    updated: set[int] = field(default_factory=set)
    unchanged: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return len(self.inserted), len(self.updated), len(self.unchanged), len(self.refused)


class Refused(Exception):
    """The database does not take a row, or does not keep its values."""


class Denied(Refused):
    """A right is missing."""


class Oracle(ABC):
    """Two tables that are alike: `subject` is Rowlock's, `own` is the oracle's."""

    def __init__(self, case: Case, subject: str) -> None:
        self.case = case
        self.subject, self.own = subject, f"{subject}_own"
        self.names = [spec.name for spec in case.columns]
        self.kinds = [(spec.kind, spec.type) for spec in case.columns]

    @abstractmethod
    def create(self) -> None:
        """Make both tables, with the same rows."""

    @abstractmethod
    def drop(self) -> None: ...

    @abstractmethod
    def wipe(self) -> None:
        """Delete what an import that replaces deletes."""

    @abstractmethod
    def stored(self, key: Mapping[str, Any]) -> Row | None:
        """The oracle's row with this key, raw."""

    @abstractmethod
    def write(self, values: Mapping[str, Any], wanted: Row, *, new: bool, keep: bool) -> None:
        """Insert or update one row, alone. Raises Refused where the database does, or stores something else."""

    @abstractmethod
    def table(self, name: str) -> dict[Key, Row]:
        """All rows by key, in the form that can be compared."""

    def seed(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Fill the oracle's table with those rows that go in."""
        waiting = [dict(row) for row in rows]
        while waiting:
            left = []
            for row in waiting:
                try:
                    self._put(row, "insert", keep=True)
                except Refused:
                    left.append(row)
            if len(left) == len(waiting):
                return
            waiting = left

    def load(self, rows: Mapping[int, Mapping[str, Any]], mode: str | None = None) -> Verdicts:
        """Try each row alone, and those that were refused again, until there is nothing more to be done."""
        mode = mode or self.case.mode
        verdicts = Verdicts()
        waiting = dict(rows)
        while waiting:
            left: dict[int, str] = {}
            for number, values in waiting.items():
                try:
                    getattr(verdicts, self._put(values, mode, keep=True)).add(number)
                except Refused as refused:
                    left[number] = f"{type(refused).__name__}: {refused}"
            verdicts.refused = left
            if len(left) == len(waiting):
                break
            waiting = {number: waiting[number] for number in left}
        return verdicts

    def takes(self, values: Mapping[str, Any]) -> bool:
        """Whether one more row would go in; the table stays as it is."""
        try:
            self._put(values, self.case.mode, keep=False)
        except Refused:
            return False
        return True

    def _put(self, values: Mapping[str, Any], mode: str, *, keep: bool) -> str:
        before = self.stored(values)
        if before is not None:
            if mode != "upsert":
                raise Refused("key_exists")
            wanted = self._wanted(values, before)
            if row_of(self.kinds, before) == wanted:
                return "unchanged"
        else:
            wanted = self._wanted(values, (None,) * len(self.names))
        self.write(values, wanted, new=before is None, keep=keep)
        return "updated" if before is not None else "inserted"

    def check(self, stored: Row | None, wanted: Row) -> None:
        """Raise Refused where the row is not stored as it is."""
        if stored is None:
            raise Refused("suppressed")
        if row_of(self.kinds, stored) != wanted:
            raise Refused(f"changed: {row_of(self.kinds, stored)} is not {wanted}")

    def _wanted(self, values: Mapping[str, Any], before: Row) -> Row:
        return row_of(self.kinds, [values.get(n, old) for n, old in zip(self.names, before, strict=True)])

    def keyed(self, rows: Iterable[Row]) -> dict[Key, Row]:
        """Rows by their key; columns of the oracle's own come behind those of the case."""
        width, places = len(self.names), [self.names.index(name) for name in self.case.key]
        found: dict[Key, Row] = {}
        for row in rows:
            made = row_of(self.kinds, row[:width]) + tuple(row[width:])
            key = tuple(made[place] for place in places)
            assert key not in found, f"the key {key} is there twice"
            found[key] = made
        return found
