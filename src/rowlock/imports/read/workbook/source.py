"""The workbook as a source of rows for the planner."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from rowlock.errors import FileRefused
from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.source import ROW, Batch, HeadRow
from rowlock.imports.read.workbook.batch import RowBatch, split
from rowlock.imports.read.workbook.cells import CellReader
from rowlock.imports.read.workbook.errors import too_large
from rowlock.imports.read.workbook.package import Package
from rowlock.imports.read.workbook.parts import choose_sheet, read_workbook
from rowlock.imports.read.workbook.reading import SheetReader
from rowlock.imports.read.workbook.shared import read_shared
from rowlock.imports.read.workbook.styles import read_styles


def open_workbook(path: Path, *, sheet: str | None, limits: ReadLimits) -> WorkbookSource:
    """Open the sheet of that name (default: the first visible one); raises FileRefused for any fault of the file."""
    package = Package(path, limits)
    try:
        return WorkbookSource(package, sheet, limits)
    except MemoryError:
        package.close()
        raise too_large("reading it takes too much memory") from None
    except BaseException:
        package.close()
        raise


class WorkbookSource:
    """One sheet of a workbook; a `Source`."""

    typed = True

    def __init__(self, package: Package, wanted: str | None, limits: ReadLimits) -> None:
        book = read_workbook(package)
        sheet = choose_sheet(book, wanted)
        shared = read_shared(package, book.shared_strings, limits)
        self._package = package
        self._part = sheet.part
        self._limits = limits
        self._cells = CellReader(shared, read_styles(package, book.styles), book.since_1904, limits)
        self.about: dict[str, Any] = {"format": "xlsx", "sheet": sheet.name, "sheets": len(book.sheets)}
        self.notices: list[str] = []
        if wanted is None and len(book.sheets) > 1:
            self.notices.append(f'The workbook has {len(book.sheets)} sheets; "{sheet.name[:80]}" was read.')
        if book.since_1904:
            self.notices.append("The workbook counts its dates from 1904; they were converted.")

    def head(self, limit: int) -> list[HeadRow]:
        """Return the first rows without blank ones; raises FileRefused for a row with too many filled cells."""
        rows: list[HeadRow] = []
        batch = RowBatch(self._cells, self._limits, rows_max=limit)
        with closing(self._read(batch, after=0)) as reading:
            for _ in reading:
                rows += self._head_rows(batch)
                if len(rows) >= limit:
                    break
        return sorted(rows, key=lambda row: row.row)[:limit]

    def batches(self, header_row: int, width: int) -> Iterator[Batch]:
        """Yield the rows below the header row in file order; hidden ones are included, and counted in a notice."""
        batch = RowBatch(self._cells, self._limits)
        with closing(self._read(batch, after=header_row)) as reading:
            for done in reading:
                frame, bad = batch.take(width)
                for some in split(frame, bad, width, 4 * self._limits.block_bytes):
                    some.done = done
                    yield some
        if batch.hidden:
            self.notices.append(f"{batch.hidden:,} hidden rows were read, too.")

    def close(self) -> None:
        """Close the file."""
        self._package.close()

    def _read(self, batch: RowBatch, *, after: int) -> Generator[float, None, None]:
        try:
            yield from SheetReader(self._package, self._part, self._limits, batch, after=after)
        except MemoryError:
            raise too_large("reading it takes too much memory") from None

    def _head_rows(self, batch: RowBatch) -> list[HeadRow]:
        most = self._limits.columns_max
        if batch.widest > most:
            raise FileRefused(
                f"The sheet has a row of {batch.widest:,} filled cells; an import takes {most:,} columns at most. "
                "Remove the columns that are not needed.",
                code="too_many_columns",
            )
        width = min(batch.columns, most)
        frame, _ = batch.take(width, faults=False)
        rows = []
        for values in frame.select(ROW, *(f"c{at}" for at in range(width))).iter_rows():
            cells = list(values[1:])
            while cells and not cells[-1]:
                cells.pop()
            rows.append(HeadRow(values[0], tuple(cells)))
        return rows
