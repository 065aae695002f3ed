"""The vectorised reader: reads many records at a time, of one or several lines each.

A record is *regular* if the record reader, starting at its first line, must read it as it is read here: its quotes
are at the borders of cells, in pairs inside of quoted ones, or only inside of cells that are not quoted. It may have
fewer cells than expected, or additional blank ones. The record reader reads everything else.
"""

from __future__ import annotations

import codecs
import io
from bisect import bisect
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import polars as pl

from rowlock.imports.read.records import CELLS_MAX, QUOTED_LINES_MAX, Dialect
from rowlock.imports.read.source import ROW

# Unicode white space, as Polars strips it; str.strip() strips a few more characters.
WHITE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_LOOK_BYTES = 4_096  # a UnicodeDecodeError holds a copy of all bytes passed to the decoder
_EXACT_CELLS_MAX = 100  # a pattern for more cells is slow
_BROKEN_MAX = 10_000  # broken places in one part; with more, vectorised reading is no faster


@dataclass(frozen=True, slots=True)
class Layout:
    """What the regular lines of a file look like."""

    dialect: Dialect
    line_end: bytes  # LF, with or without CR before it, or CR
    width: int
    cell_chars_max: int
    clean: bool = False  # the whole file is known to be valid UTF-8

    @property
    def one_cell(self) -> bool:
        """Whether a regular line is a single cell, so that nothing needs splitting."""
        return self.width == 1 or not self.dialect.delimiter

    @property
    def columns(self) -> list[str]:
        """The names of the columns of cells."""
        return [f"c{n}" for n in range(self.width)]

    @property
    def regular(self) -> str:
        """Matches a regular record with quotes at the borders of its cells."""
        delimiter, quote = self._marks
        cell = f"(?:[^{quote}{delimiter}\\r\\n]*|{quote}(?:[^{quote}]|{quote}{quote})*{quote})"
        return f"^{cell}$" if self.one_cell else f"^{cell}(?:{delimiter}{cell})*$"

    @property
    def exact(self) -> str | None:
        """Matches only regular records of exactly `width` cells; None if the pattern is not needed or too large."""
        if self.one_cell or not self.dialect.quote or self.width > _EXACT_CELLS_MAX:
            return None
        delimiter, quote = self._marks
        cell = f"(?:[^{quote}{delimiter}\\r\\n]*|{quote}(?:[^{quote}]|{quote}{quote})*{quote})"
        return f"^{cell}(?:{delimiter}{cell}){{{self.width - 1}}}$"

    @property
    def unfinished(self) -> str:
        """Matches the first line of a regular record that continues on the next line."""
        delimiter, quote = self._marks
        cell = f"(?:[^{quote}{delimiter}\\r\\n]*|{quote}(?:[^{quote}]|{quote}{quote})*{quote}){delimiter}"
        return f"^{'' if self.one_cell else f'(?:{cell})*'}{quote}(?:[^{quote}]|{quote}{quote})*$"

    @property
    def quoted_or_delimiter(self) -> str:
        """Matches, in a regular record, each quoted text and each delimiter outside of quotes."""
        delimiter, quote = self._marks
        return f"{quote}[^{quote}]*{quote}|{delimiter}"

    @property
    def opening(self) -> str:
        """Matches where a quoted cell could be opened."""
        delimiter, quote = self._marks
        return (f"(?:^|{delimiter})" if delimiter else "^") + (" *" if self.dialect.spaces else "") + quote

    @property
    def _marks(self) -> tuple[str, str]:
        delimiter, quote = (
            f"\\x{{{mark[0]:x}}}" if mark else "" for mark in (self.dialect.delimiter, self.dialect.quote)
        )
        return delimiter, quote


@dataclass(slots=True)
class Spans:
    """Regular records of several lines."""

    number: dict[int, int]  # first line -> index of the record
    last: list[int]  # last line of each record
    text: pl.Series
    short: pl.Series


@dataclass(slots=True)
class Lines:
    """The lines of a part of a file, without their ends; the blank ones are neither regular nor odd."""

    text: pl.Series  # as Polars' CSV reader takes it
    regular: pl.Series
    short: pl.Series  # with fewer cells than expected
    odd: list[int]  # lines that are not regular records by themselves
    spans: Spans | None  # their first lines are odd
    starts: list[int]  # where each line starts; only if there are odd ones
    as_written: bool  # whether `text` is unchanged from the file


def find_lines(data: bytes, layout: Layout) -> Lines | None:
    """Split the text into lines; returns None if too much of it is not UTF-8."""
    broken = [] if layout.clean or data.isascii() else _broken(data)
    if broken is None:
        return None
    if broken:
        data = _with_valid_utf8(data, broken)
    text = _split(data, layout.line_end)
    bytes_each = text.str.len_bytes()
    blank = bytes_each == 0
    barred = _barred(text, data, layout)
    starts: list[int] = []
    if broken:
        starts = _starts(text, data, layout.line_end)
        lines = sorted({bisect(starts, at) - 1 for place in broken for at in (place[0], place[1] - 1)})
        barred = barred | pl.zeros(len(text), dtype=pl.Boolean, eager=True).scatter(lines, True)
    written, bom = text, text.str.starts_with("\ufeff")  # Polars' CSV reader would drop the BOM
    text, regular, short, quotes = _judge(text, data, layout)
    regular = regular & ~blank & (bytes_each <= layout.cell_chars_max)
    unended = not data.endswith(layout.line_end)
    odd = barred | bom
    if unended:
        odd = odd.scatter(len(odd) - 1, True)  # the record reader decides whether it is cut off
    if odd.any():
        regular, blank = regular & ~odd, blank & ~odd
    at = (~(regular | blank)).arg_true().to_list()
    if at and not starts:
        starts = _starts(written, data, layout.line_end)
    spans = None
    if at and quotes is not None:
        if unended:
            barred = barred.scatter(len(barred) - 1, True)
        spans = _spans(data, written, starts, (quotes % 2 == 1).arg_true(), barred, layout)
    return Lines(text, regular, short, at, spans, starts, text is written and not broken)


def cells(text: pl.Series, layout: Layout, whole: bytes = b"") -> pl.DataFrame | None:
    """Return the cells of regular records; None if Polars does not find one row each. `whole`: `text` as one string."""
    if not len(text):
        return pl.DataFrame(schema=dict.fromkeys(layout.columns, pl.String))
    if layout.one_cell:
        return padded(text.to_frame("c0"), layout)
    packed = whole or text.str.join("\n").item().encode()
    has_quotes = bool(layout.dialect.quote) and layout.dialect.quote in packed
    delimiter = layout.dialect.delimiter.decode()
    # With a wide header and short lines most columns need not be split, only filled.
    width = layout.width
    if width > 50 and not has_quotes:
        most = text.str.count_matches(delimiter, literal=True).max()
        assert isinstance(most, int)
        width = min(width, most + 1)
    if width == 1:
        return padded(text.to_frame("c0"), layout)
    try:
        frame = pl.read_csv(
            packed,
            has_header=False,
            schema=dict.fromkeys(layout.columns[:width], pl.String),
            separator=delimiter,
            quote_char=layout.dialect.quote.decode() if has_quotes else None,
            empty_string_is_null=False,
            missing_columns="insert",
            extra_columns="ignore",
            truncate_ragged_lines=True,
        )
    except pl.exceptions.PolarsError:
        return None
    return padded(frame, layout) if frame.height == len(text) else None


def replaced(values: pl.Series, at: list[int] | pl.Series, new: pl.Series) -> pl.Series:
    """Return the values with new ones at these positions."""
    where = pl.int_range(len(values), eager=True)
    where = where.scatter(at, pl.int_range(len(values), len(values) + len(new), eager=True))
    return pl.concat([values, new]).gather(where)


def padded(frame: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """Return the frame with the layout's missing last columns appended, all of their cells empty."""
    have = frame.width - (frame.columns[0] == ROW)
    if have == layout.width:
        return frame
    size = 1 << frame.height.bit_length()
    return pl.concat([frame, _empty(have, layout.width, size).head(frame.height)], how="horizontal")


@lru_cache(maxsize=4)
def _empty(start: int, stop: int, height: int) -> pl.DataFrame:
    """Return columns of empty cells that share their memory: creating a thousand of them per part is too slow."""
    cell = pl.repeat("", height, dtype=pl.String, eager=True)
    return pl.DataFrame([cell.alias(f"c{n}") for n in range(start, stop)])


def _split(data: bytes, line_end: bytes) -> pl.Series:
    if line_end == b"\n":
        return pl.read_lines(io.BytesIO(data)).to_series()
    return pl.Series(data.removesuffix(line_end).decode().split(line_end.decode()), dtype=pl.String)


def _starts(text: pl.Series, data: bytes, line_end: bytes) -> list[int]:
    if line_end == b"\n" and b"\r" in data:
        return [0, *accumulate(len(line) + 1 for line in data.split(b"\n"))]
    return [0, *(text.str.len_bytes().cast(pl.Int64) + 1).cum_sum().to_list()]


def _broken(data: bytes) -> list[tuple[int, int]] | None:
    """Return the ranges that are not UTF-8; None if there are more than _BROKEN_MAX."""
    found: list[tuple[int, int]] = []
    at, view = 0, memoryview(data)
    while at < len(data):
        try:
            at += codecs.utf_8_decode(view[at : at + _LOOK_BYTES], "strict", at + _LOOK_BYTES >= len(data))[1]
        except UnicodeDecodeError as fault:
            if len(found) == _BROKEN_MAX:
                return None
            found.append((at + fault.start, at + fault.end))
            at += fault.end
    return found


def _with_valid_utf8(data: bytes, broken: list[tuple[int, int]]) -> bytes:
    """Replace the broken bytes, keeping the length; the record reader reads these lines from the original."""
    valid = bytearray(data)
    for start, end in broken:
        valid[start:end] = b"?" * (end - start)
    return bytes(valid)


def _barred(text: pl.Series, data: bytes, layout: Layout) -> pl.Series:
    """Return which lines only the record reader can judge."""
    barred = pl.zeros(len(text), dtype=pl.Boolean, eager=True)
    if layout.dialect.escapes and b"\\" in data:
        barred = barred | text.str.contains("\\", literal=True)
    if layout.line_end == b"\n":
        if b"\r" in data:
            barred = barred | text.str.contains("\r", literal=True)
    elif b"\n" in data:
        # An LF at the start of a line belongs to the CR of the line before it.
        barred = barred | text.str.contains("\n", literal=True) | text.str.starts_with("\n").shift(-1, fill_value=False)
    return barred


_Judged = tuple[pl.Series, pl.Series, pl.Series, pl.Series | None]


def _judge(text: pl.Series, data: bytes, layout: Layout) -> _Judged:
    """Return the text for Polars' CSV reader, which lines are regular, which are short, and the number of quotes in
    each; quotes are not counted in lines that match `exact`."""
    if layout.exact is None or layout.dialect.quote not in data:
        return _judge_all(text, data, layout)
    exact = text.str.contains(layout.exact)
    short, rest = pl.zeros(len(text), dtype=pl.Boolean, eager=True), (~exact).arg_true()
    if not len(rest):
        return text, exact, short, None
    some = text.gather(rest)
    new, regular, less, counted = _judge_all(some, data, layout)
    quotes = pl.zeros(len(text), dtype=pl.UInt32, eager=True)
    return (
        text if new is some else replaced(text, rest, new),
        exact.scatter(rest, regular),
        short.scatter(rest, less),
        quotes if counted is None else quotes.scatter(rest, counted),
    )


def _judge_all(text: pl.Series, data: bytes, layout: Layout) -> _Judged:
    mark, quote = layout.dialect.delimiter.decode(), layout.dialect.quote.decode()
    if mark:
        delimiters = text.str.count_matches(mark, literal=True).cast(pl.Int64)
    else:
        delimiters = pl.zeros(len(text), dtype=pl.Int64, eager=True)
    if not quote or layout.dialect.quote not in data:
        return text, _fits(text, delimiters, delimiters, layout), delimiters < layout.width - 1, None
    quotes = text.str.count_matches(quote, literal=True)
    at = (quotes > 0).arg_true()
    some = text.gather(at)
    inner = ~some.str.contains(layout.opening)
    regular, outside = _bordered(some, quotes.gather(at), layout)
    if inner.any():
        where = inner.arg_true()
        outside = outside.scatter(where, delimiters.gather(at).gather(where))
        regular = regular | inner
    outside = delimiters.scatter(at, outside)
    fits = _fits(text, delimiters, outside, layout)
    new = _rewritten(some, inner, layout)
    if new is not None:
        text = replaced(text, at, new)
    return text, fits.scatter(at, regular & fits.gather(at)), outside < layout.width - 1, quotes


def _bordered(texts: pl.Series, quotes: pl.Series, layout: Layout) -> tuple[pl.Series, pl.Series]:
    """Return which records have their quotes at the borders of cells, and each one's delimiters outside of quotes."""
    regular = texts.str.contains(layout.regular)
    if layout.one_cell:
        return regular, pl.zeros(len(texts), dtype=pl.Int64, eager=True)
    return regular, texts.str.count_matches(layout.quoted_or_delimiter).cast(pl.Int64) - quotes.cast(pl.Int64) // 2


def _rewritten(texts: pl.Series, inner: pl.Series, layout: Layout) -> pl.Series | None:
    """Escape quotes in unquoted cells for Polars' CSV reader, None if there are none; unquote single cells."""
    mark, quote = layout.dialect.delimiter.decode(), layout.dialect.quote.decode()
    if layout.one_cell:
        return texts.zip_with(inner, _content(texts, quote))
    if not inner.any():
        return None
    quoted = texts.str.replace_all(quote, quote * 2, literal=True)
    quoted = quoted.str.replace_all(mark, quote + mark + quote, literal=True)
    return pl.select(pl.when(inner).then(pl.lit(quote) + quoted + pl.lit(quote)).otherwise(texts)).to_series()


def _content(texts: pl.Series, quote: str) -> pl.Series:
    """Return the content of quoted cells."""
    return texts.str.strip_prefix(quote).str.strip_suffix(quote).str.replace_all(quote * 2, quote, literal=True)


def _fits(text: pl.Series, delimiters: pl.Series, outside: pl.Series, layout: Layout) -> pl.Series:
    """Return which records have no more cells than expected, apart from blank ones."""
    fits = outside < layout.width
    if layout.one_cell or fits.all():
        return fits
    mark = layout.dialect.delimiter.decode()
    at = (~fits & (outside < CELLS_MAX)).arg_true()
    stripped = text.gather(at).str.strip_chars_end(WHITE + mark).str.count_matches(mark, literal=True).cast(pl.Int64)
    return fits.scatter(at, outside.gather(at) - delimiters.gather(at) + stripped < layout.width)


def _spans(
    data: bytes, text: pl.Series, starts: list[int], uneven: pl.Series, barred: pl.Series, layout: Layout
) -> Spans | None:
    """Find regular records that span from a line with an odd number of quotes to the next such line."""
    first, last = uneven.head(len(uneven) - 1), uneven.slice(1)
    begin = pl.Series(starts, dtype=pl.Int64)
    end = begin.gather(last) + text.gather(last).str.len_bytes()
    start = begin.gather(first)
    able = (end - start <= layout.cell_chars_max) & text.gather(first).str.contains(layout.unfinished)
    if barred.any():
        before = barred.cast(pl.Int64).cum_sum()
        able = able & ~barred.gather(first) & (before.gather(first) == before.gather(last))
    first, last, start, end = (values.filter(able) for values in (first, last, start, end))
    if not len(first):
        return None
    bounds = zip(start.to_list(), end.to_list(), strict=True)
    if data.isascii():
        characters = data.decode()
        texts = pl.Series([characters[at:stop] for at, stop in bounds], dtype=pl.String)
    else:
        texts = pl.Series([data[at:stop].decode() for at, stop in bounds], dtype=pl.String)
    mark, quote = layout.dialect.delimiter.decode(), layout.dialect.quote.decode()
    regular, outside = _bordered(texts, texts.str.count_matches(quote, literal=True), layout)
    delimiters = texts.str.count_matches(mark, literal=True).cast(pl.Int64) if mark else outside
    regular = regular & _fits(texts, delimiters, outside, layout) & ~texts.str.starts_with("\ufeff")
    regular = regular & ((outside == layout.width - 1) | (last - first < QUOTED_LINES_MAX))
    if layout.one_cell:
        texts = _content(texts, quote)
    first, last, texts, outside = (values.filter(regular) for values in (first, last, texts, outside))
    number = {line: n for n, line in enumerate(first.to_list())}
    return Spans(number, last.to_list(), texts, outside < layout.width - 1)
