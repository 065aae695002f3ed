"""Turns blocks of text into frames of cells: regular records in bulk, all others one at a time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

import polars as pl

from rowlock.imports.read.blocks import lines_max
from rowlock.imports.read.encoding import Encoding
from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.lines import WHITE, Layout, Lines, cells, find_lines, padded, replaced
from rowlock.imports.read.records import CELLS_MAX, Record, RecordReader, count_breaks, empty_lines
from rowlock.imports.read.source import ROW, BadRecord

_SHOWN_CELLS = 50
_SHOWN_CHARS = 200


@dataclass(slots=True)
class Part:
    """Some rows in file order, the bad records among them, and where in the block the part ends."""

    frame: pl.DataFrame
    bad: list[BadRecord]
    counted: Counter[str]  # further bad records that are not in `bad`
    end: int


@dataclass(slots=True)
class _Taken:
    """The lines of a part that did not become one row each."""

    count: int  # of lines; the lines after them belong to the next part
    lines: list[int] = field(default_factory=list)  # lines that are not rows of their own
    records: list[int] = field(default_factory=list)  # how many records started in each of these
    spans: list[int] = field(default_factory=list)  # the first lines of regular records of several lines
    inside: list[int] = field(default_factory=list)  # the other lines of these records

    def add(self, start: int, end: int, records: int) -> None:
        """Note that these lines are not rows; all their records started in the first one."""
        self.lines.append(start)
        self.records.append(records)
        if end > start + 1:
            self.lines += range(start + 1, end)
            self.records += [0] * (end - start - 1)


class Table:
    """Reads the blocks of one file in turn and keeps track of row and line."""

    def __init__(self, layout: Layout, encoding: Encoding, limits: ReadLimits, *, below: int, line: int) -> None:
        self.short = 0  # rows with fewer cells than the header
        self._layout = layout
        self._encoding = encoding
        self._cell_chars_max = limits.cell_chars_max
        self._reader = RecordReader(layout.dialect, limits)
        self._below = below
        self._row = 1
        self._line = line
        self._lines_max = lines_max(layout.width)
        self._some_lines = re.compile(b"(?:[^%b]*+%b){1,%d}+" % (layout.line_end, layout.line_end, self._lines_max))
        # Empty lines that end with the other line end.
        self._other_ends = re.compile(rb"\r+(?!\n)" if layout.line_end == b"\n" else rb"\n+")
        self._waiting = False  # an unfinished record needs the next block
        self._inside = False  # the last part ended at the end of a record, but inside of a line
        self._rows: list[tuple[int, list[str]]] = []
        self._bad: list[BadRecord] = []
        self._counted: Counter[str] = Counter()
        self._to_tell = limits.told_max  # bad records that may still be reported one by one

    def read(self, data: bytes, *, final: bool) -> Iterator[Part]:
        """Yield the block's rows in parts, at least one; pass what follows the last part with the next block."""
        at, self._waiting = 0, False
        if self._row <= self._below:
            empty, at = empty_lines(data, 0, len(data))
            self._row, self._line = self._row + empty, self._line + empty
        while self._row <= self._below and at < len(data):
            record = self._reader.read(data, at, line=self._line, width=None, final=final)
            if record is None:
                self._waiting = True
                break
            empty, at = empty_lines(data, record.end, len(data))
            self._row, self._line = self._row + 1 + empty, self._line + record.lines + empty
        left = data.count(self._layout.line_end, at)
        while True:
            self._rows, self._bad, self._counted, before = [], [], Counter(), at
            if self._waiting or at >= len(data):
                frame = self._odd_rows()
            else:
                frame, at = self._part(data, at, self._stop(data, at, left), final)
            yield Part(frame, self._bad, self._counted, at)
            self._to_tell -= len(self._bad)
            if self._waiting or at >= len(data):
                return
            left -= data.count(self._layout.line_end, before, at)

    def _stop(self, data: bytes, at: int, left: int) -> int:
        """Return where a part of at most `_lines_max` lines ends; never between a CR and its LF."""
        found = self._some_lines.match(data, at) if left > self._lines_max else None
        if found is None:
            return len(data)
        return found.end() + (data[found.end() - 1 : found.end() + 1] == b"\r\n")

    def _part(self, data: bytes, at: int, stop: int, final: bool) -> tuple[pl.DataFrame, int]:
        if self._inside:
            end, _ = self._to_line_start(data, at, stop, final)
            return self._odd_rows(), end
        part = data[at:stop] if stop - at < len(data) else data
        lines = find_lines(part, self._layout)
        before = self._row, self._line, self.short
        if lines is not None:
            taken, end = self._take_odd(data, at, stop, lines, final)
            frame = self._regular_rows(part, lines, taken, before[0])
            if frame is not None:
                return (pl.concat([frame, self._odd_rows()]).sort(ROW) if self._rows else frame), end
            # Never seen; in any case, the record reader can read the part.
            self._row, self._line, self.short = before
            self._rows, self._bad, self._counted, self._inside, self._waiting = [], [], Counter(), False, False
        end = self._one_by_one(data, at, stop, final)
        return self._odd_rows(), end

    def _take_odd(self, data: bytes, at: int, stop: int, lines: Lines, final: bool) -> tuple[_Taken, int]:
        """Read the odd lines of a part; returns the lines taken and where the last record ends."""
        first_row, first_line, count = self._row, self._line, len(lines.text)
        taken, starts = _Taken(count), lines.starts
        spans, last = (lines.spans.number, lines.spans.last) if lines.spans else ({}, [])
        more_rows = more_lines = next_line = 0
        for odd in lines.odd:
            if odd < next_line:
                continue
            span = spans.get(odd)
            if span is not None:
                next_line = last[span] + 1
                taken.spans.append(odd)
                taken.inside += range(odd + 1, next_line)
                more_rows -= next_line - odd - 1
                continue
            row, line = first_row + odd + more_rows, first_line + odd + more_lines
            self._row, self._line = row, line
            end, whole = self._to_line_start(data, at + starts[odd], stop, final)
            if not whole or end >= stop:
                taken.count = odd
                return taken, end
            next_line = odd + data.count(self._layout.line_end, at + starts[odd], end)
            taken.add(odd, next_line, self._row - row)
            more_rows += self._row - row - (next_line - odd)
            more_lines += self._line - line - (next_line - odd)
        self._row, self._line = first_row + count + more_rows, first_line + count + more_lines
        return taken, stop

    def _regular_rows(self, part: bytes, lines: Lines, taken: _Taken, first_row: int) -> pl.DataFrame | None:
        """Return the rows of the regular records; None if Polars' CSV reader did not find the expected rows."""
        text, regular, short = lines.text, lines.regular, lines.short
        rows = pl.repeat(1, len(text), dtype=pl.Int64, eager=True)
        if taken.lines:
            regular, rows = regular.scatter(taken.lines, False), rows.scatter(taken.lines, taken.records)
        if taken.count < len(text):
            regular = regular & (pl.int_range(len(text), eager=True) < taken.count)
        if taken.spans:
            assert lines.spans is not None
            which = [lines.spans.number[first] for first in taken.spans]
            text = replaced(text, taken.spans, lines.spans.text.gather(which))
            short = short.scatter(taken.spans, lines.spans.short.gather(which))
            regular = regular.scatter(taken.spans, True).scatter(taken.inside, False)
            rows = rows.scatter(taken.inside, 0)
        rows = rows.cum_sum() - rows + first_row
        whole = b""
        if not regular.all():
            text, rows, short = text.filter(regular), rows.filter(regular), short.filter(regular)
        elif lines.as_written and not taken.spans and self._layout.line_end == b"\n":
            whole = part.replace(b"\r\n", b"\n") if b"\r" in part else part
        frame = cells(text, self._layout, whole)
        if frame is None:
            return None
        frame = frame.insert_column(0, rows.cast(pl.UInt32).alias(ROW))
        blank = _blank_rows(frame)
        if blank is not None:
            frame, short = frame.filter(~blank), short & ~blank
        self.short += int(short.sum())
        return frame

    def _to_line_start(self, data: bytes, at: int, stop: int, final: bool) -> tuple[int, bool]:
        """Read until a record ends at a line end; returns the position, and False if that was not reached."""
        while True:
            record = self._reader.read(data, at, line=self._line, width=self._layout.width, final=final)
            if record is None:
                self._waiting = True
                return at, False
            self._take(record)
            at = record.end
            if at < stop and (empty := self._other_ends.match(data, at, stop)):
                at, many = empty.end(), empty.end() - at
                self._row, self._line = self._row + many, self._line + many
            self._inside = at < stop and data[at - 1 : at] != self._layout.line_end
            if not self._inside:
                return at, True
            if len(self._rows) + len(self._bad) >= 2 * self._lines_max:
                return at, False

    def _one_by_one(self, data: bytes, at: int, stop: int, final: bool) -> int:
        while at < stop and len(self._rows) + len(self._bad) < 2 * self._lines_max:
            record = self._reader.read(data, at, line=self._line, width=self._layout.width, final=final)
            if record is None:
                self._waiting = True
                break
            self._take(record)
            empty, at = empty_lines(data, record.end, stop)
            self._row, self._line = self._row + empty, self._line + empty
        return at

    def _take(self, record: Record) -> None:
        row, line, width = self._row, self._line, self._layout.width
        self._row, self._line = row + 1, line + record.lines
        if record.fault:
            self._refuse(row, line, record.fault[0], record)
            return
        count = len(record.cells)
        try:
            found = [cell.decode() for cell in record.cells[:width]]
            surplus = b"\n".join(record.cells[width:]).decode() if count > width else ""
        except UnicodeDecodeError:
            self._refuse(row, line, "bad_encoding", record)
            return
        more = bool(surplus.strip(WHITE))
        if not more and is_blank(found):
            return
        if len(surplus) > self._cell_chars_max:
            found += [cell.decode() for cell in record.cells[width:]]
        if max(map(len, found)) > self._cell_chars_max:
            self._refuse(row, line, "cell_too_long", record)
        elif more:
            self._refuse(row, line, "too_many_cells", record)
        elif count < width and not record.ended:
            self._refuse(row, line, "truncated_record", record)
        else:
            self.short += count < width
            self._rows.append((row, found[:width] if len(found) > width else found))

    def _refuse(self, row: int, line: int, code: str, record: Record) -> None:
        """Report a bad record, or only count it after `told_max`: writing the message takes longer than reading."""
        if len(self._bad) >= self._to_tell:
            self._counted[code] += 1
            return
        reason = record.fault[1] if record.fault else self._reason(code, line, record)
        shown = tuple([readable(cell[: 4 * _SHOWN_CHARS])[:_SHOWN_CHARS] for cell in record.cells[:_SHOWN_CELLS]])
        self._bad.append(BadRecord(row, code, reason, shown))

    def _reason(self, code: str, line: int, record: Record) -> str:
        count, width = len(record.cells), self._layout.width
        if code == "bad_encoding":
            return self._broken(record, line)
        if code == "cell_too_long":
            return f"a cell on line {line} has more than {self._cell_chars_max:,} characters"
        if code == "too_many_cells":
            many = f"more than {CELLS_MAX:,}" if count > CELLS_MAX else f"{count:,}"
            return f"line {line} has {many} cells where the header has {width:,}"
        return f"the file ends in line {line}, after {count:,} of {width:,} cells: the file may be incomplete"

    def _broken(self, record: Record, line: int) -> str:
        """Return a message with the line and, if the encoding allows it, the invalid byte."""
        for cell in record.cells:
            try:
                cell.decode()
            except UnicodeDecodeError as fault:
                line += count_breaks(cell[: fault.start])
                if self._encoding.codec.startswith("utf-8") or self._encoding.codec == "cp1252":
                    return f"the byte 0x{cell[fault.start]:02X} on line {line} is not {self._encoding.name}"
                break
            line += count_breaks(cell)
        return f"a character on line {line} is not valid {self._encoding.name}"

    def _odd_rows(self) -> pl.DataFrame:
        """Return the record reader's rows; short ones are filled up, by whole columns as far as possible."""
        columns = {ROW: pl.Series([row for row, _ in self._rows], dtype=pl.UInt32)}
        found = zip_longest(*(row for _, row in self._rows), fillvalue="")
        for name, column in zip(self._layout.columns, found, strict=False):
            columns[name] = pl.Series(column, dtype=pl.String)
        return padded(pl.DataFrame(columns), self._layout)


def is_blank(found: Iterable[str]) -> bool:
    """Return whether the cells hold only white space."""
    return not "".join(found).strip(WHITE)


def readable(cell: bytes) -> str:
    """Decode a cell for display; bytes that are not UTF-8 are shown as escapes."""
    return cell.decode("utf-8", "backslashreplace")


def _blank_rows(frame: pl.DataFrame) -> pl.Series | None:
    """Return which rows are blank, None if there are none. Most files have none, so one column is checked first."""
    blank = frame[:, 1].str.strip_chars() == ""
    at = blank.arg_true()
    for name in frame.columns[2:]:
        if not len(at):
            return None
        at = at.filter(frame[name].gather(at).str.strip_chars() == "")
    return pl.repeat(False, frame.height, dtype=pl.Boolean, eager=True).scatter(at, True) if len(at) else None
