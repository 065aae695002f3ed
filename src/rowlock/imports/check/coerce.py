"""The rules for single cells: convert one cell to one value, before pydantic sees it.

`columns.py` has the same rules for whole columns; a property test checks that both give the same verdict and value.
"""

from __future__ import annotations

import json
import re
import uuid
from functools import lru_cache
from typing import Any

from rowlock.imports.check.numbers import read_decimal, read_float, read_integer
from rowlock.imports.check.reasons import BadCell
from rowlock.imports.check.times import read_date, read_datetime, read_time
from rowlock.imports.fields import Field
from rowlock.imports.formats import Formats
from rowlock.imports.normalize import normal_text
from rowlock.imports.read.source import CellKind
from rowlock.storage.tables import Kind

BLANKS = " \t\n\x0b\x0c\r\x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
"""White space as Unicode and Polars define it; Python's strip() also removes four control characters."""

ROUNDED = "e+"
"""Marks the text of a typed number from 1e15 on that may have been rounded before it was saved."""

UUID_PATTERN = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_UUID = re.compile(f"{UUID_PATTERN}|[0-9a-fA-F]{{32}}")
_PLAIN = Formats()
_NUMBERS = (Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT)
_TYPED: dict[Kind, tuple[CellKind, ...]] = {
    Kind.INTEGER: (CellKind.NUMBER,),
    Kind.DECIMAL: (CellKind.NUMBER,),
    Kind.FLOAT: (CellKind.NUMBER,),
    Kind.BOOLEAN: (CellKind.BOOL, CellKind.NUMBER),
    Kind.DATE: (CellKind.DATE, CellKind.DATETIME, CellKind.NUMBER),
    Kind.DATETIME: (CellKind.DATE, CellKind.DATETIME, CellKind.NUMBER),
    Kind.TIME: (CellKind.TIME,),
}
"""The typed cells that fields of each kind accept besides text; fields of other kinds accept the text of any cell."""
_CELL_WORDS = {
    CellKind.NUMBER: "a number",
    CellKind.DATE: "a date",
    CellKind.DATETIME: "a date with a time",
    CellKind.TIME: "a time",
    CellKind.BOOL: "true or false",
}
_REFUSED = {
    Kind.INTEGER: ("not_an_integer", "a whole number"),
    Kind.DECIMAL: ("not_a_number", "a number"),
    Kind.FLOAT: ("not_a_number", "a number"),
    Kind.BOOLEAN: ("not_a_yes_no", "yes or no"),
    Kind.DATE: ("not_a_date", "a date"),
    Kind.DATETIME: ("not_a_datetime", "a date with a time"),
    Kind.TIME: ("not_a_time", "a time"),
}


def coerce(field: Field, text: str, cell: CellKind = CellKind.TEXT) -> Any:
    """Return the value of a cell for its field, None if it is empty; raises BadCell if it does not fit."""
    if cell is CellKind.ERROR:
        raise BadCell("cell_error", "contains a spreadsheet error: correct the formula")
    if cell is CellKind.FORMULA:
        raise BadCell("no_value", "formula without a value: open the file in a spreadsheet program and save it")
    if "\x00" in text or "\ufffd" in text:
        what = "a NUL character" if "\x00" in text else "damaged characters (\ufffd)"
        raise BadCell("bad_text", f"contains {what}: enter the text again, or save the file as UTF-8")
    if field.normal:
        text = normal_text(text)
    if field.formats.strip:
        text = text.strip(BLANKS)
    if not text or text in field.formats.blank_words:
        return None
    if cell is CellKind.NUMBER and ROUNDED in text and field.kind is not Kind.FLOAT:
        raise BadCell(
            "rounded",
            "more than 15 digits, which spreadsheet programs round: format the column as text and enter it again",
        )
    if field.raw:
        return text
    if field.container:
        return _json(text)
    formats = formats_for(field, cell)
    if formats is None:
        code, what = _REFUSED[field.kind]
        raise BadCell(code, f"must be {what}: the cell contains {_CELL_WORDS[cell]}")
    return _READ[field.kind](text, formats, cell)


def formats_for(field: Field, cell: CellKind) -> Formats | None:
    """Return the formats to read a cell with, None if its type does not fit; Rowlock wrote the text of a typed cell."""
    if cell is CellKind.TEXT or field.kind not in _TYPED:
        return field.formats
    if cell not in _TYPED[field.kind]:
        return None
    if field.kind in _NUMBERS or cell is not CellKind.NUMBER:
        return _PLAIN
    return field.formats


def _text(text: str, formats: Formats, cell: CellKind) -> str:
    return text


def _integer(text: str, formats: Formats, cell: CellKind) -> int:
    return read_integer(text, formats, exponent=cell is CellKind.NUMBER)


def _decimal(text: str, formats: Formats, cell: CellKind) -> Any:
    return read_decimal(text, formats, sheet=cell is CellKind.NUMBER)


def _float(text: str, formats: Formats, cell: CellKind) -> float:
    return read_float(text, formats)


def _boolean(text: str, formats: Formats, cell: CellKind) -> bool:
    yes, no = _words(formats.true_words), _words(formats.false_words)
    word = text.casefold()
    if word in yes:
        return True
    if word in no:
        return False
    words = ", ".join((*formats.true_words, *formats.false_words))
    raise BadCell("not_a_yes_no", f"must be one of {words}")


@lru_cache(maxsize=256)
def _words(words: tuple[str, ...]) -> frozenset[str]:
    return frozenset(word.casefold() for word in words)


def _date(text: str, formats: Formats, cell: CellKind) -> Any:
    return read_date(text, formats, serial=formats.excel_serials)


def _datetime(text: str, formats: Formats, cell: CellKind) -> Any:
    return read_datetime(text, formats, serial=formats.excel_serials)


def _time(text: str, formats: Formats, cell: CellKind) -> Any:
    return read_time(text)


def _uuid(text: str, formats: Formats, cell: CellKind) -> uuid.UUID:
    if not _UUID.fullmatch(text):
        raise BadCell("not_a_uuid", "not a valid UUID")
    return uuid.UUID(text)


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadCell("not_json", "not valid JSON") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


_READ: dict[Kind, Any] = {
    Kind.TEXT: _text,
    Kind.INTEGER: _integer,
    Kind.DECIMAL: _decimal,
    Kind.FLOAT: _float,
    Kind.BOOLEAN: _boolean,
    Kind.DATE: _date,
    Kind.DATETIME: _datetime,
    Kind.TIME: _time,
    Kind.UUID: _uuid,
    Kind.JSON: _text,
}
