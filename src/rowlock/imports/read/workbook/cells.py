"""Converts the content of cells to texts and kinds, a column at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime, time

import polars as pl

from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.source import CellKind
from rowlock.imports.read.workbook.moments import moments
from rowlock.imports.read.workbook.numbers import digits_kept, number_text, plain_numbers, shortened
from rowlock.imports.read.workbook.shared import SharedTexts
from rowlock.imports.read.workbook.sheet import FORMULA_CHARS, Form
from rowlock.imports.read.workbook.styles import Show
from rowlock.imports.read.workbook.text import plain_text

_ISO = re.compile(r"(?:(\d{4}-\d{2}-\d{2})(?:T|$))?(\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)?Z?", re.ASCII)
_BOOLS = {"1": "true", "0": "false", "true": "true", "false": "false"}


@dataclass(slots=True)
class Cells:
    """Texts with their kinds; a fault (place, code, reason) makes its row a bad record."""

    texts: pl.Series
    kinds: pl.Series | CellKind
    faults: list[tuple[int, str, str]] = field(default_factory=list)


class CellReader:
    """Resolves what a workbook's cells refer to: shared texts, styles, the epoch."""

    def __init__(self, shared: SharedTexts, styles: list[Show], since_1904: bool, limits: ReadLimits) -> None:
        self._shared = shared
        self._styles = styles
        self._since_1904 = since_1904
        self._chars_max = limits.cell_chars_max

    def read(self, form: Form, written: list[str]) -> Cells:
        """Convert cells of one form, in their order."""
        match form.type:
            case "n":
                show = self._styles[form.style] if form.style < len(self._styles) else Show.NUMBER
                cells = (
                    _numbers(written) if show is Show.NUMBER else moments_or_numbers(written, show, self._since_1904)
                )
            case "s":
                return self._shared_texts(written)
            case "str":
                cells = _texts(written)
            case "f":
                cells = Cells(_series([f"={text}"[:FORMULA_CHARS] for text in written]), CellKind.FORMULA)
            case "e":
                cells = Cells(_series([text.strip() for text in written]), CellKind.ERROR)
            case "b":
                cells = _bools(written)
            case "d":
                show = self._styles[form.style] if form.style < len(self._styles) else Show.NUMBER
                cells = _iso(written, show)
            case other:
                cells = _broken(written, f"has the unknown type {other[:20]!r}")
        return self._bounded(cells)

    def _bounded(self, cells: Cells) -> Cells:
        if (cells.texts.str.len_bytes() > self._chars_max).any():
            long = cells.texts.str.len_chars() > self._chars_max
            cells.faults += [(at, *self._too_long()) for at in long.arg_true()]
            cells.texts = _cut(cells.texts, long)
        return cells

    def _shared_texts(self, written: list[str]) -> Cells:
        places = _series(written).str.strip_chars().cast(pl.UInt32, strict=False)
        cells = Cells(places.cast(pl.String), CellKind.TEXT)
        missing = places.is_null() | (places >= len(self._shared.texts))
        if missing.any():
            at = missing.arg_true().to_list()
            cells.faults = [
                (i, "damaged_cell", f"refers to the shared text {written[i][:20]!r}, which does not exist") for i in at
            ]
            places = places.scatter(at, None)
        cells.texts = self._shared.texts.gather(places).fill_null("")
        if self._shared.too_long:
            long = places.is_in(list(self._shared.too_long)).fill_null(False)
            cells.faults += [(at, *self._too_long()) for at in long.arg_true()]
        return cells

    def _too_long(self) -> tuple[str, str]:
        return "cell_too_long", f"has more than {self._chars_max:,} characters"


def _series(texts: list[str]) -> pl.Series:
    return pl.Series(texts, dtype=pl.String)


def _cut(texts: pl.Series, long: pl.Series) -> pl.Series:
    return pl.select(pl.when(long).then(texts.str.head(200)).otherwise(texts)).to_series()


def _texts(written: list[str]) -> Cells:
    texts = _series(written)
    if texts.str.contains("_x", literal=True).any():
        texts = _series([plain_text(text) for text in written])
    return Cells(texts, CellKind.TEXT)


def _numbers(written: list[str]) -> Cells:
    texts = _series(written)
    plain = plain_numbers(texts)
    if plain.all():
        return Cells(texts, CellKind.NUMBER)
    short = shortened(texts)
    return _one_by_one(written, short.is_null().arg_true().to_list(), short, None)


def moments_or_numbers(written: list[str], show: Show, since_1904: bool) -> Cells:
    """Convert serial numbers to dates and times; others stay numbers."""
    texts, kinds, others = moments(_series(written), show, since_1904)
    return _one_by_one(written, others, texts, kinds) if others else Cells(texts, kinds)


def _one_by_one(written: list[str], places: list[int], texts: pl.Series, kinds: pl.Series | None) -> Cells:
    """Convert the cells at `places` one by one: blanks, numbers not in their shortest form, and invalid numbers."""
    some: list[str] = []
    some_kinds: list[int] = []
    faults: list[tuple[int, str, str]] = []
    kept = bool(places) and digits_kept(_series(written))
    for at in places:
        text = number_text(written[at], kept=kept)
        if text is None:
            faults.append((at, "damaged_cell", f"must contain a number but contains {written[at][:20]!r}"))
        some.append(text or "")
        some_kinds.append(CellKind.NUMBER if text else CellKind.TEXT)
    if kinds is None:
        kinds = pl.repeat(int(CellKind.NUMBER), len(written), dtype=pl.UInt8, eager=True)
    if len(some) == len(written):
        return Cells(_series(some), pl.Series(some_kinds, dtype=pl.UInt8), faults)
    # Polars cannot set texts in place: the new ones are appended and gathered.
    where = pl.int_range(len(written), dtype=pl.UInt32, eager=True)
    where = where.scatter(places, pl.int_range(len(written), len(written) + len(some), dtype=pl.UInt32, eager=True))
    merged = pl.concat([texts, _series(some)]).gather(where)
    return Cells(merged, kinds.scatter(places, pl.Series(some_kinds, dtype=pl.UInt8)), faults)


def _bools(written: list[str]) -> Cells:
    texts = [_BOOLS.get(text.strip().lower()) for text in written]
    faults = [
        (at, "damaged_cell", f"must contain true or false but contains {written[at][:20]!r}")
        for at, text in enumerate(texts)
        if text is None
    ]
    return Cells(_series([text or "" for text in texts]), CellKind.BOOL, faults)


def _broken(written: list[str], reason: str) -> Cells:
    faults = [(at, "damaged_cell", reason) for at in range(len(written))]
    return Cells(_series(written), CellKind.TEXT, faults)


def _iso(written: list[str], show: Show) -> Cells:
    texts: list[str] = []
    kinds: list[int] = []
    faults: list[tuple[int, str, str]] = []
    for at, value in enumerate(written):
        try:
            text, kind = iso_text(value.strip(), show)
        except ValueError:
            text, kind = "", CellKind.TEXT
            faults.append((at, "damaged_cell", f"must contain a date but contains {value[:20]!r}"))
        texts.append(text)
        kinds.append(kind)
    return Cells(_series(texts), pl.Series(kinds, dtype=pl.UInt8), faults)


def iso_text(written: str, show: Show) -> tuple[str, CellKind]:
    """Validate an ISO date, time or both; midnight is left out if the cell shows only a date. Raises ValueError."""
    found = _ISO.fullmatch(written.removeprefix("T"))
    if found is None or not (found[1] or found[2]):
        raise ValueError(written)
    day = date.fromisoformat(found[1]) if found[1] else None
    clock = time.fromisoformat(_micros(found[2])) if found[2] else None
    if day is None:
        assert clock is not None
        return _trimmed(clock.isoformat()), CellKind.TIME
    if clock is None or (show is Show.DATE and clock == time(0)):
        return day.isoformat(), CellKind.DATE
    return _trimmed(datetime.combine(day, clock).isoformat()), CellKind.DATETIME


def _micros(clock: str) -> str:
    whole, point, fraction = clock.partition(".")
    return f"{whole}.{fraction[:6]:0<6}" if point else whole


def _trimmed(text: str) -> str:
    return text.removesuffix("000") if "." in text else text
