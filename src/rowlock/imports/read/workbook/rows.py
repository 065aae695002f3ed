"""The fast row reader: a row with a known outline takes one split and one dictionary lookup.

A row's *outline* is its text without the content between its tags and without its row number; a sheet of any length
has few. Expat parses each outline once, cell by cell, so the fast reader and expat cannot differ. Expat reads all rows
that have no clear outline.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import Any

from rowlock.errors import FileRefused
from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.workbook.sheet import Form, RawRow, RowNumbers, SheetParser
from rowlock.imports.read.workbook.text import Unreadable, unescaped

NUMBER_MARK = "\x01"  # replaces the row's number; neither mark can be in XML
TEXT_MARK = "\x02"  # replaces a text
OUTLINES_MAX = 20_000
CELLS_MAX = 50_000
PIECE_CHARS_MAX = 4 << 20
SLOTS_MAX = 1_000
_FIRST_SLOT = 0xE000

_texts_and_tags = re.compile(">([^<]+)").split
_row_number = re.compile(r'\s*<row (?:[^<>]*? )??r="([1-9][0-9]{0,6})"').match
_marked = re.compile(f' ?r="[A-Z]{{0,3}}{NUMBER_MARK}"').findall


class Outline:
    """The cells of all rows with the same outline, and the rows of the batch that have it."""

    __slots__ = ("cells", "hidden", "pick", "rows", "texts")

    def __init__(
        self, hidden: bool, cells: tuple[tuple[int, Form], ...], slots: tuple[int, ...], slots_all: int
    ) -> None:
        self.hidden = hidden
        self.cells = cells
        self.rows: list[int] = []  # places in the batch
        self.texts: list[str] = []  # of the cells of these rows, one row after the other
        self.pick: itemgetter[Any] | None = None
        if len(slots) <= 1:
            start = slots[0] if slots else 0
            self.pick = itemgetter(slice(start, start + len(slots)))
        elif slots != tuple(range(slots_all)):
            self.pick = itemgetter(*slots)


class _CellOutline:
    __slots__ = ("column", "form", "slot", "slots")

    def __init__(self, column: int | None, form: Form | None, slot: int, slots: int) -> None:
        self.column = column  # None: the one after the previous cell's
        self.form = form  # None: an empty cell
        self.slot = slot
        self.slots = slots


class Outlines:
    """The outlines of one sheet, learned as they occur."""

    def __init__(self, part: str, limits: ReadLimits) -> None:
        self._part = part
        self._limits = limits
        self._rows: dict[str, Outline | None] = {}
        self._cells: dict[str, _CellOutline | None] = {}
        self._heads: dict[str, bool | None] = {}
        self._column = 0  # of the cell that was probed last

    def read(self, piece: str, numbers: RowNumbers) -> tuple[int, Outline, list[str]] | None:
        """Return the number, outline and texts of a row; None if expat must parse it."""
        if len(piece) > PIECE_CHARS_MAX:
            return None
        found = _row_number(piece)
        written = found[1] if found is not None else str(numbers.last + 1)
        parts = _texts_and_tags(piece)
        key = f">{TEXT_MARK}".join(parts[::2]).replace(f'{written}"', f'{NUMBER_MARK}"')
        try:
            outline = self._rows[key]
        except KeyError:
            outline = self._learn(key)
        if outline is None:
            return None
        texts = parts[1::2]
        if "&" in piece:  # also in texts that are not used: expat refuses a bad reference anywhere
            try:
                texts = [unescaped(text) if "&" in text else text for text in texts]
            except Unreadable:
                return None
        if outline.pick is not None:
            texts = outline.pick(texts)
        number = int(written)
        return (number, outline, texts) if number <= 1_048_576 else None

    def parse(self, piece: str, numbers: RowNumbers) -> list[RawRow] | None:
        """Parse the row with expat; returns None if its text alone is not well-formed."""
        rows: list[RawRow] = []
        last = numbers.last
        try:
            self._expat(f"{piece}</row>", numbers.peek, rows)
        except FileRefused:
            return None
        finally:
            numbers.last = last
        return rows

    def _expat(self, text: str, number_of: Any, rows: list[RawRow]) -> SheetParser:
        sheet = SheetParser(
            self._part,
            number_of,
            rows.append,
            self._limits.cell_chars_max,
        )
        sheet.parser.feed(f"<worksheet><sheetData>{text}</sheetData></worksheet>", final=True)
        return sheet

    def _learn(self, key: str) -> Outline | None:
        if len(self._rows) >= OUTLINES_MAX:
            self._rows.clear()
        outline = self._rows[key] = self._compose(key)
        return outline

    def _compose(self, key: str) -> Outline | None:
        head, *cells = key.split("<c ")
        if head not in self._heads:
            if len(self._heads) >= OUTLINES_MAX:
                self._heads.clear()
            self._heads[head] = self._learn_head(head)
        hidden = self._heads[head]
        if hidden is None:
            return None
        at = head.count(TEXT_MARK)
        column = -1
        found: dict[int, Form] = {}
        seen: set[int] = set()
        slots: list[int] = []
        for text in cells:
            if text not in self._cells:
                if len(self._cells) >= CELLS_MAX:
                    self._cells.clear()
                self._cells[text] = self._learn_cell(text)
            cell = self._cells[text]
            if cell is None:
                return None
            column = column + 1 if cell.column is None else cell.column
            if column in seen or column >= 16_384:
                return None
            seen.add(column)
            if cell.form is not None:
                found[column] = cell.form
                slots.append(at + cell.slot)
            at += cell.slots
        return Outline(hidden, tuple(found.items()), tuple(slots), at)

    def _learn_head(self, head: str) -> bool | None:
        # A quoted r="…" in an attribute of single quotes would be mistaken for the row's number.
        row = None if "'" in head else self._probe(head, cells=0)
        return None if row is None else row.hidden

    def _learn_cell(self, text: str) -> _CellOutline | None:
        row = self._probe(f'<row r="{NUMBER_MARK}"><c {text}', cells=1)
        if row is None:
            return None
        column = self._column if NUMBER_MARK in text else None
        slots = text.count(TEXT_MARK)
        if not row.cells:
            return _CellOutline(column, None, 0, slots)
        cell = row.cells[0]
        slot = ord(cell.text) - _FIRST_SLOT if len(cell.text) == 1 else -1
        return _CellOutline(column, cell.form, slot, slots) if 0 <= slot < slots else None

    def _probe(self, outline: str, *, cells: int) -> RawRow | None:
        """Parse an outline with expat under two row numbers; returns None unless the results agree."""
        if outline.count(TEXT_MARK) > SLOTS_MAX or outline.count(NUMBER_MARK) != len(_marked(outline)):
            return None
        first, *others = outline.split(TEXT_MARK)
        text = first + "".join(chr(_FIRST_SLOT + slot) + other for slot, other in enumerate(others))
        answers: list[RawRow] = []
        for number in (7, 8):
            rows: list[RawRow] = []
            try:
                sheet = self._expat(text.replace(NUMBER_MARK, str(number)) + "</row>", _expecting(number), rows)
            except FileRefused:
                return None
            if len(rows) != 1 or rows[0].fault is not None or sheet.cell_count != cells:
                return None
            self._column = sheet.column
            answers += rows
        return answers[0] if answers[0].cells == answers[1].cells else None


def _expecting(number: int) -> Any:
    def number_of(written: str | None) -> int:
        if written not in (None, str(number)):
            raise ValueError(written)
        return number

    return number_of
