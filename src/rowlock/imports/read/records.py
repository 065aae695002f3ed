"""Reads UTF-8 text one record at a time: slow, exact, and not stopped by malformed records.

cell    = quoted / plain
quoted  = QUOTE *(any character / QUOTE QUOTE) QUOTE         line breaks are kept as they are
plain   = *(any character but the delimiter and line breaks)  a quote inside is an ordinary character
record  = cell *(DELIMITER cell) (CR LF / LF / CR / end of file)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.lookahead import LookAheads, Stage

QUOTED_LINES_MAX = 100
_SHOWN_BYTES = 64 << 10
CELLS_MAX = 16_384  # columns of a spreadsheet; further cells of a record are not kept

BREAK = re.compile(rb"\r\n|\r|\n")
_BREAKS = re.compile(rb"[\r\n]*+")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file separates and quotes its cells."""

    delimiter: bytes = b","  # empty: the whole line is one cell
    quote: bytes = b'"'  # empty: quotes are ordinary characters
    escapes: bool = False  # a backslash escapes the character after it
    spaces: bool = False  # spaces before an opening quote do not belong to the cell


@dataclass(slots=True)
class Record:
    """One record; with a fault, the cells that could be read."""

    cells: list[bytes]
    end: int  # where the next record starts
    lines: int = 1  # the physical lines that it takes
    ended: bool = True  # by a line break, not by the end of the file
    fault: tuple[str, str] | None = field(default=None)  # code, reason


_LEAPT = Record([], 0)


class RecordReader:
    """Reads records of one dialect from blocks of text that end at a line end."""

    def __init__(self, dialect: Dialect, limits: ReadLimits) -> None:
        self.dialect = dialect
        self.cell_bytes_max = 4 * limits.cell_chars_max
        self.record_bytes_max = record_bytes_max(limits)
        self._cells_max = max(CELLS_MAX, limits.columns_max + 1)
        self._cell_chars_max = limits.cell_chars_max
        delimiter, quote = re.escape(dialect.delimiter), re.escape(dialect.quote)
        backslash = rb"\\" if dialect.escapes else b""
        self._plain_end = re.compile(rb"[\r\n" + delimiter + backslash + b"]")
        other = b"[^" + (quote or b'"') + backslash + b"]*+"
        pair = quote + quote + (rb"|\\." if dialect.escapes else b"")
        self._quoted = re.compile(other + b"(?:(?:" + pair + b")" + other + b")*+", re.DOTALL)
        self._opening = re.compile((b" *+" if dialect.spaces else b"") + quote) if dialect.quote else None
        self._patterns = _line_patterns(dialect)
        self._plain_cells = _plain_cells(dialect)
        self._look_aheads = LookAheads()
        self._escaped = re.compile(rb"\\([\r\n\\" + delimiter + quote + b"])" + (b"|" + quote * 2 if quote else b""))

    def read(self, data: bytes, start: int, *, line: int, width: int | None, final: bool) -> Record | None:
        """Return the record at `start`, or None if it may continue after `data`.

        `line` is the number of its first line, `width` its expected number of cells. If the width is unknown or does
        not match, a record with quoted cells that takes more than QUOTED_LINES_MAX lines counts as an unclosed quote.
        """
        first = BREAK.search(data, start)
        if first is None and not final:
            return None
        stop = first.start() if first else len(data)
        if stop - start >= self.record_bytes_max:
            shown = self._simple(data[start : start + _SHOWN_BYTES], first, len(data)).cells
            reason = f"line {line} has more than {self.record_bytes_max:,} bytes"
            return _faulty(shown, first, len(data), 1, "record_too_long", reason)
        text = data[start:stop]
        quote, escapes = self.dialect.quote, self.dialect.escapes
        special = (quote and quote in text) or (escapes and b"\\" in text)
        if not special or self._opens_nothing(text):
            return self._simple(text, first, len(data))
        if self._patterns and len(text) <= self.cell_bytes_max and self._patterns[0].fullmatch(text):
            record = self._one_line(self._patterns[1], text, first, len(data))
            if len(record.cells) <= self._cells_max:
                return record
        return self._full(data, start, line=line, width=width, final=final)

    def _opens_nothing(self, text: bytes) -> bool:
        """Return whether all quotes in the line are inside of plain cells."""
        dialect = self.dialect
        if dialect.escapes or dialect.spaces or text.startswith(dialect.quote):
            return False
        return not dialect.delimiter or dialect.delimiter + dialect.quote not in text

    def _simple(self, text: bytes, end: re.Match[bytes] | None, length: int) -> Record:
        delimiter = self.dialect.delimiter
        cells = text.split(delimiter, self._cells_max) if delimiter else [text]
        if len(cells) > self._cells_max and not cells[-1].strip(delimiter + b" "):
            del cells[-1]
        return Record(cells, end.end() if end else length, ended=end is not None)

    def _one_line(self, cell: re.Pattern[bytes], text: bytes, end: re.Match[bytes] | None, length: int) -> Record:
        """Split a line with well-formed quotes."""
        cells = []
        for quoted, plain in cell.findall(self.dialect.delimiter + text):
            if quoted:
                cells.append(self._content(quoted[1:-1]))
            else:
                cells.append(self._escaped.sub(self._escaped_one, plain) if self.dialect.escapes else plain)
        return Record(cells, end.end() if end else length, ended=end is not None)

    def _full(self, data: bytes, start: int, *, line: int, width: int | None, final: bool) -> Record | None:
        record = self._walk(data, start, line, width, final, self._look_aheads.of(data))
        return self._walk(data, start, line, width, final, {}) if record is _LEAPT else record

    def _walk(
        self, data: bytes, start: int, line: int, width: int | None, final: bool, leaps: dict[int, Stage]
    ) -> Record | None:
        """Read cell by cell. After a leap only a failure counts, else returns _LEAPT: skipped cells were not read."""
        delimiter = self.dialect.delimiter
        cells: list[bytes] = []
        at, lines, left_out, fault = start, 1, 0, None  # left_out: cells skipped by leaps
        first_long: _Open | None = None
        passed: list[Stage] = []
        while True:
            opening = self._opening.match(data, at) if self._opening else None
            if opening:
                here = _Open(opening.end(), len(cells), line + lines - 1, lines)
                leap = leaps.get(here.at)
                if leap:
                    first_long = first_long or here
                    passed.append(Stage(here.at, at, len(cells) + left_out, lines))
                    at, left_out, lines = leap.start, left_out + leap.cells, lines + leap.lines
                    continue
                bound = min(len(data), here.at + self.cell_bytes_max + 2, start + self.record_bytes_max)
                close = self._close(data, here.at, bound)
                if close < 0:
                    if left_out or (bound == len(data) and not final):
                        return _LEAPT if left_out else None
                    return self._unclosed(data, here, cells, cut=bound if bound < len(data) else 0)
                content = data[here.at : close]
                breaks = count_breaks(content)
                begin, at = at, _past_spaces(data, close + 1, delimiter)
                unended = data[at : at + 1] not in (b"", b"\r", b"\n", delimiter)
                if unended and breaks:  # the closing quote was meant to open another cell
                    return _LEAPT if left_out else self._unclosed(data, here, cells)
                cell = self._content(content)
                if unended:
                    fault = fault or ("text_after_quote", f"line {here.line} has text after a closing quote")
                    rest, at = self._plain(data, close + 1)
                    cell += rest
                if breaks:
                    first_long = first_long or here
                    passed.append(Stage(here.at, begin, len(cells) + left_out, lines))
                    lines += breaks
                    many = lines > QUOTED_LINES_MAX and len(cells) + left_out >= (width or 0)
                    if many or self._too_long(content):
                        self._look_aheads.failed(passed)
                        return self._unclosed(data, first_long, cells)
                cells.append(cell)
            elif self._plain_cells:
                found = self._plain_cells.match(data, at)
                assert found is not None  # it matches the empty text, too
                cells += found[0].split(delimiter)
                at = found.end()
            else:
                cell, at = self._plain(data, at)
                lines += count_breaks(cell) if self.dialect.escapes else 0
                cells.append(cell)
            more = bool(delimiter) and data[at : at + 1] == delimiter
            if len(cells) + left_out > self._cells_max + (not more):
                if left_out:
                    return _LEAPT
                del cells[self._cells_max + 1 :]
                at, more = _line_end(data, at), False
            if not more:
                break
            at += 1
        if at >= len(data) and not final:
            return _LEAPT if left_out else None
        if lines > QUOTED_LINES_MAX and first_long and len(cells) + left_out != width:
            self._look_aheads.failed(passed)
            return self._unclosed(data, first_long, cells)
        if left_out:
            return _LEAPT
        end = BREAK.match(data, at)
        return Record(cells, end.end() if end else len(data), lines, end is not None, fault)

    def _close(self, data: bytes, at: int, bound: int) -> int:
        """Return where the quoted cell is closed, or -1 if it is not closed before the bound."""
        found = self._quoted.match(data, at, bound)
        assert found is not None  # it matches the empty text, too
        close = found.end()
        if close >= bound or data[close : close + 1] != self.dialect.quote:
            return -1
        return -1 if close + 1 == bound < len(data) else close  # at the bound it may be the first of a pair

    def _plain(self, data: bytes, at: int) -> tuple[bytes, int]:
        """Return the unquoted text up to the next delimiter or line break, and the position of that."""
        begin = at
        while found := self._plain_end.search(data, at):
            at = found.start()
            if not self.dialect.escapes or data[at : at + 1] != b"\\":
                break
            at = min(at + 2, len(data))
        else:
            at = len(data)
        text = data[begin:at]
        return (self._escaped.sub(self._escaped_one, text) if self.dialect.escapes else text), at

    def _content(self, content: bytes) -> bytes:
        quote = self.dialect.quote
        if self.dialect.escapes:
            return self._escaped.sub(lambda found: found[1] or quote, content)
        return content.replace(quote + quote, quote)

    @staticmethod
    def _escaped_one(found: re.Match[bytes]) -> bytes:
        return found[1] or found[0]

    def _too_long(self, content: bytes) -> bool:
        longest = self._cell_chars_max
        return len(content) > longest and len(content.decode("utf-8", "surrogateescape")) > longest

    def _unclosed(self, data: bytes, opened: _Open, cells: list[bytes], cut: int = 0) -> Record:
        """Return a bad record that ends with the line where the quote was opened; later lines are read normally."""
        end = BREAK.search(data, opened.at)
        stop = end.start() if end else len(data)
        code, reason = "unclosed_quote", f"the quote opened at line {opened.line} is never closed"
        if cut and stop >= cut:
            code, reason = (
                "cell_too_long",
                f"a cell on line {opened.line} has more than {self._cell_chars_max:,} characters",
            )
        return _faulty([*cells[: opened.cells], data[opened.at : stop]], end, len(data), opened.lines, code, reason)


class _Open(NamedTuple):
    """Where a quoted cell was opened."""

    at: int
    cells: int  # before it in its record
    line: int  # in the file
    lines: int  # of its record, so far


def record_bytes_max(limits: ReadLimits) -> int:
    """Return the most bytes of one record, all cells together, that are held in memory."""
    return max(16 * limits.cell_chars_max, 2 * limits.block_bytes)


def empty_lines(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """Count the empty lines from `at` on; returns the count and where the last one ends."""
    found = _BREAKS.match(data, at, stop)
    assert found is not None  # it matches the empty text, too
    return count_breaks(found[0]), found.end()


def _faulty(cells: list[bytes], end: re.Match[bytes] | None, length: int, lines: int, code: str, reason: str) -> Record:
    return Record(cells, end.end() if end else length, lines, end is not None, (code, reason))


def count_breaks(content: bytes) -> int:
    breaks = content.count(b"\n")
    return breaks + content.count(b"\r") - content.count(b"\r\n") if b"\r" in content else breaks


def _line_end(data: bytes, at: int) -> int:
    found = BREAK.search(data, at)
    return found.start() if found else len(data)


def _past_spaces(data: bytes, at: int, delimiter: bytes) -> int:
    while delimiter != b" " and data[at : at + 1] == b" ":
        at += 1
    return at


def _line_patterns(dialect: Dialect) -> tuple[re.Pattern[bytes], re.Pattern[bytes]] | None:
    """Return patterns for a whole line with well-formed quotes and for one cell with the delimiter before it.

    Returns None for a dialect without delimiter.
    """
    delimiter, quote = re.escape(dialect.delimiter), re.escape(dialect.quote)
    if not delimiter:
        return None
    backslash, escape = (rb"\\", rb"\\.") if dialect.escapes else (b"", b"")
    before, after = b" *+" if dialect.spaces else b"", b"" if dialect.delimiter == b" " else b" *+"
    other = b"[^" + delimiter + backslash + b"]*+"
    plain = other + (b"(?:" + escape + other + b")*+" if escape else b"")
    end = b"(?=" + delimiter + rb"|\Z)"
    if not quote:
        return re.compile(plain + b"(?:" + delimiter + plain + b")*+"), re.compile(
            delimiter + b"()(" + plain + b")" + end
        )
    other = b"[^" + quote + backslash + b"]*+"
    pair = quote + quote + (b"|" + escape if escape else b"")
    quoted = quote + other + b"(?:(?:" + pair + b")" + other + b")*+" + quote
    no_quote = b"(?!" + before + quote + b")"
    # No groups here: in a possessive repetition they are not safe in every Python.
    cell = b"(?:" + before + quoted + after + end + b"|" + no_quote + plain + end + b")"
    one = b"(?:" + before + b"(" + quoted + b")" + after + end + b"|" + no_quote + b"(" + plain + b")" + end + b")"
    return re.compile(cell + b"(?:" + delimiter + cell + b")*+"), re.compile(delimiter + one)


def _plain_cells(dialect: Dialect) -> re.Pattern[bytes] | None:
    """Return a pattern for consecutive unquoted cells; None if the dialect has escapes or no delimiter."""
    delimiter, quote = re.escape(dialect.delimiter), re.escape(dialect.quote)
    if dialect.escapes or not delimiter:
        return None
    other = b"[^" + delimiter + rb"\r\n]*+"
    opening = b"(?!" + (b" *+" if dialect.spaces else b"") + quote + b")" if quote else b""
    return re.compile(other + b"(?:" + delimiter + opening + other + b")*+")
