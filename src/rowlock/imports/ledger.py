"""The ledger of a chunk: every row ends in exactly one of inserted, updated, unchanged, duplicate, invalid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from rowlock.errors import ImportFault
from rowlock.imports.checking.checkers import checker
from rowlock.imports.importer import Duplicates, ImportType
from rowlock.imports.order import REDACTED
from rowlock.imports.report import ADDED, as_written
from rowlock.imports.run import Run
from rowlock.imports.source import ROW
from rowlock.storage.imports import ChunkResult, Counts, ErrorGroup, ErrorRow, RowError
from rowlock.storage.tables import Change, Loaded

if TYPE_CHECKING:
    import polars as pl

_VALUE_CHARS_MAX = 200
_CELL_CHARS_MAX = 2_000
_NAMED_MAX = 5


class Ledger:
    """Keeps account of the rows of one chunk, from its cells to the table."""

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

    def begin(self, cells: pl.DataFrame) -> pl.DataFrame:
        """The cells under the names of their fields."""
        from rowlock.imports.split import named_cells

        self._cells = cells
        if [name.casefold() for name in self.meta["header"][-len(ADDED) :]] == list(ADDED):
            texts = [f"c{index}" for index in range(len(self.meta["header"]))]
            cells = cells.with_columns(as_written(texts))
        return named_cells(cells, self.meta["columns"], self.meta["typed"])

    def check(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that are valid, converted."""
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
        """By key, in which order rows are loaded, too: of those with the same one, the last, or none."""
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

    def kept(self, frame: pl.DataFrame, run: Run, hook: str) -> pl.DataFrame:
        """What a hook has left over, without the rows that it rejected; a row that vanished is a fault of the hook."""
        import polars as pl

        if ROW not in frame.columns:
            raise ImportFault(f"importer {run.type!r}: {hook}() must keep the column {ROW!r}")
        rejected, run.rejected = run.rejected, []
        for error in rejected:
            self._refuse(replace(error, column=self._headers.get(error.column or "", error.column)))
        if rejected:
            frame = frame.filter(~pl.col(ROW).is_in(list({error.row for error in rejected})))
        assert self._cells is not None
        expected = self._cells.height - len(self._invalid)
        if frame.height != expected or not frame[ROW].is_unique().all():
            raise ImportFault(
                f"importer {run.type!r}: {hook}() was given {expected} rows that count and returned {frame.height}; "
                f"use run.reject(rows, reason) for those that are not to be loaded"
            )
        return frame

    def table_rows(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        """Rows of the table: its columns and `row`; none without a key, and of those with the same key, the last."""
        import polars as pl

        declared = self._declared
        fixed = dict(run.fixed)
        if declared.provenance is not None:
            fixed[declared.provenance[0]] = run.id
            frame = frame.with_columns(pl.col(ROW).cast(pl.Int64).alias(declared.provenance[1]))
        missing = {c.name for c in declared.columns} - set(frame.columns) - set(fixed)
        if missing:
            raise ImportFault(
                f"importer {run.type!r}: no hook has made the column{'s' if len(missing) > 1 else ''} "
                f"{', '.join(sorted(missing))}"
            )
        key = [name for name in declared.key if name not in fixed]
        self._check_keys(frame, key)
        if empty := [name for name in key if frame[name].null_count()]:
            frame = self._with_key(frame, empty)
        if key:
            frame = self._without_duplicates(frame, key)
        frame = frame.with_columns(**{name: pl.lit(value) for name, value in fixed.items()})
        return frame.select(ROW, *(column.name for column in declared.columns))

    def _check_keys(self, frame: pl.DataFrame, key: list[str]) -> None:
        """Rows were split by their key before the hooks saw them: a key that a hook changes may be in two chunks."""
        importer = self._declared.importer
        if importer.partition is not None or not importer.hooked or not key or self.meta["chunkCount"] == 1:
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

    def result(self, loaded: Loaded) -> ChunkResult:
        """The ledger line of this chunk; raises where it does not sum up."""
        assert self._cells is not None
        for refused in loaded.refused:
            header = self._headers.get(refused.column or "", refused.column)
            self._refuse(RowError(refused.row, header, refused.code, refused.reason))
        staged = self.meta.get("staged") is not None
        invalid = len(self._invalid)
        rows = self._cells.height
        if staged:  # those that wait in the staging table are counted when they are merged
            rows, loaded = invalid + self._duplicates, Loaded()
        counts = Counts(rows, loaded.inserted, loaded.updated, loaded.unchanged, self._duplicates, invalid)
        if not counts.balanced:
            raise ImportFault(f"importer {self._declared.name!r}: of {rows} rows of a chunk, {counts} became of them")
        self.told = {name: getattr(counts, name) for name in Counts.__dataclass_fields__}
        sample = [Change(c.row, self._shown(c.before), self._shown(c.after) or {}) for c in loaded.sample]
        notes = {"changed": loaded.changed, "sample": sample} if loaded.changed is not None else {}
        groups = [ErrorGroup(column, code, count) for (column, code), count in self._groups.items()]
        return ChunkResult(counts, groups, self._error_rows(), orjson.dumps(notes, default=str).decode())

    @property
    def errors(self) -> int:
        """How many errors there are so far."""
        return sum(self._groups.values())

    def first_errors(self, most: int) -> list[dict[str, Any]]:
        """The first errors, as people are told of them."""
        first = sorted(self._errors, key=lambda error: error.row)[:most]
        return [{"row": e.row, "column": e.column, "code": e.code, "reason": e.reason, "value": e.value} for e in first]

    def _shown(self, values: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """A row as people may see it: without secrets, and no cell longer than fits on a line."""
        if values is None:
            return None
        cut = {name: v[:_VALUE_CHARS_MAX] if isinstance(v, str) else v for name, v in values.items()}
        return cut | dict.fromkeys(self._secret & cut.keys(), REDACTED)

    def _refuse(self, error: RowError) -> None:
        self._groups[error.column, error.code] += 1
        self._errors.append(error)
        self._invalid.add(error.row)

    def _error_rows(self) -> list[ErrorRow]:
        """The first errors with the cells of their rows."""
        import polars as pl

        assert self._cells is not None
        self._errors.sort(key=lambda error: error.row)
        by_row: dict[int, list[RowError]] = {}
        for error in self._errors[: self._errors_max]:
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


def _others(numbers: list[int], number: int) -> str:
    """The first few of the other rows."""
    others = [str(other) for other in numbers[: _NAMED_MAX + 1] if other != number][:_NAMED_MAX]
    left = len(numbers) - 1 - len(others)
    return ", ".join(others) + (f" and {left:,} more" if left else "")
