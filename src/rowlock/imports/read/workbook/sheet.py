"""Reads a sheet's rows from any well-formed XML with expat; the fast reader must return the same rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from rowlock.imports.read.workbook.errors import damaged
from rowlock.imports.read.workbook.guarded import GuardedParser

ROWS_MAX = 1_048_576
COLUMNS_MAX = 16_384
ROW_CHARS_MAX = 16 << 20
PIECES_MAX = 100_000  # elements of one cell: more than a cell has characters
FORMULA_CHARS = 200
TRUE = frozenset({"1", "true", "on"})

_REFERENCE = re.compile(r"([A-Za-z]{1,3})([1-9][0-9]{0,6})")


class Form(NamedTuple):
    """How to interpret a cell's text."""

    type: str  # n, s, str, b, e, d as in the file; f: a formula without a value
    style: int


class RawCell(NamedTuple):
    """A cell that is not empty, as written in the file."""

    column: int
    form: Form
    text: str


@dataclass(slots=True)
class RawRow:
    """A row as written in the file; a fault (code, reason) makes it a bad record."""

    number: int
    hidden: bool
    cells: list[RawCell] = field(default_factory=list)
    fault: tuple[str, str] | None = None


class RowNumbers:
    """Assigns each row its number in the sheet and refuses duplicates."""

    def __init__(self) -> None:
        self.last = 0
        self._taken = bytearray(ROWS_MAX + 1)

    def peek(self, written: str | None) -> int:
        """Return a row's number: as written in it, else the previous row's plus 1. Raises FileRefused if invalid."""
        if written is None:
            number = self.last + 1
        else:
            digits = written.strip()
            number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
        if not 0 < number <= ROWS_MAX:
            raise damaged(f"it has a row with the number {str(written)[:20] if written else number}")
        self.last = number
        return number

    def take(self, number: int) -> None:
        """Note that the row was read; raises FileRefused if it was read before."""
        if self._taken[number]:
            raise damaged(f"its row {number} occurs twice")
        self._taken[number] = 1
        self.last = number


class SheetParser:
    """Parses the XML that is fed to `parser` and passes each row of the sheet's data to `on_row`."""

    def __init__(
        self,
        part: str,
        number_of: Callable[[str | None], int],
        on_row: Callable[[RawRow], None],
        cell_chars_max: int,
    ) -> None:
        self.parser = GuardedParser(part, self._start, self._end, self._text)
        self.column = -1  # of the last cell, empty or not
        self._number_of, self._on_row = number_of, on_row
        self._cell_chars_max = cell_chars_max
        self._path: list[str] = []
        self._row: RawRow | None = None
        self._columns: set[int] = set()
        self._row_chars = 0
        self._attributes: dict[str, str] = {}
        self._texts: dict[str, list[str]] = {}
        self._into: list[str] | None = None
        self._chars = 0
        self._pieces = 0

    @property
    def in_data(self) -> bool:
        """Whether the sheet's data has just begun, in a document without a prefix."""
        return self._path == ["worksheet", "sheetData"] and not self.parser.prefix

    @property
    def cell_count(self) -> int:
        """How many cells the last row had, empty ones too."""
        return len(self._columns)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        path = self._path
        path.append(name)
        depth = len(path)
        if depth == 4:
            if name == "c" and self._row is not None:
                self._attributes, self._texts, self._chars, self._pieces = attributes, {}, 0, 0
        elif depth == 3:
            if name == "row" and path[1] == "sheetData":
                hidden = attributes.get("hidden", "0") in TRUE
                self._row = RawRow(self._number_of(attributes.get("r")), hidden)
                self._columns, self._row_chars, self.column = set(), 0, -1
        elif self._row is not None and path[3] == "c":
            self._into = None
            self._pieces += 1
            if self._pieces > PIECES_MAX:
                raise damaged(f"row {self._row.number} has a cell of more than {PIECES_MAX:,} pieces")
            if depth == 5 and name in ("v", "f", "is"):
                into = self._texts.setdefault(name, [])
                self._into = None if name == "is" else into
            elif name == "t" and path[4:] in (["is", "t"], ["is", "r", "t"]):
                self._into = self._texts["is"]

    def _end(self, name: str) -> None:
        path = self._path
        path.pop()
        depth = len(path) + 1
        self._into = None
        if self._row is None:
            return
        if depth == 4 and name == "c":
            self._cell(self._row)
        elif depth == 3:
            self._on_row(self._row)
            self._row = None

    def _text(self, text: str) -> None:
        if self._into is None or self._chars > self._cell_chars_max:
            return
        self._chars += len(text)
        self._row_chars += len(text)
        self._into.append(text[: self._cell_chars_max + 1])

    def _cell(self, row: RawRow) -> None:
        column = self._column(row)
        self.column = column
        if column in self._columns:
            row.fault = ("damaged_cell", f"Column {letters(column)} occurs twice in this row.")
            return
        if row.fault is not None and len(self._columns) >= COLUMNS_MAX:
            return
        self._columns.add(column)
        cell = self._content(column)
        if cell is None:
            return
        if self._row_chars > ROW_CHARS_MAX:
            row.fault = ("row_too_long", f"The row contains more than {ROW_CHARS_MAX:,} characters.")
            return
        row.cells.append(cell)

    def _column(self, row: RawRow) -> int:
        written = self._attributes.get("r")
        if written is None:
            column = self.column + 1
        else:
            found = _REFERENCE.fullmatch(written)
            column = -1 if found is None or int(found[2]) != row.number else column_of(found[1])
            if column < 0:
                row.fault = ("damaged_cell", f"A cell of this row has the invalid reference {written[:20]!r}.")
                return self.column + 1
        if column >= COLUMNS_MAX:
            row.fault = ("damaged_cell", f"The row has a cell beyond column {letters(COLUMNS_MAX - 1)}.")
        return column

    def _content(self, column: int) -> RawCell | None:
        kind = self._attributes.get("t", "n")
        style = self._attributes.get("s", "0")
        number = int(style) if style.isascii() and style.isdigit() and len(style) < 10 else 0
        texts = self._texts
        if kind == "inlineStr" or ("is" in texts and "v" not in texts):
            text = "".join(texts.get("is") or texts.get("v") or [])
            return RawCell(column, Form("str", number), text) if text else None
        text = "".join(texts.get("v", ()))
        if text:
            return RawCell(column, Form(kind, number), text)
        if "f" in texts and not (kind == "str" and "v" in texts):
            return RawCell(column, Form("f", 0), "".join(texts["f"])[:FORMULA_CHARS])
        return None


def column_of(name: str) -> int:
    """Return the index of a column: A is 0, Z is 25, AA is 26."""
    number = 0
    for letter in name.upper():
        number = number * 26 + ord(letter) - 64
    return number - 1


def letters(column: int) -> str:
    """Return the column's name in the sheet: 0 is A."""
    name = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        name = chr(65 + rest) + name
    return name
