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

_BOM = "\ufeff"  # without it Excel does not recognise UTF-8
_PAGE_ROWS = 500
ADDED = ("row", "column", "reason")
"""The columns that a report adds after those of the file."""

# Characters that a program may skip before it interprets a cell: spaces, quotes and invisible characters.
_SKIPPED = r"[\s\x00-\x1f'\"\u2018\u2019\u201c\u201d\u00a0\u200b-\u200f\u2060\ufeff]*?"
_FORMULA = r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20\u2212\ufe62\ufe63\ufe66\ufe6b]"
_AT_START = re.compile(rf"(?={_SKIPPED}{_FORMULA})")
# A program that splits lines at other characters than commas starts a cell inside one of ours.
_INSIDE = re.compile(rf"(?<=[;|\t\r\n])(?={_SKIPPED}{_FORMULA})")


def inert(cell: str) -> str:
    """Return the cell with an apostrophe before anything that a spreadsheet program could take for a formula."""
    cell = _INSIDE.sub("'", cell)
    return f"'{cell}" if _AT_START.match(cell) else cell


def as_written(columns: Sequence[str]) -> pl.Expr:
    """Return an expression that removes the leading apostrophes of `inert` from the cells of a corrected report."""
    import polars as pl

    return pl.col(columns).str.replace(rf"^'({_SKIPPED}{_FORMULA})", "${1}")


async def errors_csv(header: Sequence[str], page: Callable[[int, int], Awaitable[ErrorPage]]) -> AsyncIterator[bytes]:
    """Yield the report in pieces: one line for each row with errors, in the order of the file.

    `page(after_row, limit)` returns the rows. The columns are those of the file, then row, column and reason; the last
    two list all errors of a row.
    """
    yield (_BOM + _line([*header, *_added(header)])).encode()
    after: int | None = 0
    while after is not None:
        found = await page(after, _PAGE_ROWS)
        if found.rows:
            yield "".join(_row(row, len(header)) for row in found.rows).encode("utf-8", "replace")
        after = found.next_row


def template_csv(header: Sequence[str]) -> bytes:
    """Return an empty CSV file with these columns, to fill in."""
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
    """Return one line with every cell in quotes, so that no content of a cell can start another one."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerow([inert(cell) for cell in cells])
    return text.getvalue()


def _added(header: Sequence[str]) -> list[str]:
    """Return the names of the added columns, different from those of the file: the report may be imported again."""
    taken = {name.strip().casefold() for name in header}
    return [name if name not in taken else f"import {name}" for name in ADDED]
