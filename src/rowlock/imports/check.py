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


@dataclass(frozen=True, slots=True)
class _Problem:
    field: Field | None
    code: str
    reason: str


class Checker:
    """Checks frames of cells against a model; one serves any number of frames."""

    def __init__(self, model: type[BaseModel], fields: Sequence[Field], *, values_max_chars: int = 200) -> None:
        self._model = model
        self._fields = list(fields)
        self._by_name = {field.name: field for field in fields}
        self._values_max_chars = values_max_chars
        self._rowwise = shape_of(model).rowwise or any(field.opaque for field in fields)
        self._validator = model.__pydantic_validator__

    def check(self, frame: pl.DataFrame, header: Mapping[str, str], *, typed: bool, errors_max: int) -> Checked:
        """Splits the rows of a frame into good ones, with their values, and invalid ones, with every error of each."""
        converted = {field.name: self._convert(field, frame, typed) for field in self._fields}
        open_rows = pl.repeat(self._rowwise, frame.height, dtype=pl.Boolean, eager=True)
        if not self._rowwise:
            for one in converted.values():
                open_rows = open_rows | one.bad
        columns = [frame[ROW], *(one.values for one in converted.values())]
        told = _Told(header, errors_max, self._values_max_chars)
        if not open_rows.any():
            return told.checked(pl.DataFrame(columns), [])
        good = pl.DataFrame(columns).filter(~open_rows)
        rescued: list[tuple[Any, ...]] = []
        invalid: list[int] = []
        for row, texts, kinds in self._cells(frame.filter(open_rows), typed):
            values, problems = self._decide(texts, kinds)
            if problems:
                invalid.append(row)
                told.tell(row, problems, texts)
            else:
                rescued.append((row, *values))
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

    def _decide(self, texts: Mapping[str, str], kinds: Mapping[str, CellKind]) -> tuple[list[Any], list[_Problem]]:
        """The values of a row as a frame holds them, or what is wrong with it, by pydantic itself."""
        given: dict[str, Any] = {}
        problems: dict[str | None, list[_Problem]] = {}
        for name, text in texts.items():
            field = self._by_name[name]
            try:
                value = coerce(field, text, kinds.get(name, CellKind.TEXT))
            except BadCell as bad:
                problems[name] = [_Problem(field, bad.code, bad.reason)]
                continue
            if value is not None or field.nullable:
                given[name] = value
        unread = frozenset(problems)
        made: BaseModel | None = None
        try:
            made = self._validator.validate_python(given, by_alias=False, by_name=True)
        except ValidationError as refused:
            for where, problem in self._refused(refused):
                # A cell that could not be read was kept from pydantic: what follows from that is not the user's doing.
                if not unread or (where is not None and where not in unread):
                    problems.setdefault(where, []).append(problem)
        except Exception as broken:
            if not unread:
                problems[None] = [_failed(None, broken)]
        if problems or made is None:
            return [], [one for name in (*self._by_name, None) for one in problems.get(name, ())]
        return self._stored(made)

    def _refused(self, refused: ValidationError) -> Iterable[tuple[str | None, _Problem]]:
        for error in refused.errors(include_url=False, include_input=False):
            where = error["loc"]
            field = self._by_name.get(str(where[0])) if where else None
            code, reason = of_pydantic(error, secret=field is not None and field.secret)
            inside = ".".join(str(part) for part in where[1:]) if field else ""
            told = f"{reason} (at {inside})" if inside else reason
            yield field.name if field else None, _Problem(field, code, told)

    def _stored(self, made: BaseModel) -> tuple[list[Any], list[_Problem]]:
        values: list[Any] = []
        problems: list[_Problem] = []
        for field in self._fields:
            try:
                values.append(stored(field.kind, getattr(made, field.name), field.places, field.zone))
            except (TypeError, ValueError, OverflowError) as broken:
                problems.append(_failed(field, broken))
        return values, problems


def _failed(field: Field | None, broken: Exception) -> _Problem:
    detail = type(broken).__name__ if field is None or field.secret else str(broken)
    return _Problem(field, "check_failed", f"the importer's own check failed: {detail}")


class _Told:
    """The errors so far: all counted, the first kept."""

    def __init__(self, header: Mapping[str, str], errors_max: int, values_max_chars: int) -> None:
        self._header = header
        self._errors_max = errors_max
        self._values_max_chars = values_max_chars
        self._errors: list[RowError] = []
        self._groups: Counter[tuple[str | None, str]] = Counter()

    def tell(self, row: int, problems: Iterable[_Problem], texts: Mapping[str, str]) -> None:
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
