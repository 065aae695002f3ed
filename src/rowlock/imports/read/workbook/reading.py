"""Reads a sheet's XML: with the fast reader while rows are regular, with expat from the first irregularity on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.workbook.batch import RowBatch
from rowlock.imports.read.workbook.package import Package
from rowlock.imports.read.workbook.rows import Outlines
from rowlock.imports.read.workbook.sheet import RawRow, RowNumbers, SheetParser
from rowlock.imports.read.workbook.text import Decoder

END_OF_ROW = "</row>"
REST_CHARS_MAX = 8 << 20
FEED_CHARS = 256 << 10

_OPENING = re.compile(r"<sheetData\s*>")


class SheetReader:
    """Reads one sheet once, into a batch that the caller empties whenever this yields."""

    def __init__(self, package: Package, part: str, limits: ReadLimits, batch: RowBatch, *, after: int) -> None:
        self._blocks = package.blocks(part)
        self._bytes = max(1, package.size(part))
        self._batch = batch
        self._after = after  # rows up to this number are skipped
        self._numbers = RowNumbers()
        self._outlines = Outlines(part, limits)
        self._decoder = Decoder(part)
        self._whole = SheetParser(part, self._numbers.peek, self._add, limits.cell_chars_max)

    def __iter__(self) -> Iterator[float]:
        """Yield how much was read, from 0 to 1, whenever the batch is full and at the end."""
        with closing(self._blocks):
            yield from self._through()

    def _through(self) -> Iterator[float]:
        read = 0
        rest = ""
        opened = fast = False
        for block in self._blocks:
            read += len(block)
            done = min(1.0, read / self._bytes)
            data = self._decoder.feed(block)
            if isinstance(data, bytes):
                for _ in self._slow(data):
                    yield done
                continue
            text = rest + data
            regular = self._decoder.regular(rest[-3:] + data)
            if not opened:
                opened = True
                opening = _OPENING.search(text) if regular else None
                if opening is not None:
                    self._whole.parser.feed(text[: opening.end()])
                    text = text[opening.end() :]
                    fast = self._whole.in_data
            if fast and regular:
                left = text.split(END_OF_ROW)
                rest = left.pop()
                taken = 0
                for piece in left:
                    if not self._take(piece):
                        break
                    taken += 1
                    if self._batch.full:
                        yield done
                fast = taken == len(left) and "</sheetData" not in rest
                text = END_OF_ROW.join([*left[taken:], rest])
            else:
                fast = False
            if not fast or len(text) > REST_CHARS_MAX:
                fast = False
                for _ in self._slow(text):
                    yield done
                text = ""
            rest = text
        for _ in self._slow(rest + self._decoder.finish()):
            yield 1.0
        self._whole.parser.feed(b"", final=True)
        yield 1.0

    def _slow(self, data: str | bytes) -> Iterator[None]:
        for start in range(0, len(data), FEED_CHARS):
            self._whole.parser.feed(data[start : start + FEED_CHARS])
            if self._batch.full:
                yield

    def _take(self, piece: str) -> bool:
        """Add the row of this piece, and empty ones before it; returns False if the piece alone is not well-formed."""
        numbers = self._numbers
        found = self._outlines.read(piece, numbers)
        if found is not None:
            number, outline, texts = found
            numbers.take(number)
            if number > self._after:
                self._batch.add_alike(number, outline, texts, len(piece))
            return True
        rows = self._outlines.parse(piece, numbers)
        if rows is None:
            return False
        for row in rows:
            self._add(row)
        return True

    def _add(self, row: RawRow) -> None:
        self._numbers.take(row.number)
        if row.number > self._after:
            self._batch.add(row)
