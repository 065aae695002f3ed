"""Whole columns of numbers: the rules of `numbers.py`, compiled."""

from __future__ import annotations

from decimal import Decimal

import polars as pl

from rowlock.imports.check.numbers import FLOAT_DIGITS, FLOAT_MIN, currency_patterns, groups, number_pattern
from rowlock.imports.fields import Field
from rowlock.imports.formats import Formats

_INTEGER = "^-?(?:0|[1-9][0-9]{0,17})$"
_FLOAT = r"^-?[0-9]{1,300}(?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,6})?$"
_EXACT_DIGITS = 15  # a float keeps this many digits of any decimal

Column = tuple[pl.Series, pl.Series]


def integers(field: Field, text: pl.Series, formats: Formats, *, first: bool) -> Column:
    """Read whole numbers of up to 18 digits."""
    if not first:
        text = _plain(text, formats).str.replace(r"\.00?$", "")
    ok = text.str.contains(_INTEGER).fill_null(False)
    values = text.cast(pl.Int64, strict=False)
    ok = ok & values.is_not_null() & _within(field, values, int)
    if field.multiple_of is not None:
        ok = ok & (values % field.multiple_of == 0).fill_null(False)
    if field.choices:
        ok = ok & values.is_in([int(one) for one in field.choices]).fill_null(False)
    return values, ok


def floats(field: Field, text: pl.Series, formats: Formats, *, first: bool) -> Column:
    """Read finite floats."""
    if first and formats.decimal != ".":
        return _none(text, pl.Float64())
    if not first:
        text = _plain(text, formats, exponent=True)
    ok = text.str.contains(_FLOAT).fill_null(False)
    values = text.cast(pl.Float64, strict=False)
    # Accept short numbers and texts equal to the printed value; the rules for single cells decide the others.
    kept = text.str.len_bytes() <= FLOAT_DIGITS
    if not kept.all():
        kept = kept | (values.cast(pl.String).str.strip_suffix(".0") == text)
    if (near_zero := values.abs() < FLOAT_MIN).any():
        kept = kept & (~near_zero | text.str.contains(r"^-?0(?:\.0+)?$"))
    return values, ok & kept.fill_null(False) & values.is_finite().fill_null(False) & _within(field, values, float)


def decimals(field: Field, text: pl.Series, formats: Formats, *, sheet: bool, first: bool) -> Column:
    """Read exact numbers, as canonical text."""
    if first and formats.decimal != ".":
        return _none(text, pl.String())
    if not first:
        text = _canonical(_plain(text, formats), field.places)
    ok = text.str.contains(_canonical_pattern(field)).fill_null(False)
    if sheet:
        # The rules for single cells round numbers with more digits than a spreadsheet shows.
        ok = ok & (text.str.len_bytes() <= _EXACT_DIGITS)
    if field.digits is not None and field.places is None:
        ok = ok & (text.str.len_bytes() <= field.digits)
    return text, ok & _bounded(field, text)


def _canonical_pattern(field: Field) -> str:
    whole = 300
    if field.digits is not None:
        whole = max(field.digits - (field.places or 0), 0)
    sign = "" if field.ge == "0" else "-?"
    ahead = f"{sign}[1-9][0-9]{{0,{whole - 1}}}" if whole else ""
    if field.places is None:
        return f"^(?:{ahead}|0)(?:\\.[0-9]{{0,300}}[1-9])?$" if ahead else r"^0$"
    behind = rf"\.[0-9]{{{field.places}}}" if field.places else ""
    return f"^(?:{ahead}|0){behind}$" if ahead else f"^0{behind}$"


def _plain(text: pl.Series, formats: Formats, *, exponent: bool = False) -> pl.Series:
    """Return numbers in plain notation without a plus; null for other texts."""
    if patterns := currency_patterns(formats):
        text = text.str.replace(patterns[0], "$1").str.replace(patterns[1], "")
    tail = "(?:[eE][+-]?[0-9]{1,6})?" if exponent else ""
    ok = text.str.contains(f"^{number_pattern(formats)}{tail}$") & (text.str.len_bytes() <= 300)
    for sign in groups(formats):
        text = text.str.replace_all(sign, "", literal=True)
    if formats.decimal != ".":
        text = text.str.replace_all(formats.decimal, ".", literal=True)
    text = text.str.strip_prefix("+").str.replace(r"^(-?)\.", "${1}0.").str.replace(r"^(-?)0+([0-9])", "${1}${2}")
    return text.zip_with(ok, pl.Series([None], dtype=pl.String).new_from_index(0, len(text)))


def _canonical(text: pl.Series, places: int | None) -> pl.Series:
    whole = text.str.extract("^(-?[0-9]+)")
    behind = text.str.extract(r"\.([0-9]+)$").fill_null("").str.strip_chars_end("0")
    if places:
        return whole + "." + behind.str.pad_end(places, "0")
    dotted = "." + behind
    return whole + dotted.zip_with(behind != "", pl.Series([""]).new_from_index(0, len(text)))


def _bounded(field: Field, text: pl.Series) -> pl.Series:
    bounds = {name: getattr(field, name) for name in ("ge", "gt", "le", "lt") if getattr(field, name) is not None}
    if not bounds or bounds == {"ge": "0"}:  # the pattern ensures it
        return pl.repeat(True, len(text), dtype=pl.Boolean, eager=True)
    # Rounding keeps the order: if the float is beyond the bound, so is the decimal. Equal floats mean equal decimals
    # only if both are short enough to be exact.
    near = text.cast(pl.Float64, strict=False)
    short = text.str.len_bytes() <= _EXACT_DIGITS
    ok = near.is_not_null()
    for name, bound in bounds.items():
        exact = Decimal(bound)
        limit = float(exact)
        beyond = near > limit if name in ("ge", "gt") else near < limit
        if name in ("ge", "le") and len(exact.as_tuple().digits) <= _EXACT_DIGITS:
            beyond = beyond | ((near == limit) & short)
        ok = ok & beyond
    return ok.fill_null(False)


def _within(field: Field, values: pl.Series, kind: type[int] | type[float]) -> pl.Series:
    ok = values.is_not_null()
    if field.ge is not None:
        ok = ok & (values >= kind(field.ge))
    if field.gt is not None:
        ok = ok & (values > kind(field.gt))
    if field.le is not None:
        ok = ok & (values <= kind(field.le))
    if field.lt is not None:
        ok = ok & (values < kind(field.lt))
    return ok.fill_null(False)


def _none(text: pl.Series, dtype: pl.DataType) -> Column:
    empty = pl.Series([None], dtype=dtype).new_from_index(0, len(text))
    return empty, pl.repeat(False, len(text), dtype=pl.Boolean, eager=True)
