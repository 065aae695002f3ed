"""Convert whole columns of cells to columns of values: the rules of `coerce.py` and the model's limits, compiled.

Cells accepted here are accepted by pydantic, with the same value. Other cells may still be valid: they are flagged, and
the rules for single cells decide. So this module covers the common notations and may leave out rare ones.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import polars as pl

from rowlock.imports.check.coerce import ROUNDED, UUID_PATTERN, formats_for
from rowlock.imports.check.column_numbers import decimals, floats, integers
from rowlock.imports.check.column_times import dates, datetimes, times
from rowlock.imports.fields import Field
from rowlock.imports.formats import Formats
from rowlock.imports.normalize import normal_texts
from rowlock.imports.read.source import CellKind
from rowlock.storage.tables import Kind

_DAMAGED = "[\x00\ufffd]"
_DTYPES: dict[Kind, Any] = {
    Kind.TEXT: pl.String(),
    Kind.INTEGER: pl.Int64(),
    Kind.DECIMAL: pl.String(),
    Kind.FLOAT: pl.Float64(),
    Kind.BOOLEAN: pl.Boolean(),
    Kind.DATE: pl.Date(),
    Kind.DATETIME: pl.Datetime("us", "UTC"),
    Kind.TIME: pl.Time(),
    Kind.UUID: pl.String(),
    Kind.JSON: pl.String(),
}


@dataclass(slots=True)
class Converted:
    values: pl.Series
    bad: pl.Series  # True: the rules for single cells must decide


def dtype_of(field: Field) -> Any:
    """Return the dtype of this field's column in a frame of values."""
    if field.kind is Kind.DATETIME and field.zone == "naive":
        return pl.Datetime("us")
    return _DTYPES[field.kind]


def default_of(field: Field) -> Any:
    """Return the default for an empty cell or a missing column, as a frame holds it."""
    text = field.default
    if text is None:
        return None
    match field.kind:
        case Kind.INTEGER:
            return int(text)
        case Kind.FLOAT:
            return float(text)
        case Kind.BOOLEAN:
            return text == "true"
        case Kind.DATE:
            return dt.date.fromisoformat(text)
        case Kind.DATETIME:
            return dt.datetime.fromisoformat(text)
        case Kind.TIME:
            return dt.time.fromisoformat(text)
    return text


def convert(field: Field, cells: pl.Series, kinds: pl.Series | None, *, fill: bool = True) -> Converted:
    """Convert a column. An empty cell becomes null, or the default if `fill` is set and the field cannot be null."""
    if field.normal:
        cells = normal_texts(cells)
    if kinds is None:
        return _convert(field, cells, CellKind.TEXT, fill)
    found = kinds.unique().to_list()
    if len(found) <= 1:
        return _convert(field, cells, CellKind(found[0]) if found else CellKind.TEXT, fill)
    values = pl.Series(field.name, [None], dtype=dtype_of(field)).new_from_index(0, len(cells))
    bad = pl.repeat(True, len(cells), dtype=pl.Boolean, eager=True)
    for kind in found:
        where = (kinds == kind).arg_true()
        part = _convert(field, cells.gather(where), CellKind(kind), fill)
        values, bad = _put(values, where, part.values), _put(bad, where, part.bad)
    return Converted(values.alias(field.name), bad)


def _convert(field: Field, cells: pl.Series, cell: CellKind, fill: bool) -> Converted:
    formats = formats_for(field, cell)
    if cell in (CellKind.ERROR, CellKind.FORMULA) or formats is None or field.kind is Kind.JSON:
        values = pl.Series(field.name, [None], dtype=dtype_of(field)).new_from_index(0, len(cells))
        return Converted(values, pl.repeat(True, len(cells), dtype=pl.Boolean, eager=True))
    if field.kind is Kind.TEXT:
        return _convert_text(field, cells, cell, fill)
    # Most cells use the one common notation, which is tried first; the others are stripped and read again.
    values, ok = _values(field, cells, formats, cell, first=True)
    if field.formats.blank_words:
        ok = ok & ~cells.is_in(list(field.formats.blank_words))
    if not ok.all():
        where = (~ok).arg_true()
        text = cells.gather(where)
        text = text.str.strip_chars() if field.formats.strip else text
        rest, rest_ok = _values(field, text, formats, cell, first=False)
        empty = _empty(field, text)
        if empty.any():
            filled, settled = _fill(field, int(empty.sum()), fill)
            at = empty.arg_true()
            rest, rest_ok = _put(rest, at, filled), _put(rest_ok, at, settled)
        values, ok = _put(values, where, rest), _put(ok, where, rest_ok)
    return Converted(values.alias(field.name), ~ok)


def _convert_text(field: Field, cells: pl.Series, cell: CellKind, fill: bool) -> Converted:
    text = cells.str.strip_chars() if field.formats.strip else cells
    values, ok = _texts(field, text)
    if cell is CellKind.NUMBER:
        ok = ok & ~text.str.contains(ROUNDED, literal=True)
    empty = _empty(field, text)
    if empty.any():
        filled, settled = _fill(field, len(cells), fill)
        # Empty cells need no filling if the default is "".
        if filled[0] != "" or field.formats.blank_words:
            values = filled.zip_with(empty, values)
        ok = ok | empty if settled else ok & ~empty
    return Converted(values.alias(field.name), ~ok)


def _put(series: pl.Series, where: pl.Series, values: pl.Series | bool) -> pl.Series:
    return series.clone().scatter(where, values)  # scatter changes its series in place


def _empty(field: Field, text: pl.Series) -> pl.Series:
    empty = text == ""
    return empty | text.is_in(list(field.formats.blank_words)) if field.formats.blank_words else empty


def _fill(field: Field, count: int, fill: bool) -> tuple[pl.Series, bool]:
    """Return the values of empty cells, and whether these need no further check."""
    settled = field.nullable or (field.has_default and not field.factory)
    value = default_of(field) if fill and not field.nullable else None
    return pl.Series([value], dtype=dtype_of(field)).new_from_index(0, count), settled


def _values(
    field: Field, text: pl.Series, formats: Formats, cell: CellKind, *, first: bool
) -> tuple[pl.Series, pl.Series]:
    sheet = cell is CellKind.NUMBER
    match field.kind:
        case Kind.INTEGER:
            return integers(field, text, formats, first=first)
        case Kind.DECIMAL:
            return decimals(field, text, formats, sheet=sheet, first=first)
        case Kind.FLOAT:
            return floats(field, text, formats, first=first)
        case Kind.BOOLEAN:
            return _booleans(text, formats)
        case Kind.DATE:
            return dates(field, text, formats, first=first)
        case Kind.DATETIME:
            return datetimes(field, text, formats, first=first)
        case Kind.TIME:
            return times(text)
        case Kind.UUID:
            return _uuids(field, text)
    raise AssertionError(field.kind)


def _texts(field: Field, text: pl.Series) -> tuple[pl.Series, pl.Series]:
    ok = ~_damaged(text)
    if field.strip:
        text = text.str.strip_chars()
    if field.choices:
        ok = ok & text.is_in(list(field.choices))
    if field.length_max is not None and (text.str.len_bytes() > field.length_max).any():
        ok = ok & (text.str.len_chars() <= field.length_max)
    if field.length_min is not None:
        ok = ok & (text.str.len_chars() >= field.length_min)
    if field.pattern is not None:
        ok = ok & text.str.contains(field.pattern)
    if field.lower:
        text = text.str.to_lowercase()
    if field.upper:
        text = text.str.to_uppercase()
    return text, ok


def _damaged(text: pl.Series) -> pl.Series:
    # Few columns have such a cell: searching the joined text takes a third of the time.
    whole = text.str.join("").item() or ""
    if "\x00" in whole or "\ufffd" in whole:
        return text.str.contains(_DAMAGED)
    return pl.repeat(False, len(text), dtype=pl.Boolean, eager=True)


def _booleans(text: pl.Series, formats: Formats) -> tuple[pl.Series, pl.Series]:
    yes, no = text.is_in(_spellings(formats.true_words)), text.is_in(_spellings(formats.false_words))
    return yes, yes | no


def _spellings(words: tuple[str, ...]) -> list[str]:
    return sorted({made for one in words for made in (one, one.lower(), one.upper(), one.capitalize())})


def _uuids(field: Field, text: pl.Series) -> tuple[pl.Series, pl.Series]:
    ok = text.str.contains(f"^{UUID_PATTERN}$")
    if field.version is not None:
        ok = ok & (text.str.slice(14, 1) == str(field.version)) & text.str.slice(19, 1).is_in(list("89abAB"))
    return text.str.to_lowercase(), ok
