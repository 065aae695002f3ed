"""Reads delimited text (.csv, .tsv, .txt, gzip or not) and detects its dialect and encoding."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from rowlock.errors import FileRefused
from rowlock.imports.read.blocks import Blocks
from rowlock.imports.read.dialect import SAMPLE_BYTES, Sample, delimiter_word, find_dialect, quote_word, sep_line
from rowlock.imports.read.encoding import WINDOWS, Encoding, as_utf8, narrow_encoding, wide_encoding
from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.lines import Layout
from rowlock.imports.read.records import Dialect, RecordReader, empty_lines
from rowlock.imports.read.source import Batch, HeadRow
from rowlock.imports.read.table import Table, is_blank, readable
from rowlock.imports.read.unpack import Packed, refuse_binary

_LOOK_BYTES = 64 << 10
# The search for the header ends after this much blank content.
_BLANK_RECORDS_MAX = 100_000  # that are more than empty lines
_BLANK_BYTES_MAX = 16 << 20


def open_delimited(path: Path, *, name: str, limits: ReadLimits) -> DelimitedFile:
    """Open a file and detect its encoding and dialect; `name` is the uploaded name. Raises FileRefused if not text."""
    packed = Packed(path, limits.unpacked_bytes_max)
    encoding = _encoding(packed)
    sample, whole = _sample(packed, encoding)
    if whole and not sample.strip():
        raise FileRefused("the file is empty", code="empty_file")
    given, skip = sep_line(sample)
    sample = sample[skip:]
    dialect = find_dialect(Sample(sample, whole), given=given, tabs=_promises_tabs(name), limits=limits)
    return DelimitedFile(packed, encoding, dialect, sample=sample, skip=skip, limits=limits)


class DelimitedFile:
    """An open file of delimited text."""

    typed = False

    def __init__(
        self, packed: Packed, encoding: Encoding, dialect: Dialect, *, sample: bytes, skip: int, limits: ReadLimits
    ) -> None:
        self.notices: list[str] = []
        self.dialect = dialect
        self._packed = packed
        self._encoding = encoding
        self._skip = skip  # the bytes of Excel's "sep=" line, which spreadsheets do not show
        self._limits = limits
        self._line_end, line_ending = _line_ends(sample)
        self.about: dict[str, Any] = {
            "encoding": encoding.name,
            "delimiter": delimiter_word(dialect),
            "quote": quote_word(dialect),
            "line_ending": line_ending,
        }
        if packed.gzip:
            self.about["packed"] = "gzip"
        if encoding is WINDOWS:
            self.notices.append(
                "the file is not UTF-8 and was read as Windows-1252; if letters are wrong, save it as UTF-8"
            )

    def head(self, limit: int) -> list[HeadRow]:
        """Return the first rows without blank ones; a bad record gives the cells that could be read.

        Raises FileRefused if there are none, or if a row has too many columns.
        """
        rows: list[HeadRow] = []
        reader, blocks = RecordReader(self.dialect, self._limits), self._blocks()
        row, line, data, final = 0, 1 + bool(self._skip), b"", False
        blank_records = blank_bytes = 0
        while not final and len(rows) < limit and blank_records < _BLANK_RECORDS_MAX and blank_bytes < _BLANK_BYTES_MAX:
            data, final = blocks.next(data)
            at = 0
            while len(rows) < limit and blank_records < _BLANK_RECORDS_MAX:
                empty, end = empty_lines(data, at, len(data))
                at, line, row, blank_bytes = end, line + empty, row + empty, blank_bytes + end - at
                if at == len(data) or blank_bytes >= _BLANK_BYTES_MAX:
                    break
                record = reader.read(data, at, line=line, width=None, final=final)
                if record is None:
                    break
                start, at, line, row = at, record.end, line + record.lines, row + 1
                cells = tuple(map(readable, record.cells))
                if is_blank(cells):
                    blank_records, blank_bytes = blank_records + 1, blank_bytes + at - start
                else:
                    rows.append(HeadRow(row, self._bounded(cells)))
                    self._refuse_wide(len(rows[0].cells))
            data = data[at:]
        if not rows and limit > 0:
            what = "the file is empty" if final and not data else f"the first {row:,} rows of the file are blank"
            raise FileRefused(what, code="empty_file")
        return rows

    def batches(self, header_row: int, width: int) -> Iterator[Batch]:
        """Yield the rows below the header row without blank ones, `width` cells each."""
        self._refuse_wide(width)
        layout = Layout(self.dialect, self._line_end, width, self._limits.cell_chars_max, self._encoding.clean)
        table = Table(layout, self._encoding, self._limits, below=header_row, line=1 + bool(self._skip))
        blocks, tail, done, final = self._blocks(), b"", 0.0, False
        while not final:
            before, end = done, 0
            data, final = blocks.next(tail)
            done = 1.0 if final else min(1.0, self._packed.position / max(1, self._packed.size))
            for part in table.read(data, final=final):
                end = part.end
                so_far = before + (done - before) * end / max(1, len(data))
                yield Batch(part.frame, part.bad, so_far, part.counted)
            tail = data[end:]
        if table.short:
            many = "1 row has" if table.short == 1 else f"{table.short:,} rows have"
            self.notices.append(f"{many} fewer cells than the header; the missing cells were read as empty")

    def _blocks(self) -> Blocks:
        pieces = as_utf8(self._packed.pieces(), self._encoding)
        start = b""
        while len(start) < self._skip and (piece := next(pieces, None)) is not None:
            start += piece
        pieces = chain((start[self._skip :],), pieces)
        return Blocks(pieces, line_end=self._line_end, limits=self._limits)

    def _bounded(self, cells: tuple[str, ...]) -> tuple[str, ...]:
        """Drop blank cells at the end of a row that is too wide."""
        keep = len(cells)
        while keep > self._limits.columns_max and not cells[keep - 1].strip():
            keep -= 1
        return cells[:keep]

    def _refuse_wide(self, width: int) -> None:
        if width > self._limits.columns_max:
            raise FileRefused(
                f"the file has {width:,} columns or more; an import takes at most {self._limits.columns_max:,}",
                code="too_many_columns",
            )


def _encoding(packed: Packed) -> Encoding:
    start = b""
    for piece in packed.pieces():
        start += piece
        if len(start) >= _LOOK_BYTES:
            break
    if not start:
        raise FileRefused("the file is empty", code="empty_file")
    wide = wide_encoding(start)
    if wide is None:
        refuse_binary(start[:_LOOK_BYTES])
    return wide or narrow_encoding(packed.pieces)


def _sample(packed: Packed, encoding: Encoding) -> tuple[bytes, bool]:
    """Return the first lines in UTF-8, and whether they are the whole file."""
    sample = b""
    for piece in as_utf8(packed.pieces(), encoding):
        sample += piece
        if len(sample) > SAMPLE_BYTES:
            sample = sample[:SAMPLE_BYTES]
            return sample[: max(sample.rfind(b"\n"), sample.rfind(b"\r", 0, -1)) + 1] or sample, False
    return sample.removesuffix(b"\x1a"), True


def _line_ends(sample: bytes) -> tuple[bytes, str]:
    """Return the line end to cut at and its name. Breaks in quotes count, too: the readers accept any line end."""
    pairs = sample.count(b"\r\n")
    lone_lf, lone_cr = sample.count(b"\n") - pairs, sample.count(b"\r") - pairs
    found = [word for word, count in (("LF", lone_lf), ("CRLF", pairs), ("CR", lone_cr)) if count]
    return b"\r" if lone_cr > lone_lf + pairs else b"\n", found[0] if len(found) == 1 else "mixed" if found else "none"


def _promises_tabs(name: str) -> bool:
    return re.search(r"\.(tsv|tab)(\.gz)?$", name, re.IGNORECASE) is not None
