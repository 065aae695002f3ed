"""The seam between the readers and the planner: rows of cells, whatever the file was.

A frame of cells has a column `row` (UInt32, the number that the user sees beside the row) and one of text per column
of the header: c0, c1, … An empty cell is an empty text. A typed source, such as a workbook, adds k0, k1, … (UInt8):
what kind of cell each was.
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
    """What a cell of a typed source was, and how its text is written."""

    TEXT = 0  # as it is; an empty one too
    NUMBER = 1  # shortest decimal form that is the same number: 5, 0.1, -12.5, 1e+300
    DATE = 2  # 2026-01-31
    DATETIME = 3  # 2026-01-31T10:00:00, with a fraction where there is one
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
    """A record that could not be read; it costs itself, not the file."""

    row: int
    code: str  # stable: unclosed_quote, too_many_cells, bad_encoding, …
    reason: str  # in plain words, with the line where that helps
    cells: tuple[str, ...] = ()  # what could be read of it, cut


@dataclass(slots=True)
class Batch:
    """Some rows, in the file's order, and the bad records among them."""

    frame: pl.DataFrame
    bad: list[BadRecord] = field(default_factory=list)
    done: float = 0.0  # the part of the file that was read so far, 0 to 1
    counted: Counter[str] = field(default_factory=Counter)  # by code: further bad records, which are not told


class Source(Protocol):
    """An open file."""

    typed: bool
    about: dict[str, Any]  # what was found: encoding, delimiter, sheet, …
    notices: list[str]  # what the user should know although nothing is wrong

    def head(self, limit: int) -> list[HeadRow]:
        """The first rows, blank ones left out."""

    def batches(self, header_row: int, width: int) -> Iterator[Batch]:
        """The rows below the header row, blank ones left out, `width` cells each; bounded memory, once."""
