"""Converts numbers to their shortest equal text, and keeps all digits of long whole numbers.

A spreadsheet program keeps 15 digits of a number; other programs write whole numbers of any length. If the digits after
the 15th are not all zero, the number was not rounded and stays as it is. Any other number from 1e15 on may have been
rounded, and has an exponent in its text (1.5e+16): the checks refuse it if a field needs exact values.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

import polars as pl

DIGITS_MAX = 400

# At most 15 digits, no redundant zeros: such a text is the shortest form of its double, and no two of them are the same
# double. Below 0.0001 the shortest form has an exponent. The last line: long whole numbers that keep their digits.
_PLAIN = (
    r"^(?:0|-?[1-9][0-9]{0,14}"
    r"|-?[1-9][0-9]{0,6}\.[0-9]{0,7}[1-9]"
    r"|-?0\.0{0,3}[1-9](?:[0-9]{0,9}[1-9])?"
    r"|-?[1-9][0-9]{14}[0-9]{0,15}[1-9]0{0,15})$"
)
_KEPT = r"^\s*[+-]?0*[1-9][0-9]{14}[0-9]*[1-9]0*(?:\.0*)?\s*$"
_ROUNDED_FROM = 1e15
_ANY = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = re.compile(_ANY)
_WHOLE = re.compile(r"([+-]?)0*([1-9][0-9]*)(?:\.0*)?")


def plain_numbers(texts: pl.Series) -> pl.Series:
    """Return which texts are final: numbers in their shortest form, or long whole numbers."""
    return texts.str.contains(_PLAIN)


def digits_kept(texts: pl.Series) -> bool:
    """Return whether one of the texts has digits that a spreadsheet program would have rounded off."""
    return texts.str.contains(_KEPT).any()


def shortened(texts: pl.Series) -> pl.Series:
    """Return the same shortest form as `number_text` for numbers of size 0.0001 to 1e15, null for other texts."""
    numbers = pl.when(pl.col("text").str.contains(f"^{_ANY}$")).then(pl.col("text")).cast(pl.Float64, strict=False)
    sized = pl.when(numbers.abs().is_between(1e-4, 1e15, closed="left")).then(numbers)
    return pl.DataFrame({"text": texts}).select(sized.cast(pl.String).str.strip_suffix(".0")).to_series()


def number_text(written: str, *, kept: bool = False) -> str | None:
    """Return the shortest form (5, 0.1, 1e+300), "" for a blank, None if it is not a finite number.

    `kept`: the program that wrote the number rounds none, so a whole number that ends with zeros is exact, too.
    """
    text = written.strip()
    if not text:
        return ""
    if len(text) > DIGITS_MAX or _NUMBER.fullmatch(text) is None:
        return None
    number = float(text)
    if not math.isfinite(number):
        return None
    if abs(number) < _ROUNDED_FROM:
        return repr(number).removesuffix(".0") if number else "0"
    if (whole := _WHOLE.fullmatch(text)) and (kept or whole[2][15:].strip("0")):
        return f"{'-' if whole[1] == '-' else ''}{whole[2]}"
    return f"{Decimal(repr(number)).normalize():e}"
