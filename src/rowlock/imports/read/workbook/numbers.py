"""Numbers as the shortest text that is the same number."""

from __future__ import annotations

import math
import re

import polars as pl

DIGITS_MAX = 400

# At most 15 digits, no zeros to spare: every such text is already the shortest form of its double, and no two of them
# are the same double. Below 0.0001 the shortest form has an exponent.
_PLAIN = (
    r"^(?:0|-?[1-9][0-9]{0,14}"
    r"|-?[1-9][0-9]{0,6}\.[0-9]{0,7}[1-9]"
    r"|-?0\.0{0,3}[1-9](?:[0-9]{0,9}[1-9])?)$"
)
_ANY = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = re.compile(_ANY)


def plain_numbers(texts: pl.Series) -> pl.Series:
    """Which of the texts are numbers in their shortest form."""
    return texts.str.contains(_PLAIN)


def shortened(texts: pl.Series) -> pl.Series:
    """The shortest form of each number that has one without an exponent, null elsewhere; as `number_text` has it."""
    numbers = pl.when(pl.col("text").str.contains(f"^{_ANY}$")).then(pl.col("text")).cast(pl.Float64, strict=False)
    sized = pl.when(numbers.abs().is_between(1e-4, 1e15, closed="left")).then(numbers)
    return pl.DataFrame({"text": texts}).select(sized.cast(pl.String).str.strip_suffix(".0")).to_series()


def number_text(written: str) -> str | None:
    """The shortest form, nothing for a blank, None for what is no finite number: 5, 0.1, 1e+300."""
    text = written.strip()
    if not text:
        return ""
    if len(text) > DIGITS_MAX or _NUMBER.fullmatch(text) is None:
        return None
    number = float(text)
    if not math.isfinite(number):
        return None
    return repr(number).removesuffix(".0") if number else "0"
