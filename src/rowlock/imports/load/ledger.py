"""The ledger of a chunk: every row ends in exactly one of inserted, updated, unchanged, duplicate, invalid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from rowlock.errors import ImportFault
from rowlock.imports.check.checkers import checker
from rowlock.imports.error_report import ADDED, as_written
from rowlock.imports.importer import Duplicates, ImportType
from rowlock.imports.load.waiting_rows import WAITING, Waiting
from rowlock.imports.normalize import normal_texts
from rowlock.imports.read.plan_request import REDACTED
from rowlock.imports.read.source import ROW
from rowlock.imports.run import Run
from rowlock.storage.imports import ChunkResult, Counts, ErrorGroup, ErrorRow, RowError
from rowlock.storage.tables import Change, Loaded

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

PART_ROWS = "rows"
"""Key in the notes of a part of a chunk: its number of rows in the chunk file, including rows not yet merged."""

_VALUE_CHARS_MAX = 200
_CELL_CHARS_MAX = 2_000
_NAMED_MAX = 5
_STOPPED_BYTES_MAX = 256 * 1024  # of JSON in an import's record: half for rows, a quarter each for groups and errors


class Ledger:
    """Records the outcome of each row of one chunk, from its cells to the table."""

    def __init__(self, declared: ImportType, meta: Mapping[str, Any], errors_max: int) -> None:
        self.meta = meta
        self._declared = declared
        self._errors_max = errors_max
        self._headers = {name: meta["header"][index] for name, index in meta["columns"].items()}
        self._cells: pl.DataFrame | None = None
        self._keys: pl.DataFrame | None = None
        self._groups: Counter[tuple[str | None, str]] = Counter()
        self._errors: list[RowError] = []
        self._invalid: set[int] = set()
        self._duplicates = 0
        self._secret = {field.name for field in declared.fields if field.secret}
        self.told: dict[str, int] = {}
        self.divided = False  # it has only a part of the chunk's rows

    def begin(self, cells: pl.DataFrame) -> pl.DataFrame:
        """Keep the cells of the rows, and return them under the names of their fields."""
        from rowlock.imports.read.partition import named_cells

        self._cells = cells
        if [name.casefold() for name in self.meta["header"][-len(ADDED) :]] == list(ADDED):
            texts = [f"c{index}" for index in range(len(self.meta["header"]))]
            cells = cells.with_columns(as_written(texts))
        return named_cells(cells, self.meta["columns"], self.meta["typed"])

    def check(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Check the rows and return the valid ones, converted."""
        import polars as pl

        checked = checker(self._declared).check(
            frame.with_columns(pl.col(pl.String).fill_null("")),
            self._headers,
            typed=self.meta["typed"],
            errors_max=self._errors_max,
        )
        self._groups.update(checked.groups)
        self._errors += checked.errors
        self._invalid.update(checked.invalid.to_list())
        good: pl.DataFrame = checked.good
        self._keys = good.select(ROW, *(field.name for field in self._declared.partition))
        return good

    def _without_duplicates(self, frame: pl.DataFrame, key: list[str]) -> pl.DataFrame:
        """Sort the rows by key, in which order they are loaded, and drop duplicates: all but the last, or all."""
        import polars as pl

        frame = frame.sort(*key, ROW)
        again = frame.select(pl.all_horizontal(pl.col(name) == pl.col(name).shift(-1) for name in key)).to_series()
        again = again.fill_null(False)
        if not again.any():
            return frame
        if self._declared.duplicates is Duplicates.LAST:
            self._duplicates += int(again.sum())
            return frame.filter(~again)
        twice = again | again.shift(1, fill_value=False)
        self._twice(frame.filter(twice), key)
        return frame.filter(~twice)

    def _twice(self, rows: pl.DataFrame, key: list[str]) -> None:
        column = self._headers.get(key[0])
        for same in rows.partition_by(key, maintain_order=True):
            numbers = same[ROW].to_list()
            shown = [REDACTED if name in self._secret else str(same[name][0]) for name in key]
            value = ", ".join(shown)[:_VALUE_CHARS_MAX]
            for number in numbers:
                reason = f"row {_others(numbers, number)} has the same key"
                self._refuse(RowError(number, column, "duplicate_key", reason, value))

    def parsed(self, before: pl.DataFrame, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        """Check the frame that `parse` returned; it may lack the rows that `parse` rejected."""
        self._check_numbers(before, frame, run, "parse")
        gone = {error.row for error in run.rejected}.difference(frame[ROW])
        self._check_count(before.height - len(gone), frame, run, "parse")
        return frame

    def kept(self, frame: pl.DataFrame, run: Run, hook: str) -> pl.DataFrame:
        """Return a hook's frame without the rows that it rejected; raises ImportFault if other rows are missing."""
        import polars as pl

        rejected, run.rejected = run.rejected, []
        assert self._cells is not None
        assert self._keys is not None
        self._check_numbers(self._keys, frame, run, hook)
        if strange := {error.row for error in rejected}.difference(self._cells[ROW]):
            raise ImportFault(
                f"importer {run.type!r}: {hook}() rejects row {min(strange)}, which it did not get: use the numbers "
                f"in the column {ROW!r}"
            )
        for error in rejected:
            self._refuse(replace(error, column=self._headers.get(error.column or "", error.column)))
        if rejected:
            frame = frame.filter(~pl.col(ROW).is_in(list({error.row for error in rejected})))
        self._check_count(self._cells.height - len(self._invalid), frame, run, hook)
        return frame

    def _check_count(self, expected: int, frame: pl.DataFrame, run: Run, hook: str) -> None:
        if frame.height != expected or not frame[ROW].is_unique().all():
            raise ImportFault(
                f"importer {run.type!r}: {hook}() got {expected} valid rows and returned {frame.height}; "
                f"call run.reject(rows, reason) for rows that it does not want to load"
            )

    def _check_numbers(self, before: pl.DataFrame, frame: pl.DataFrame, run: Run, hook: str) -> None:
        """Raise ImportFault unless each row kept its number: errors name rows by it, and show the cells of that row."""
        import polars as pl

        if not isinstance(frame, pl.DataFrame):
            raise ImportFault(f"importer {run.type!r}: {hook}() must return a frame, not {type(frame).__name__}")
        if ROW not in frame.columns:
            raise ImportFault(f"importer {run.type!r}: {hook}() must keep the column {ROW!r}")
        moved = not frame.schema[ROW].is_numeric() or not frame[ROW].is_in(before[ROW].to_list()).all()
        names = [f.name for f in self._declared.partition if frame.schema.get(f.name, 0) == before.schema.get(f.name)]
        if not moved and names:
            numbers = frame.select(frame[ROW].cast(before.schema[ROW]))
            old = before.select(ROW, *names).join(numbers, on=ROW, how="semi")
            new = frame.select(ROW, *names).sort(ROW)
            moved = not old.sort(ROW).select(names).equals(new.select(names))
            # If each key occurs as often as before, but in other rows, the hook moved the numbers.
            moved = moved and old.select(names).sort(names).equals(new.select(names).sort(names))
        if moved:
            raise ImportFault(
                f"importer {run.type!r}: {hook}() changes the column {ROW!r}: each row must keep its number, because "
                f"errors refer to it"
            )

    def output(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Convert the values, as hooks may return anything, and return the rows whose values fit their columns."""
        from rowlock.imports.check.hook_output import checked_output

        frame, errors = checked_output(frame, self._declared.columns)
        for error in errors:
            value = REDACTED if error.column in self._secret else error.value
            self._refuse(replace(error, column=self._headers.get(error.column or "", error.column), value=value))
        return frame

    def table_rows(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        """Return the rows of the table, with its columns and `row`, without duplicates and rows that lack a key."""
        import polars as pl

        declared = self._declared
        fixed = dict(run.fixed)
        if declared.provenance is not None:
            fixed[declared.provenance[0]] = run.id
            frame = frame.with_columns(pl.col(ROW).cast(pl.Int64).alias(declared.provenance[1]))
        missing = {c.name for c in declared.columns} - set(frame.columns) - set(fixed)
        if missing:
            raise ImportFault(
                f"importer {run.type!r}: no hook returns the column{'s' if len(missing) > 1 else ''} "
                f"{', '.join(sorted(missing))}"
            )
        key = [name for name in declared.key if name not in fixed]
        self._check_keys(frame, key)
        if empty := [name for name in key if frame[name].null_count()]:
            frame = self._with_key(frame, empty)
        if key:
            frame = self._without_duplicates(self._normal(frame, key), key)
        frame = frame.with_columns(self._fixed(fixed, run))
        return frame.select(ROW, *(column.name for column in declared.columns))

    def _fixed(self, fixed: Mapping[str, Any], run: Run) -> list[pl.Expr]:
        """Return the values common to all rows, in the dtypes of their columns; raises ImportFault for a bad one."""
        import polars as pl

        from rowlock.imports.check.hook_output import checked_output

        given = pl.DataFrame([pl.Series(ROW, [0]), *(pl.Series(name, [_one(value)]) for name, value in fixed.items())])
        made, errors = checked_output(given, self._declared.columns)
        if errors:
            raise ImportFault(
                f"importer {run.type!r}: run.values[{errors[0].column!r}]: {errors[0].reason}; prepare() must set a "
                f"value of the column's kind"
            )
        return [pl.lit(made[name][0], dtype=made.schema[name]).alias(name) for name in fixed]

    def _normal(self, frame: pl.DataFrame, key: list[str]) -> pl.DataFrame:
        """Normalise the texts of keys, which hooks and validators may have changed."""
        import polars as pl

        return frame.with_columns(normal_texts(frame[name]) for name in key if frame[name].dtype == pl.String)

    def _check_keys(self, frame: pl.DataFrame, key: list[str]) -> None:
        """Raise ImportFault if a hook changed a key: rows were split by key before, so it may be in two chunks."""
        importer = self._declared.importer
        whole = self.meta["chunkCount"] == 1 and not self.divided
        if importer.partition is not None or not importer.hooked or not key or whole:
            return
        assert self._keys is not None
        before = self._keys.select(ROW, *key).join(frame.select(ROW), on=ROW, how="semi")
        if not frame.select(ROW, *key).sort(ROW).equals(before.sort(ROW)):
            raise ImportFault(
                f"importer {self._declared.name!r}: a hook changes the key ({', '.join(key)}); declare partition=, the "
                f"columns of the file whose equal values belong to the same key"
            )

    def _with_key(self, frame: pl.DataFrame, empty: list[str]) -> pl.DataFrame:
        import polars as pl

        without = pl.any_horizontal(pl.col(name).is_null() for name in empty)
        for row in frame.filter(without)[ROW].to_list():
            self._refuse(RowError(row, self._headers.get(empty[0]), "required", "the key must have a value"))
        return frame.filter(~without)

    def copy(self) -> Ledger:
        """Return a copy of the records so far, for another attempt to load the rows."""
        other = copy(self)
        other._groups, other._errors, other._invalid = self._groups.copy(), self._errors.copy(), self._invalid.copy()
        return other

    def result(self, loaded: Loaded, waiting: Waiting | None = None, *, part: bool = False) -> ChunkResult:
        """Return the ledger line of this chunk, or part of one, without rows that wait for the finish job.

        Raises ImportFault if the counts do not add up.
        """
        assert self._cells is not None
        if strange := {refused.row for refused in loaded.refused}.difference(self._cells[ROW]):
            raise ImportFault(
                f"importer {self._declared.name!r}: load() reports row {min(strange)}, which it did not get: each "
                f"row must keep its number in the column {ROW!r}"
            )
        refused_rows = sorted(loaded.refused, key=lambda refused: refused.row)
        for place, refused in enumerate(refused_rows):
            header = self._headers.get(refused.column or "", refused.column)
            if place < self._errors_max:
                self._errors.append(RowError(refused.row, header, refused.code, refused.reason))
            self._groups[header, refused.code] += 1
            self._invalid.add(refused.row)
        staged = self.meta.get("staged") is not None
        invalid = len(self._invalid)
        rows = self._cells.height - (waiting.rows if waiting else 0)
        if staged:  # rows in the staging table are counted when they are merged
            rows, loaded = invalid + self._duplicates, Loaded()
        counts = Counts(rows, loaded.inserted, loaded.updated, loaded.unchanged, self._duplicates, invalid)
        if not counts.balanced:
            raise ImportFault(f"importer {self._declared.name!r}: the outcomes of {rows} rows do not add up: {counts}")
        self.told = {name: getattr(counts, name) for name in Counts.__dataclass_fields__}
        sample = [Change(c.row, self._shown(c.before), self._shown(c.after) or {}) for c in loaded.sample]
        notes: dict[str, Any] = {"changed": loaded.changed, "sample": sample} if loaded.changed is not None else {}
        if waiting is not None:
            notes[WAITING] = asdict(waiting)
        if part:
            notes[PART_ROWS] = self._cells.height
        groups = [ErrorGroup(column, code, count) for (column, code), count in self._groups.items()]
        return ChunkResult(counts, groups, self._error_rows(), orjson.dumps(notes, default=str).decode())

    @property
    def errors(self) -> int:
        """The number of errors so far."""
        return sum(self._groups.values())

    def first_errors(self, most: int) -> list[dict[str, Any]]:
        """Return up to `most` errors for display, those of the first rows."""
        first = sorted(self._errors, key=lambda error: error.row)[:most]
        told = [{"row": e.row, "column": e.column, "code": e.code, "reason": e.reason, "value": e.value} for e in first]
        return _fitting(told, _STOPPED_BYTES_MAX // 4)[0]

    def stopped(self, most: int) -> dict[str, Any]:
        """Return the errors of a chunk that stops the import (see `stopped.py`), with up to `most` rows.

        They are part of one record, so their size is limited: rows that do not fit are kept without their cells, and of
        the groups only the largest are kept.
        """
        groups = [[column, code, count] for (column, code), count in self._groups.most_common()]
        found = self._error_rows(most)
        rows, left = _fitting(
            [
                {"row": row.row, "errors": [[e.column, e.code, e.reason, e.value] for e in row.errors], "cells": []}
                for row in found
            ],
            _STOPPED_BYTES_MAX // 2,
        )
        cells = [[cell[:_VALUE_CHARS_MAX] for cell in row.cells] for row in found[: len(rows)]]
        kept, _ = _fitting(cells, left)
        return {
            "failed": len(self._invalid),
            "errorCount": self.errors,
            "groups": _fitting(groups, _STOPPED_BYTES_MAX // 4)[0],
            "rows": [row | {"cells": own} for row, own in zip(rows, kept, strict=False)] + rows[len(kept) :],
            "withoutCells": sum(map(bool, cells[len(kept) :])),
        }

    def _shown(self, values: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return a row for display: secrets are redacted and texts cut to 200 characters."""
        if values is None:
            return None
        cut = {name: v[:_VALUE_CHARS_MAX] if isinstance(v, str) else v for name, v in values.items()}
        return cut | dict.fromkeys(self._secret & cut.keys(), REDACTED)

    def _refuse(self, error: RowError) -> None:
        self._groups[error.column, error.code] += 1
        self._errors.append(error)
        self._invalid.add(error.row)

    def _error_rows(self, most: int | None = None) -> list[ErrorRow]:
        """Return the first errors with the cells of their rows, for up to `most` rows."""
        import polars as pl

        assert self._cells is not None
        self._errors.sort(key=lambda error: error.row)
        by_row: dict[int, list[RowError]] = {}
        for error in self._errors[: self._errors_max]:
            if len(by_row) == most and error.row not in by_row:
                break
            by_row.setdefault(error.row, []).append(error)
        if not by_row:
            return []
        secret = {self.meta["columns"].get(name) for name in self._secret}
        texts = [
            pl.lit(REDACTED).alias(f"c{index}") if index in secret else pl.col(f"c{index}")
            for index in range(len(self.meta["header"]))
        ]
        bad = self._cells.filter(pl.col(ROW).is_in(list(by_row))).select(ROW, *texts)
        cells = {row[0]: [cell[:_CELL_CHARS_MAX] for cell in row[1:]] for row in bad.iter_rows()}
        return [ErrorRow(row, errors, cells.get(row, [])) for row, errors in sorted(by_row.items())]


def _one(value: Any) -> Any:
    """Return a JSON value as one value of a column: arrays and objects become text."""
    return orjson.dumps(value).decode() if isinstance(value, list | dict) else value


def _others(numbers: list[int], number: int) -> str:
    """Return the first few of the other rows' numbers as text."""
    others = [str(other) for other in numbers[: _NAMED_MAX + 1] if other != number][:_NAMED_MAX]
    left = len(numbers) - 1 - len(others)
    return ", ".join(others) + (f" and {left:,} more" if left else "")


def _fitting(items: Sequence[T], bytes_max: int) -> tuple[list[T], int]:
    """Return the first items that fit into `bytes_max` as JSON, and the bytes that are left."""
    fitting: list[T] = []
    for item in items:
        size = len(orjson.dumps(item)) + 1
        if size > bytes_max:
            break
        bytes_max -= size
        fitting.append(item)
    return fitting, bytes_max
