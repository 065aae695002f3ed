"""Rows against the model: whole columns at once, and pydantic for the rows that this leaves open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from pydantic import BaseModel, ValidationError

from rowlock.imports.coerce import coerce
from rowlock.imports.columns import Converted, convert, default_of, dtype_of
from rowlock.imports.fields import Field
from rowlock.imports.keys import hashable, key_hash
from rowlock.imports.reasons import CODES, BadCell, of_pydantic
from rowlock.imports.shape import shape_of
from rowlock.imports.source import ROW, CellKind
from rowlock.imports.stored import stored
from rowlock.storage.imports import RowError

__all__ = ["CODES", "Checked", "Checker", "hashable", "key_hash"]

REDACTED = "[redacted]"
KIND = "#kind"  # behind a field's name: the column with the kinds of its cells


@dataclass(slots=True)
class Checked:
    """Where the rows of a frame went: each is good or invalid."""

    good: pl.DataFrame  # row, and one column of values per field of the model, in its order
    invalid_rows: int
    errors: list[RowError]  # of the first invalid rows, each row with all of its errors unless the limit cuts it off
    groups: Counter[tuple[str | None, str]]  # how many errors there are of each column and code, in all
    invalid: pl.Series  # the numbers of all invalid rows


class Checker:
    """Checks frames of cells against a model; one serves any number of frames."""

    def __init__(self, model: type[BaseModel], fields: Sequence[Field], *, values_max_chars: int = 200) -> None:
        self._fields = list(fields)
        self._values_max_chars = values_max_chars
        self._judge = Judge(model, fields)
        self._rowwise = self._judge.sees_rows or any(field.opaque for field in fields)

    def check(self, frame: pl.DataFrame, header: Mapping[str, str], *, typed: bool, errors_max: int) -> Checked:
        """Splits the rows of a frame into good ones, with their values, and invalid ones, with every error of each."""
        told = _Told(header, errors_max, self._values_max_chars)
        converted = {field.name: self._convert(field, frame, typed) for field in self._fields}
        bad = pl.repeat(False, frame.height, dtype=pl.Boolean, eager=True)
        for one in converted.values():
            bad = bad | one.bad
        left = bad | self._rowwise
        good = pl.DataFrame([frame[ROW], *(one.values for one in converted.values())])
        if not left.any():
            return told.checked(good, [])
        rows = self._cells(frame.filter(left), typed)
        verdicts = each(self._judge, rows, good, bad) if self._rowwise else ((*one, None) for one in rows)
        rescued: list[tuple[Any, ...]] = []
        invalid: list[int] = []
        for row, texts, kinds, accepted in verdicts:
            values, problems = (accepted, []) if accepted is not None else self._judge.decide(texts, kinds)
            if problems:
                invalid.append(row)
                told.tell(row, problems, texts)
            else:
                rescued.append((row, *values))
        good = good.filter(~left)
        if rescued:
            schema = {ROW: frame.schema[ROW]} | {field.name: dtype_of(field) for field in self._fields}
            good = pl.concat([good, pl.DataFrame(rescued, schema=schema, orient="row")])
            if not good[ROW].is_sorted():
                good = good.sort(ROW)
        return told.checked(good, invalid)

    def _convert(self, field: Field, frame: pl.DataFrame, typed: bool) -> Converted:
        if field.name in frame.columns and not self._rowwise:
            return convert(field, frame[field.name], frame[field.name + KIND] if typed else None)
        value = None if field.factory or self._rowwise else default_of(field)
        values = pl.Series(field.name, [value], dtype=dtype_of(field)).new_from_index(0, frame.height)
        unsettled = self._rowwise or field.factory or not field.has_default
        return Converted(values, pl.repeat(unsettled, frame.height, dtype=pl.Boolean, eager=True))

    def _cells(self, frame: pl.DataFrame, typed: bool) -> Iterable[tuple[int, dict[str, str], dict[str, CellKind]]]:
        """The rows one by one, in the order of their numbers: their texts and kinds by field."""
        frame = frame if frame[ROW].is_sorted() else frame.sort(ROW)
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


class _Told:
    """The errors so far: all counted, the first kept."""

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
        text = text.replace("\x00", "\u2400")  # tables take no NUL
        return text if len(text) <= self._values_max_chars else text[: self._values_max_chars - 1] + "…"
