"""The interface between the readers and the planner: rows of cells, the same for every file type.

A frame of cells has a column `row` (UInt32, the row number that the user sees) and one text column per column of the
header: c0, c1, … An empty cell is an empty text. A typed source, such as a workbook, adds k0, k1, … (UInt8): the kind
of each cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import polars as pl

ROW = "row"


class CellKind(IntEnum):
    """The kind of a cell in a typed source, and how its text is written."""

    TEXT = 0  # unchanged; also for empty cells
    NUMBER = 1
    """The shortest decimal form of the same number: 5, 0.1, -12.5, 1e-07. From 1e15 on: all digits of a whole number
    that is exact, or an exponent (1.5e+16) if the program that wrote it may have rounded."""
    DATE = 2  # 2026-01-31
    DATETIME = 3  # 2026-01-31T10:00:00, with a fraction if it has one
    TIME = 4  # 10:00:00
    BOOL = 5  # true, false
    ERROR = 6  # #DIV/0!, #N/A, …
    FORMULA = 7  # a formula that was never computed: its text


@dataclass(frozen=True, slots=True)
class HeadRow:
    """One of the first rows of a file, for finding the header."""

    row: int
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that could not be read; the rest of the file is still imported."""

    row: int
    code: str  # stable: unclosed_quote, too_many_cells, bad_encoding, …
    reason: str  # for the user, with the line number if that helps
    cells: tuple[str, ...] = ()  # the cells that could be read, shortened


@dataclass(slots=True)
class Batch:
    """Some rows in file order, and the bad records among them."""

    frame: pl.DataFrame
    bad: list[BadRecord] = field(default_factory=list)
    done: float = 0.0  # fraction of the file read so far, 0 to 1
    counted: Counter[str] = field(default_factory=Counter)  # by code: further bad records that are not in `bad`


class Source(Protocol):
    """An open file."""

    typed: bool
    about: dict[str, Any]  # detected properties: encoding, delimiter, sheet, …
    notices: list[str]  # hints for the user that are not errors

    def head(self, limit: int) -> list[HeadRow]:
        """Return the first rows without blank ones."""

    def batches(self, header_row: int, width: int) -> Iterator[Batch]:
        """Yield the rows below the header without blank ones, `width` cells each, in bounded memory; call it once."""
