"""The vectorised reader: lines that are whole records by themselves, many at a time.

A line is *regular* when a record reader that starts at it can only find one record in it, of the expected number of
cells, and end where the line ends. Nothing else is taken; so what is read here is what the record reader would read.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import accumulate

import polars as pl

from rowlock.imports.read.records import Dialect


@dataclass(frozen=True, slots=True)
class Shape:
    """What the lines of a file look like when nothing is odd about them."""

    dialect: Dialect
    line_end: bytes  # LF, with or without CR before it, or CR
    width: int
    cell_chars_max: int
    clean: bool = False  # all of it is known to be UTF-8

    @property
    def columns(self) -> list[str]:
        """The names of the columns of cells."""
        return [f"c{n}" for n in range(self.width)]

    @property
    def pattern(self) -> str:
        """Matches a regular line with quotes."""
        delimiter, quote = (f"\\x{{{mark[0]:x}}}" for mark in (self.dialect.delimiter, self.dialect.quote))
        cell = f"(?:[^{quote}{delimiter}\\r\\n]*|{quote}(?:[^{quote}\\r\\n]|{quote}{quote})*{quote})"
        return f"^{cell}(?:{delimiter}{cell}){{{self.width - 1}}}$"


@dataclass(slots=True)
class Lines:
    """The lines of a block, without their ends, and which of them are regular; the blank ones are neither."""

    text: pl.Series
    regular: pl.Series
    odd: list[int]  # the lines to be read record by record


def find_lines(data: bytes, shape: Shape) -> Lines | None:
    """The lines of the block; nothing where some of it is not UTF-8."""
    try:
        if not shape.clean and not data.isascii():
            data.decode()
    except UnicodeDecodeError:
        return None
    text = _split(data, shape.line_end)
    bytes_each = text.str.len_bytes()
    blank = bytes_each == 0
    regular = _regular(text, data, shape) & ~blank & (bytes_each <= shape.cell_chars_max)
    for odd in _oddities(text, data, shape):
        regular, blank = regular & ~odd, blank & ~odd
    return Lines(text, regular, (~(regular | blank)).arg_true().to_list())


def starts(text: pl.Series, data: bytes, line_end: bytes) -> list[int]:
    """Where each line starts in the block."""
    if line_end == b"\n" and b"\r" in data:
        return [0, *accumulate(len(line) + 1 for line in data.split(b"\n"))]
    return [0, *(text.str.len_bytes().cast(pl.Int64) + 1).cum_sum().to_list()]


def cells(lines: Lines, regular: pl.Series, data: bytes, shape: Shape) -> pl.DataFrame | None:
    """The cells of the regular lines; nothing if they are not what was expected."""
    whole = regular.all()
    text = lines.text if whole else lines.text.filter(regular)
    quote = shape.dialect.quote.decode()
    if not len(text):
        return pl.DataFrame(schema=dict.fromkeys(shape.columns, pl.String))
    if shape.width == 1:
        return text.to_frame("c0")
    if whole and shape.line_end == b"\n":
        packed = data.replace(b"\r\n", b"\n") if b"\r" in data else data
    else:
        packed = text.str.join("\n").item().encode()
    try:
        frame = pl.read_csv(
            packed,
            has_header=False,
            schema=dict.fromkeys(shape.columns, pl.String),
            separator=shape.dialect.delimiter.decode(),
            quote_char=quote if quote and shape.dialect.quote in packed else None,
            empty_string_is_null=False,
            extra_columns="raise",
        )
    except pl.exceptions.PolarsError:
        return None
    return frame if frame.height == len(text) else None


def _split(data: bytes, line_end: bytes) -> pl.Series:
    if line_end == b"\n":
        return pl.read_lines(io.BytesIO(data)).to_series()
    return pl.Series(data.removesuffix(line_end).decode().split(line_end.decode()), dtype=pl.String)


def _regular(text: pl.Series, data: bytes, shape: Shape) -> pl.Series:
    """By the number of delimiters; with quotes by the whole pattern."""
    delimiter, quote = shape.dialect.delimiter.decode(), shape.dialect.quote.decode()
    if delimiter:
        regular = text.str.count_matches(delimiter, literal=True) == shape.width - 1
    else:
        regular = pl.repeat(shape.width == 1, len(text), dtype=pl.Boolean, eager=True)
    if not quote or shape.dialect.quote not in data:
        return regular
    quoted = text.str.contains(quote, literal=True)
    if shape.width == 1 or not delimiter:
        return regular & ~quoted
    at = quoted.arg_true()
    return regular.scatter(at, text.gather(at).str.contains(shape.pattern)) if len(at) else regular


def _oddities(text: pl.Series, data: bytes, shape: Shape) -> list[pl.Series]:
    """Masks of lines that the patterns cannot judge."""
    odd = [text.str.starts_with("\ufeff")]  # the vectorised reader would leave it out
    if shape.dialect.escapes and b"\\" in data:
        odd.append(text.str.contains("\\", literal=True))
    if shape.line_end == b"\n":
        if b"\r" in data:
            odd.append(text.str.contains("\r", literal=True))
    elif b"\n" in data:
        odd.append(text.str.contains("\n", literal=True))
        odd.append(text.str.starts_with("\n").shift(-1, fill_value=False))  # that LF belongs to this line's CR
    return odd
