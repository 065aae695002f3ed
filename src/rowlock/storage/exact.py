"""Finds values that a column would silently change, so that every store keeps exactly what was in the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rowlock.storage.tables import Kind, Load

if TYPE_CHECKING:
    import polars as pl

INEXACT = "too_precise"  # the error code of such a row
_DOUBLE_WHOLE = 2**53  # a double has every whole number up to this
_SHORT_DIGITS = 15  # a double keeps this many digits of any number


class Form(StrEnum):
    """How a column stores numbers if it does not keep them exactly."""

    DOUBLE = "an 8-byte floating-point column"
    SINGLE = "a 4-byte floating-point column"
    NUMERIC = "a NUMERIC column of SQLite"  # whole numbers of 64 bits are exact


@dataclass(frozen=True, slots=True)
class Keeps:
    """Which part of a value a column keeps; with all defaults, everything."""

    places: int | None = None  # decimal places of a number; -2: hundreds
    second_places: int | None = None  # decimal places of the seconds
    form: Form | None = None
    as_number: bool = False  # texts that look like numbers become numbers
    characters: int | None = None  # of a text: the column cuts off further spaces and refuses other characters
    bytes: int | None = None  # of a text: the column cuts off the rest


def inexact(load: Load, keeps: Mapping[str, Keeps], frame: pl.DataFrame) -> Iterator[tuple[str, pl.Series, str]]:
    """Yields each column that would change values of a frame (c0, c1, …), with a mask of the rows and the reason."""
    for place, column in enumerate(load.columns):
        kept = keeps.get(column.name)
        fits = kept is not None and kept.places is not None and column.places is not None
        if kept is None or (fits and column.kind is Kind.DECIMAL and (column.places or 0) <= (kept.places or 0)):
            continue
        values = frame[f"c{place}"]
        mask = _changed(values, column.kind, kept)
        if mask is not None and mask.any():
            yield column.name, mask, reason(column.name, column.kind, kept)


def reason(name: str, kind: Kind, kept: Keeps) -> str:
    """Returns why a value is refused."""
    if kind in (Kind.DATETIME, Kind.TIME):
        return f"{name} stores {kept.second_places} decimal places of seconds, and the value has more"
    if kept.characters is not None:
        return f"{name} stores {kept.characters} characters, and the value has more spaces at its end: remove them"
    if kept.bytes is not None:
        return f"{name} stores {kept.bytes} bytes, and the value is longer: shorten it, or make the column text"
    if kind is Kind.TEXT or kind is Kind.JSON:
        return f"{name} would turn this text into a number: change the type of the column to TEXT"
    if kept.places is not None:
        return f"{name} stores {kept.places} decimal places, and the value has more"
    return f"{name} is {kept.form}, which would round the value"


def kept_by_double(number: str | int) -> bool:
    """Returns whether a double reads back as the same number."""
    if isinstance(number, int) and abs(number) <= _DOUBLE_WHOLE:
        return True
    exact = Decimal(number)
    try:
        return Decimal(repr(float(exact))) == exact
    except OverflowError:
        return False


def _kept_by_numeric(text: str) -> bool:
    """Returns whether SQLite's NUMERIC reads back as the same number: all but bare digits go through a double."""
    number = Decimal(text)
    if not _is_int64(text):
        return kept_by_double(text)
    return text.lstrip("+-").isdigit() or Decimal(float(number)) == number


def _changed(values: pl.Series, kind: Kind, kept: Keeps) -> pl.Series | None:
    if kind in (Kind.DATETIME, Kind.TIME):
        return None if kept.second_places is None else _seconds(values, kept.second_places)
    if kind in (Kind.TEXT, Kind.JSON):
        return _numbers_of_texts(values) if kept.as_number else _cut(values, kept)
    if kind not in (Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT):
        return None
    if kept.places is not None:
        return _beyond(values, kind, kept.places)
    if kept.form is None or kind is Kind.FLOAT:  # the importer declares a float, so no exact digits are promised
        return None
    if kept.form is Form.SINGLE:
        return _not_single(values)
    return None if kind is Kind.INTEGER and kept.form is Form.NUMERIC else _not_double(values, kind, kept.form)


def _cut(values: pl.Series, kept: Keeps) -> pl.Series | None:
    """Returns a mask of texts that lose their end."""
    if kept.bytes is not None:
        return (values.str.len_bytes() > kept.bytes).fill_null(False)
    if kept.characters is None:
        return None
    long = values.str.len_chars() > kept.characters
    return (long & (values.str.strip_chars_end(" ").str.len_chars() <= kept.characters)).fill_null(False)


def _seconds(values: pl.Series, places: int) -> pl.Series:
    more: pl.Series = values.dt.nanosecond() % 10 ** (9 - min(places, 9)) != 0
    return more.fill_null(False)


def _beyond(values: pl.Series, kind: Kind, places: int) -> pl.Series | None:
    """Returns a mask of numbers with more decimal places than are kept."""
    import polars as pl

    if kind is not Kind.DECIMAL:
        if places >= 0 and kind is Kind.INTEGER:
            return None
        values = values.cast(pl.String)
    likely = values.str.contains(f"[eE]|\\.[0-9]{{{places}}}[0-9]*[1-9]" if places >= 0 else "[1-9]").fill_null(False)
    return _those(values, likely, lambda text: _places(text) > places)


def _not_double(values: pl.Series, kind: Kind, form: Form) -> pl.Series:
    if kind is Kind.INTEGER:
        likely = (values.abs() > _DOUBLE_WHOLE) | (values == -(2**63))
        return _those(values, likely.fill_null(False), lambda number: not kept_by_double(number))
    likely = (values.str.len_bytes() > _SHORT_DIGITS).fill_null(False)
    kept = _kept_by_numeric if form is Form.NUMERIC else kept_by_double
    return _those(values, likely, lambda text: not kept(text))


def _not_single(values: pl.Series) -> pl.Series:
    """Returns a mask of numbers that four bytes read back as other numbers."""
    import polars as pl

    kept, exact = values.cast(pl.Float32, strict=False), values.cast(pl.String)
    near = kept.cast(pl.String)
    likely = ((near != exact) & kept.is_finite()).fill_null(False)  # the database refuses what is out of range
    return _those(
        pl.DataFrame({"near": near, "exact": exact}).to_struct(),
        likely,
        lambda pair: Decimal(pair["near"]) != Decimal(pair["exact"]),
    )


_NUMBER = r"^[\t-\r ]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[\t-\r ]*$"
_SAME = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")


def _numbers_of_texts(values: pl.Series) -> pl.Series:
    """Returns a mask of texts that the column turns into differently written numbers: 007, 7.0, 1e5."""
    return _those(values, values.str.contains(_NUMBER).fill_null(False), lambda text: not _spelled_alike(text))


def _spelled_alike(text: str) -> bool:
    if _SAME.fullmatch(text) is None or text == "-0":
        return False
    return _is_int64(text) if "." not in text else repr(float(text)) == text and not text.endswith(".0")


def _is_int64(text: str) -> bool:
    number = Decimal(text)
    return number == number.to_integral_value() and -(2**63) <= number < 2**63


def _those(values: pl.Series, likely: pl.Series, changed: Callable[[Any], bool]) -> pl.Series:
    """Returns a mask of those likely rows for which `changed` holds."""
    import polars as pl

    rows = [row for row in likely.arg_true() if changed(values[row])]
    return pl.zeros(len(values), dtype=pl.Boolean, eager=True).scatter(rows, True)


def _places(number: str) -> int:
    """Returns how many decimal places a number needs; negative for zeros before the point: 100 needs -2."""
    _, digits, exponent = Decimal(number).as_tuple()
    written = "".join(map(str, digits)).rstrip("0")
    return -int(exponent) - (len(digits) - len(written)) if written else -len(number)
