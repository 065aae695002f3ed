"""Collects rows into frames: groups cells by form, converts them a column at a time, restores the row order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.source import ROW, BadRecord, Batch, CellKind
from rowlock.imports.read.workbook.cells import CellReader
from rowlock.imports.read.workbook.rows import Outline
from rowlock.imports.read.workbook.sheet import ROW_CHARS_MAX, Form, RawRow, letters

BATCH_ROWS = 20_000
SHOWN_CHARS = 100
SHOWN_CELLS = 100


@dataclass(slots=True)
class _Column:
    """The cells of one column so far: their places in the batch, texts and kinds."""

    places: list[pl.Series] = field(default_factory=list)
    texts: list[pl.Series] = field(default_factory=list)
    kinds: list[pl.Series] = field(default_factory=list)


class RowBatch:
    """Collects rows until it is full; `take` returns them as a frame and empties it."""

    def __init__(self, reader: CellReader, limits: ReadLimits, rows_max: int = BATCH_ROWS) -> None:
        self.hidden = 0
        self._reader = reader
        self._bytes_max = limits.block_bytes
        self._rows_max = rows_max
        self._clear()

    def _clear(self) -> None:
        self._numbers: list[int] = []
        self._chars = 0
        self._outlines: list[Outline] = []
        self._loose: dict[tuple[int, Form], tuple[list[int], list[str]]] = {}
        self._most_cells = 0
        self._faults: dict[int, tuple[str, str]] = {}

    @property
    def full(self) -> bool:
        """Whether it should be emptied before it takes more."""
        return len(self._numbers) >= self._rows_max or self._chars >= self._bytes_max

    @property
    def columns(self) -> int:
        """The number of columns up to the last filled one."""
        known = [column for outline in self._outlines for column, _ in outline.cells]
        return max([*known, *(column for column, _ in self._loose)], default=-1) + 1

    @property
    def widest(self) -> int:
        """The largest number of cells in one row."""
        return max([self._most_cells, *(len(outline.cells) for outline in self._outlines)])

    def add_alike(self, number: int, outline: Outline, texts: Sequence[str], chars: int) -> None:
        """Add a row of a known outline."""
        self.hidden += outline.hidden
        if not outline.cells:
            return
        if not outline.rows:
            self._outlines.append(outline)
        outline.rows.append(len(self._numbers))
        outline.texts.extend(texts)
        self._numbers.append(number)
        self._chars += chars

    def add(self, row: RawRow) -> None:
        """Add any row."""
        self.hidden += row.hidden
        if not row.cells and row.fault is None:
            return
        self._most_cells = max(self._most_cells, len(row.cells))
        place = len(self._numbers)
        self._numbers.append(row.number)
        if row.fault is not None:
            self._faults[place] = row.fault
        for cell in row.cells:
            places, texts = self._loose.setdefault((cell.column, cell.form), ([], []))
            places.append(place)
            texts.append(cell.text)
            self._chars += len(cell.text) + 32

    def take(self, width: int, *, faults: bool = True) -> tuple[pl.DataFrame, list[BadRecord]]:
        """Return the rows as a frame of `width` columns without blank ones, and the bad records.

        Without `faults`, bad rows stay in the frame.
        """
        numbers = pl.Series(ROW, self._numbers, dtype=pl.UInt32)
        columns = self._read(width)
        series = [numbers]
        kinds = []
        for at in range(width):
            text, kind = _in_place(columns.get(at), len(numbers))
            series.append(text.alias(f"c{at}"))
            kinds.append(kind.alias(f"k{at}"))
        found = self._faults if faults else {}
        frame = pl.DataFrame(series + kinds)
        self._clear()
        bad = [_bad(frame, place, *found[place], width) for place in sorted(found)]
        texts = pl.col("^c\\d+$") if width else pl.lit("")
        keep = pl.any_horizontal(texts.str.strip_chars() != "")
        if found:
            keep = keep & ~pl.int_range(pl.len()).is_in(list(found))
        return frame.filter(keep), bad

    def _read(self, width: int) -> dict[int, _Column]:
        gathered = self._loose
        for outline in self._outlines:
            step = len(outline.cells)
            for at, cell in enumerate(outline.cells):
                into = gathered.setdefault(cell, ([], []))
                into[0].extend(outline.rows)
                into[1].extend(outline.texts[at::step])
            outline.rows, outline.texts = [], []
        columns: dict[int, _Column] = {}
        for (at, form), (places, written) in gathered.items():
            cells = self._reader.read(form, written)
            for place, code, reason in cells.faults:
                row = self._numbers[places[place]]
                self._faults.setdefault(places[place], (code, f"The cell {letters(at)}{row} {reason}."))
            if at >= width:
                beyond = (cells.texts.str.strip_chars() != "").arg_true()
                for place in beyond:
                    row = self._numbers[places[place]]
                    reason = (
                        f"The cell {letters(at)}{row} has a value, but the header ends before column {letters(at)}."
                    )
                    self._faults.setdefault(places[place], ("too_many_cells", reason))
                continue
            column = columns.setdefault(at, _Column())
            column.places.append(pl.Series(places, dtype=pl.UInt32))
            column.texts.append(cells.texts)
            kinds = cells.kinds
            if isinstance(kinds, CellKind):
                kinds = pl.repeat(int(kinds), len(places), dtype=pl.UInt8, eager=True)
            column.kinds.append(kinds)
        return columns


def _in_place(column: _Column | None, height: int) -> tuple[pl.Series, pl.Series]:
    """Return the column's texts and kinds in row order; missing cells are empty."""
    if column is None:
        return (
            pl.repeat("", height, dtype=pl.String, eager=True),
            pl.repeat(int(CellKind.TEXT), height, dtype=pl.UInt8, eager=True),
        )
    if len(column.places) == 1 and len(column.places[0]) == height and column.places[0].is_sorted():
        text, kind = column.texts[0], column.kinds[0]
    else:
        places = pl.concat(column.places)
        count = len(places)
        where = pl.repeat(count, height, dtype=pl.UInt32, eager=True)
        where = where.scatter(places, pl.int_range(count, dtype=pl.UInt32, eager=True))
        text = pl.concat([*column.texts, pl.Series([""], dtype=pl.String)]).gather(where)
        kind = pl.concat([*column.kinds, pl.Series([int(CellKind.TEXT)], dtype=pl.UInt8)]).gather(where)
    return text, kind


def _bad(frame: pl.DataFrame, place: int, code: str, reason: str, width: int) -> BadRecord:
    values = frame.row(place)
    cells = tuple(str(text)[:SHOWN_CHARS] for text in values[1 : 1 + min(width, SHOWN_CELLS)])
    return BadRecord(row=values[0], code=code, reason=reason, cells=cells)


def split(frame: pl.DataFrame, bad: list[BadRecord], width: int, bytes_max: int) -> list[Batch]:
    """Divide a frame into batches of bounded text: cells that share one long text grow when each gets a copy.

    Rows of more than ROW_CHARS_MAX bytes become bad records.
    """
    texts = pl.sum_horizontal(pl.col(f"c{at}").str.len_bytes() for at in range(width)).cast(pl.UInt64)
    total = int(frame.select(texts.sum()).item() or 0)
    if total <= bytes_max:
        return [Batch(frame, bad)]
    frame = frame.with_columns(bytes=texts)
    for place in (frame["bytes"] > ROW_CHARS_MAX).arg_true():
        bad.append(
            _bad(frame, place, "row_too_long", f"The row contains more than {ROW_CHARS_MAX:,} characters.", width)
        )
    frame = frame.filter(pl.col("bytes") <= ROW_CHARS_MAX).with_columns(part=pl.col("bytes").cum_sum() // bytes_max)
    frames = frame.partition_by("part", maintain_order=True) or [frame]
    batches = [Batch(some.drop("bytes", "part")) for some in frames]
    batches[0].bad = bad
    return batches
