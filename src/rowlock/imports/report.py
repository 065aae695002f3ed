"""errors.csv: the user's own rows that were not imported, with the reasons, safe to open in any spreadsheet program."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from rowlock.storage.imports import ErrorPage, ErrorRow

if TYPE_CHECKING:
    import polars as pl

_BOM = "\ufeff"  # without it Excel takes UTF-8 for something else
_PAGE_ROWS = 500
ADDED = ("row", "column", "reason")
"""What a report has behind the columns of the file."""

# A program may skip these before it looks at what a cell is: spaces, quotes, and what is not seen at all.
_SKIPPED = r"[\s\x00-\x1f'\"\u2018\u2019\u201c\u201d\u00a0\u200b-\u200f\u2060\ufeff]*"
_FORMULA = r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20\u2212\ufe62\ufe63\ufe66\ufe6b]"
_AT_START = re.compile(rf"(?={_SKIPPED}{_FORMULA})")
# Where programs cut lines at something else than commas, a cell of theirs begins inside one of ours.
_INSIDE = re.compile(rf"(?<=[;|\t\r\n])(?={_SKIPPED}{_FORMULA})")


def inert(cell: str) -> str:
    """The cell as text that no spreadsheet program takes for a formula: an apostrophe stands before what might be."""
    cell = _INSIDE.sub("'", cell)
    return f"'{cell}" if _AT_START.match(cell) else cell


def as_written(columns: Sequence[str]) -> pl.Expr:
    """The cells of a report that was mended and comes back, without the apostrophes that `inert` has put there."""
    import polars as pl

    return pl.col(columns).str.replace(rf"^'({_SKIPPED}{_FORMULA})", "${1}")


async def errors_csv(header: Sequence[str], page: Callable[[int, int], Awaitable[ErrorPage]]) -> AsyncIterator[bytes]:
    """The report, piece by piece: a line for each row with errors, in the order of the file.

    `page(after_row, limit)` gives the rows. The columns are those of the file, then row, column and reason; what is in
    them all is for a row with several errors, one after the other.
    """
    yield (_BOM + _line([*header, *_added(header)])).encode()
    after: int | None = 0
    while after is not None:
        found = await page(after, _PAGE_ROWS)
        if found.rows:
            yield "".join(_row(row, len(header)) for row in found.rows).encode("utf-8", "replace")
        after = found.next_row


def template_csv(header: Sequence[str]) -> bytes:
    """An empty file with these columns, to fill in."""
    return (_BOM + _line(header)).encode()


def _row(row: ErrorRow, width: int) -> str:
    cells = [*row.cells[:width], *[""] * (width - len(row.cells))]
    columns = list(dict.fromkeys(error.column for error in row.errors if error.column is not None))
    alone = len(row.errors) == 1
    reasons = [
        error.reason if alone or error.column is None else f"{error.column}: {error.reason}" for error in row.errors
    ]
    return _line([*cells, str(row.row), ", ".join(columns), "; ".join(dict.fromkeys(reasons))])


def _line(cells: Sequence[str]) -> str:
    """All cells in quotes: what stands between them is then never taken for the beginning of another."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerow([inert(cell) for cell in cells])
    return text.getvalue()


def _added(header: Sequence[str]) -> list[str]:
    """The names of our columns, which must not be those of the user's: the corrected file may be imported again."""
    taken = {name.strip().casefold() for name in header}
    return [name if name not in taken else f"import {name}" for name in ADDED]
