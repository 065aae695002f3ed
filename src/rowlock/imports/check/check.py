"""Check rows against the model: whole columns at once, then pydantic for the rows that remain undecided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import repeat
from typing import Any
from uuid import UUID

import polars as pl
from pydantic import BaseModel

from rowlock.imports.check.columns import Converted, convert, default_of, dtype_of
from rowlock.imports.check.keys import hashable, key_hash
from rowlock.imports.check.reasons import CODES
from rowlock.imports.check.row_by_row import Judge, Problem
from rowlock.imports.fields import Field
from rowlock.imports.read.source import ROW, CellKind
from rowlock.storage.imports import RowError
from rowlock.storage.tables import Kind

__all__ = ["CODES", "Checked", "Checker", "hashable", "key_hash"]

REDACTED = "[redacted]"
KIND = "#kind"  # suffix of a field's name: the column with the kinds of its cells


@dataclass(slots=True)
class Checked:
    """The result of a check: each row of the frame is either good or invalid."""

    good: pl.DataFrame  # row, and one column of values per field of the model, in its order
    invalid_rows: int
    errors: list[RowError]  # of the first invalid rows: all errors of each row, up to the limit
    groups: Counter[tuple[str | None, str]]  # the number of all errors by column and code
    invalid: pl.Series  # the numbers of all invalid rows


class Checker:
    """Checks any number of frames of cells against a model."""

    def __init__(self, model: type[BaseModel], fields: Sequence[Field], *, values_max_chars: int = 200) -> None:
        self._fields = list(fields)
        self._values_max_chars = values_max_chars
        self._judge = Judge(model, fields)

    def check(self, frame: pl.DataFrame, header: Mapping[str, str], *, typed: bool, errors_max: int) -> Checked:
        """Split the rows of a frame into good ones with their values and invalid ones with all of their errors."""
        frame = frame if frame[ROW].is_sorted() else frame.sort(ROW)
        told = _Errors(header, errors_max, self._values_max_chars)
        converted = {field.name: self._convert(field, frame, typed) for field in self._fields}
        left = pl.repeat(self._judge.sees_rows, frame.height, dtype=pl.Boolean, eager=True)
        for one in converted.values():
            left = left | one.bad
        good = pl.DataFrame([frame[ROW], *(one.values for one in converted.values())])
        if not left.any():
            return told.checked(good, [])
        rescued: list[tuple[Any, ...]] = []
        invalid: list[int] = []
        rows = self._cells(frame.filter(left), typed)
        known = self._known(frame, converted) if self._judge.sees_rows else repeat(None)
        for (row, texts, kinds), values_known in zip(rows, known, strict=False):
            values = self._judge.accept(texts, kinds, values_known) if values_known is not None else None
            if values is None:
                values, problems = self._judge.decide(texts, kinds)
                if problems:
                    invalid.append(row)
                    told.tell(row, problems, texts)
                    continue
            rescued.append((row, *values))
        good = good.filter(~left)
        if rescued:
            columns = zip(*rescued, strict=True)
            dtypes = [frame.schema[ROW], *(dtype_of(field) for field in self._fields)]
            made = [
                pl.Series(name, column, dtype=dtype)
                for name, column, dtype in zip(good.columns, columns, dtypes, strict=True)
            ]
            good = pl.concat([good, pl.DataFrame(made)]).sort(ROW, maintain_order=True)
        return told.checked(good, invalid)

    def _convert(self, field: Field, frame: pl.DataFrame, typed: bool) -> Converted:
        if field.name in frame.columns and not (self._judge.sees_rows and not _readable(field)):
            kinds = frame[field.name + KIND] if typed else None
            return convert(field, frame[field.name], kinds, fill=not self._judge.sees_rows)
        settled = self._judge.sees_rows or (field.has_default and not field.factory)
        value = default_of(field) if settled and not self._judge.sees_rows else None
        values = pl.Series(field.name, [value], dtype=dtype_of(field)).new_from_index(0, frame.height)
        return Converted(values, pl.repeat(not settled, frame.height, dtype=pl.Boolean, eager=True))

    def _known(self, frame: pl.DataFrame, converted: Mapping[str, Converted]) -> Iterable[dict[str, Any] | None]:
        """Yield the values of each row that were already read as whole columns, None if one of them is doubtful."""
        fields = [field for field in self._fields if field.name in frame.columns and _readable(field)]
        bad = pl.repeat(False, frame.height, dtype=pl.Boolean, eager=True)
        for field in fields:
            bad = bad | converted[field.name].bad
        doubts = bad.to_list()
        # Python may be unable to hold a doubtful value, such as the year 0.
        columns = [_python_values(field, converted[field.name].values.set(bad, None), doubts) for field in fields]
        rows = zip(*columns, strict=True) if columns else repeat((), frame.height)
        for doubtful, values in zip(doubts, rows, strict=True):
            yield (
                None
                if doubtful
                else {
                    field.name: value
                    for field, value in zip(fields, values, strict=True)
                    if value is not None or field.nullable
                }
            )

    def _cells(self, frame: pl.DataFrame, typed: bool) -> Iterable[tuple[int, dict[str, str], dict[str, CellKind]]]:
        """Yield the number of each row in ascending order, and its texts and kinds by field."""
        names = [field.name for field in self._fields if field.name in frame.columns]
        texts = zip(*(frame[name].to_list() for name in names), strict=True) if names else iter([()] * frame.height)
        rows = zip(frame[ROW].to_list(), texts, strict=True)
        if not typed:
            for row, cells in rows:
                yield row, dict(zip(names, cells, strict=True)), {}
            return
        known = [CellKind(number) for number in range(len(CellKind))]
        kinds = zip(*(frame[name + KIND].to_list() for name in names), strict=True)
        for (row, cells), of_row in zip(rows, kinds, strict=True):
            yield row, dict(zip(names, cells, strict=True)), {n: known[k] for n, k in zip(names, of_row, strict=True)}


def _readable(field: Field) -> bool:
    """Return whether pydantic may get the values read as a whole column: they equal those of the single-cell rules."""
    return not (field.opaque or field.lower or field.upper or field.kind is Kind.DATETIME)


def _python_values(field: Field, values: pl.Series, doubts: list[bool]) -> list[Any]:
    made = values.to_list()
    kind = {Kind.DECIMAL: Decimal, Kind.UUID: UUID}.get(field.kind)
    if kind is None:
        return made
    pairs = zip(made, doubts, strict=True)
    return [None if value is None or doubtful else kind(value) for value, doubtful in pairs]


class _Errors:
    """Collects errors: counts all of them and keeps the first."""

    def __init__(self, header: Mapping[str, str], errors_max: int, values_max_chars: int) -> None:
        self._header = header
        self._errors_max = errors_max
        self._values_max_chars = values_max_chars
        self._errors: list[RowError] = []
        self._groups: Counter[tuple[str | None, str]] = Counter()

    def tell(self, row: int, problems: Iterable[Problem], texts: Mapping[str, str]) -> None:
        for one in problems:
            column = self._header.get(one.field.name, one.field.name) if one.field else None
            self._groups[column, one.code] += 1
            if len(self._errors) < self._errors_max:
                value = self._value(one.field, texts.get(one.field.name)) if one.field else None
                self._errors.append(RowError(row, column, one.code, one.reason, value))

    def checked(self, good: pl.DataFrame, invalid: list[int]) -> Checked:
        rows = pl.Series(ROW, invalid, dtype=good.schema[ROW])
        return Checked(good, len(invalid), self._errors, self._groups, rows)

    def _value(self, field: Field, text: str | None) -> str | None:
        if not text:
            return text
        if field.secret:
            return REDACTED
        text = text.replace("\x00", "\u2400")  # tables cannot store NUL
        return text if len(text) <= self._values_max_chars else text[: self._values_max_chars - 1] + "…"
