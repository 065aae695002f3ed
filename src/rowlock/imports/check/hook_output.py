"""Check what hooks return by the rules for cells: a value that does not fit its column is an error of its row.

Columns of the right dtype are kept; the others are converted to text and read like cells: 1.0 is a whole number,
"2026-01-31" a date, 1.5 not a whole number. Floats in exact columns are rounded to the 15 digits that a spreadsheet
shows: 3 * 1.15 is 3.45. So every store gets the same values in the same dtypes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from math import isfinite
from typing import Any

import orjson
import polars as pl

from rowlock.errors import ImportFault
from rowlock.imports.check.coerce import coerce
from rowlock.imports.check.columns import convert, dtype_of
from rowlock.imports.check.numbers import FLOAT_DIGITS, sheet_number
from rowlock.imports.check.reasons import BadCell
from rowlock.imports.check.stored import plain_decimal, stored
from rowlock.imports.fields import Field
from rowlock.imports.formats import Formats
from rowlock.imports.read.source import ROW, CellKind
from rowlock.storage.imports import RowError
from rowlock.storage.tables import Column, Kind

_FORMATS = Formats(strip=False)
_MOMENT = "%Y-%m-%dT%H:%M:%S%.f"
_VALUE_CHARS_MAX = 200
_EXACT = (Kind.INTEGER, Kind.DECIMAL)


def checked_output(frame: pl.DataFrame, columns: Sequence[Column]) -> tuple[pl.DataFrame, list[RowError]]:
    """Return the frame with its columns converted for the load and without bad rows, and the errors of these.

    Raises ImportFault for a column whose dtype cannot be converted.
    """
    errors: list[RowError] = []
    made: list[pl.Series] = []
    for column in columns:
        if column.name in frame.columns:
            given = frame[column.name]
            try:
                values, bad = _converted(given, column)
            except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
                raise ImportFault(
                    f"a hook returned values of the type {given.dtype} for the column {column.name!r}, which cannot be "
                    f"converted to {column.kind.value}: return values of that kind, or text"
                ) from error
            made.append(values.alias(column.name))
            for at, wrong in bad:
                value = str(given[at])[:_VALUE_CHARS_MAX].replace("\x00", "\u2400")
                errors.append(RowError(frame[ROW][at], column.name, wrong.code, wrong.reason, value))
    frame = frame.with_columns(made)
    if errors:
        frame = frame.filter(~pl.col(ROW).is_in(list({error.row for error in errors})))
    return frame, errors


def _converted(values: pl.Series, column: Column) -> tuple[pl.Series, list[tuple[int, BadCell]]]:
    """Return the values in the dtype of the column's kind, bad ones as null, and the index and error of each."""
    field = Field(
        column.name,
        (column.name,),
        column.kind,
        nullable=True,
        length_max=column.length_max if column.kind is Kind.TEXT else None,
        digits=column.digits,
        places=column.places,
        formats=_FORMATS,
    )
    dtype = dtype_of(field)
    if _is_right(values, dtype):
        zone = values.dtype.time_zone if isinstance(values.dtype, pl.Datetime) else None
        return values.cast(pl.Datetime("us", zone) if isinstance(values.dtype, pl.Datetime) else dtype), []
    texts = _texts(values, column.kind)
    if column.kind in (Kind.TEXT, Kind.JSON):
        made = texts
        doubtful = texts.is_not_null() if column.kind is Kind.JSON else texts.str.contains("\x00", literal=True)
        if field.length_max is not None:
            doubtful = doubtful | (texts.str.len_chars() > field.length_max)
        doubtful = doubtful.fill_null(False)
    else:
        converted = convert(field, texts, None, fill=False)
        made, doubtful = converted.values, converted.bad & texts.is_not_null()
    bad: list[tuple[int, BadCell]] = []
    cell = CellKind.NUMBER if values.dtype.is_float() and column.kind is Kind.INTEGER else CellKind.TEXT
    places = doubtful.arg_true()
    found: list[Any] = []
    for at in places:
        try:
            found.append(_value(texts[at], column, field, cell))
        except BadCell as wrong:
            found.append(None)
            bad.append((at, wrong))
    if found:
        where = pl.int_range(len(made), eager=True)
        where = where.scatter(places, pl.int_range(len(made), len(made) + len(found), eager=True))
        made = pl.concat([made, pl.Series(found, dtype=made.dtype)]).gather(where)
    return made, bad


def _is_right(values: pl.Series, dtype: Any) -> bool:
    """Return whether the values need no conversion; texts always need a check."""
    given = values.dtype
    if given == pl.Null:
        return True
    if dtype == pl.Int64():
        return given.is_integer() and not (given == pl.UInt64 and bool((values > 2**63 - 1).any()))
    if dtype == pl.Float64():
        return given.is_float() and bool(values.is_finite().all())
    if isinstance(given, pl.Datetime) and isinstance(dtype, pl.Datetime):
        return given.time_unit != "ns" or bool((values.dt.nanosecond() % 1000 == 0).all())
    return given == dtype and given != pl.String


def _texts(values: pl.Series, kind: Kind) -> pl.Series:
    """Return the values as text, as a file would have them."""
    given = values.dtype
    if given == pl.String:
        return values
    if given.is_nested() or given == pl.Object or given == pl.Binary:
        return pl.Series([_text(value, kind) for value in values.to_list()], dtype=pl.String)
    if isinstance(given, pl.Datetime):
        if given.time_zone is not None:
            values = values.dt.convert_time_zone("UTC")
        return values.dt.strftime(_MOMENT + ("Z" if given.time_zone is not None else ""))
    texts = values.cast(pl.String)
    if given.is_float() and kind in _EXACT:
        texts = _without_noise(texts)
    return texts.str.replace(r"\.0+$", "") if given.is_numeric() else texts


def _without_noise(texts: pl.Series) -> pl.Series:
    """Return floats in plain digits, by the rule for numbers of a sheet."""
    # Without an exponent, this many characters, one of them the point, have at most 15 digits.
    long = (texts.str.contains("[eE]") | (texts.str.len_bytes() > FLOAT_DIGITS + 1)).fill_null(False).arg_true()
    if not len(long):
        return texts
    return texts.scatter(long, [_plain(text) for text in texts.gather(long)])


def _plain(text: str) -> str:
    return plain_decimal(sheet_number(text), None)


def _text(value: Any, kind: Kind) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if kind is Kind.JSON or isinstance(value, list | dict):
        return orjson.dumps(value, default=str).decode()
    if isinstance(value, float) and kind in _EXACT and isfinite(value):
        return _plain(repr(value))
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)


def _value(text: str, column: Column, field: Field, cell: CellKind) -> Any:
    """Return one value as a frame holds it; raises BadCell if it does not fit the column."""
    if "\x00" in text:
        raise BadCell("bad_text", "contains a NUL character: enter the text again")
    if column.kind is Kind.JSON:
        try:
            orjson.loads(text)
        except orjson.JSONDecodeError:
            raise BadCell("not_json", "not valid JSON") from None
        return text
    if column.length_max is not None and column.kind is Kind.TEXT and len(text) > column.length_max:
        raise BadCell("too_long", f"must have at most {column.length_max} characters")
    value = coerce(field, text, cell)
    if column.kind is Kind.DECIMAL and value is not None:
        _check_digits(value, column)
    try:
        return stored(column.kind, value, column.places, field.zone)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadCell("invalid", str(error)) from None


def _check_digits(value: Decimal, column: Column) -> None:
    """Raise BadCell if the number has more digits than its column allows, not counting trailing zeros."""
    whole, _, behind = plain_decimal(value, None).lstrip("-").partition(".")
    if column.places is not None and len(behind) > column.places:
        raise BadCell("too_many_places", f"must have at most {column.places} decimal places")
    if column.digits is not None and len(whole.lstrip("0")) + (column.places or len(behind)) > column.digits:
        raise BadCell("too_many_digits", f"must have at most {column.digits} digits")
