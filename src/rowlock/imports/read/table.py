"""From blocks of text to frames of cells: regular lines together, all others one record at a time."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from rowlock.imports.read.encoding import Encoding
from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.lines import Lines, Shape, cells, find_lines, starts
from rowlock.imports.read.records import BREAK, CELLS_MAX, Record, RecordReader
from rowlock.imports.source import ROW, BadRecord

# The characters that Unicode calls white space, as the vectorised reader knows them; str.strip() takes a few more.
WHITE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_SHOWN_CELLS = 50
_SHOWN_CHARS = 200


class Table:
    """Reads the blocks of one file in turn and knows in which row and line it is."""

    def __init__(self, shape: Shape, encoding: Encoding, limits: ReadLimits, *, below: int, line: int) -> None:
        self.short = 0  # rows with fewer cells than the header
        self._shape = shape
        self._encoding = encoding
        self._cell_chars_max = limits.cell_chars_max
        self._reader = RecordReader(shape.dialect, limits)
        self._below = below
        self._row = 1
        self._line = line
        self._rows: list[tuple[int, list[str]]] = []
        self._bad: list[BadRecord] = []

    def read(self, data: bytes, *, final: bool) -> tuple[pl.DataFrame, list[BadRecord], bytes]:
        """The rows of the block, its bad records, and the part that goes on in the next one."""
        self._rows, self._bad = [], []
        at = 0
        while self._row <= self._below and at < len(data):
            record = self._reader.read(data, at, line=self._line, width=None, final=final)
            if record is None:
                return self._odd_rows(), [], data[at:]
            at, self._row, self._line = record.end, self._row + 1, self._line + record.lines
        data = data[at:] if at else data
        lines = find_lines(data, self._shape) if data else None
        if lines is None:
            end = self._one_by_one(data, 0, final)
            return self._odd_rows(), self._bad, data[end:]
        before = self._row, self._line, self.short
        regular, rows, end = self._take_odd(data, lines, final)
        frame = cells(lines, regular, data, self._shape)
        if frame is None:  # never seen; the record reader needs no reason
            self._row, self._line, self.short = before
            self._rows, self._bad = [], []
            end = self._one_by_one(data, 0, final)
            return self._odd_rows(), self._bad, data[end:]
        frame = _without_blank(frame.insert_column(0, rows.filter(regular).cast(pl.UInt32).alias(ROW)))
        if self._rows:
            frame = pl.concat([frame, self._odd_rows()]).sort(ROW)
        return frame, self._bad, data[end:]

    def _take_odd(self, data: bytes, lines: Lines, final: bool) -> tuple[pl.Series, pl.Series, int]:
        """Read the odd lines; which lines are left for the vectorised reader, the row of each line, and the end."""
        first_row, first_line, count, end = self._row, self._line, len(lines.text), len(data)
        taken: list[int] = []  # lines that the record reader took
        records: list[int] = []  # and how many records started in each
        more_rows = more_lines = next_line = 0
        begin = starts(lines.text, data, self._shape.line_end) if lines.odd else []
        for odd in lines.odd:
            if odd < next_line:
                continue
            row, line = first_row + odd + more_rows, first_line + odd + more_lines
            self._row, self._line = row, line
            end, whole = self._to_line_start(data, begin[odd], final)
            if not whole:
                count = odd
                break
            next_line = odd + self._lines_between(data, begin[odd], end)
            taken += range(odd, next_line)
            records += [self._row - row, *[0] * (next_line - odd - 1)]
            more_rows += self._row - row - (next_line - odd)
            more_lines += self._line - line - (next_line - odd)
        else:
            self._row, self._line, end = first_row + count + more_rows, first_line + count + more_lines, len(data)
        regular, rows = lines.regular, pl.repeat(1, len(lines.text), dtype=pl.Int64, eager=True)
        if taken:
            regular, rows = regular.scatter(taken, False), rows.scatter(taken, records)
        if count < len(regular):
            regular = regular & (pl.int_range(len(regular), eager=True) < count)
        return regular, rows.cum_sum() - rows + first_row, end

    def _to_line_start(self, data: bytes, at: int, final: bool) -> tuple[int, bool]:
        """Read on until a record ends where a line ends; where that was, and False if the block ended before it."""
        while True:
            record = self._reader.read(data, at, line=self._line, width=self._shape.width, final=final)
            if record is None:
                return at, False
            self._take(record)
            at = record.end
            if at >= len(data) or data[at - 1 : at] == self._shape.line_end:
                return at, True

    def _lines_between(self, data: bytes, start: int, end: int) -> int:
        line_end = self._shape.line_end
        return data.count(line_end, start, end) + (end == len(data) and not data.endswith(line_end))

    def _one_by_one(self, data: bytes, at: int, final: bool) -> int:
        while at < len(data):
            record = self._reader.read(data, at, line=self._line, width=self._shape.width, final=final)
            if record is None:
                break
            self._take(record)
            at = record.end
        return at

    def _take(self, record: Record) -> None:
        row, line, width = self._row, self._line, self._shape.width
        self._row, self._line = row + 1, line + record.lines
        if record.fault:
            self._refuse(row, *record.fault, record)
            return
        try:
            found = [cell.decode() for cell in record.cells]
        except UnicodeDecodeError:
            self._refuse(row, "bad_encoding", self._broken(record, line), record)
            return
        if is_blank(found):
            return
        if any(len(cell) > self._cell_chars_max for cell in found):
            reason = f"a cell on line {line} has more than {self._cell_chars_max:,} characters"
            self._refuse(row, "cell_too_long", reason, record)
        elif len(found) > width and not is_blank(found[width:]):
            many = f"more than {CELLS_MAX:,}" if len(found) > CELLS_MAX else f"{len(found):,}"
            self._refuse(row, "too_many_cells", f"line {line} has {many} cells where the header has {width:,}", record)
        elif len(found) < width and not record.ended:
            reason = f"the file ends in line {line}, after {len(found):,} of {width:,} cells: it may have been cut off"
            self._refuse(row, "truncated_record", reason, record)
        else:
            self.short += len(found) < width
            self._rows.append((row, [*found[:width], *[""] * (width - len(found))]))

    def _refuse(self, row: int, code: str, reason: str, record: Record) -> None:
        shown = tuple(readable(cell[: 4 * _SHOWN_CHARS])[:_SHOWN_CHARS] for cell in record.cells[:_SHOWN_CELLS])
        self._bad.append(BadRecord(row, code, reason, shown))

    def _broken(self, record: Record, line: int) -> str:
        """Which byte is broken, and on which line, as far as the encoding lets us say so."""
        for cell in record.cells:
            try:
                cell.decode()
            except UnicodeDecodeError as fault:
                line += len(BREAK.findall(cell[: fault.start]))
                if self._encoding.codec.startswith("utf-8") or self._encoding.codec == "cp1252":
                    return f"the byte 0x{cell[fault.start]:02X} on line {line} is not {self._encoding.name}"
                break
            line += len(BREAK.findall(cell))
        return f"a character on line {line} is not valid {self._encoding.name}"

    def _odd_rows(self) -> pl.DataFrame:
        """The rows of the record reader."""
        columns = {ROW: pl.Series([row for row, _ in self._rows], dtype=pl.UInt32)}
        for n, name in enumerate(self._shape.columns):
            columns[name] = pl.Series([found[n] for _, found in self._rows], dtype=pl.String)
        return pl.DataFrame(columns)


def is_blank(found: Iterable[str]) -> bool:
    """Is there nothing but white space in the cells?"""
    return not any(cell.strip(WHITE) for cell in found)


def readable(cell: bytes) -> str:
    """The cell for people's eyes: what is not UTF-8 is written out."""
    return cell.decode("utf-8", "backslashreplace")


def _without_blank(frame: pl.DataFrame) -> pl.DataFrame:
    """Leave out rows with nothing but white space; most files have none, so one column is looked at first."""
    names = frame.columns[1:]
    blank = frame[names[0]].str.strip_chars() == ""
    for name in names[1:]:
        if not blank.any():
            return frame
        blank = blank & (frame[name].str.strip_chars() == "")
    return frame.filter(~blank)
