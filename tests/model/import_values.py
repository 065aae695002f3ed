"""Cells with their values, and values in a form that can be compared with those of tables."""

from __future__ import annotations

import datetime as dt
import json
import struct
import unicodedata
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from bson.binary import Binary
from bson.decimal128 import Decimal128

BAD = "a cell that no row may have"


@dataclass(frozen=True)
class Cell:
    text: str
    value: Any

    @property
    def typed(self) -> Any:
        """What a workbook has for it: numbers and truth as such where a double keeps them."""
        whole = isinstance(self.value, int) and not isinstance(self.value, bool) and abs(self.value) < 10**15
        return self.value if isinstance(self.value, bool) or whole else self.text or None


def _made(*texts: str, read: Any) -> list[Cell]:
    return [Cell(text, read(text)) for text in texts]


def _bad(*texts: str) -> list[Cell]:
    return [Cell(text, BAD) for text in texts]


def _moment(text: str) -> dt.datetime:
    read = dt.datetime.fromisoformat(text)
    return read.replace(tzinfo=dt.UTC) if read.tzinfo is None else read.astimezone(dt.UTC)


def _truth(text: str) -> bool:
    return text == "true"


_WHOLE = (0, 1, -1, 7, 13, 42, 99, 100, 101, 127, 1200, 1250, 32767, 32768, -32769, 2**31 - 1, 2**31)
_HUGE = (2**53, 2**53 + 1, 2**63 - 1, -(2**63), 123456789012345678)
_DECIMALS = (
    *("0", "1", "-1", "12.5", "12.50", "0.1", "99.99", "1234.56", "9999.99", "10000.01", "1200", "1250", "-0.5"),
    *("1.234", "0.12345678901234567890", "12345678901234567890", "9007199254740993", "123456789012345678"),
)
_WORDS = (
    *("a", "A", "b", "moon", "Ann", "red", "blue", "ß", "é", "😀", "日本", "xxxxx", "xxxxxx", "a,b", 'say "hi"'),
    *("007", "7", "7.0", "1e5", "0.10", "-0", "NULL", "null", "0x1A", "a\\nb", "100%", "{}", "'", "1 2"),
)
_UUIDS = (
    "00000000-0000-0000-0000-000000000000",
    "1e500000-0000-4000-8000-0000000000ff",
    "A" * 8 + "-aaaa" * 3 + "-" + "a" * 12,
)
_JSON = ("{}", '{"a": 1}', '{"b": {"c": null}, "a": [1, "x", true]}', '{"n": 9007199254740993}', '{"é": 0.1}')

POOLS: dict[str, list[Cell]] = {
    "text": _made(*_WORDS, read=str),
    "integer": _made(*map(str, _WHOLE * 2 + _HUGE), read=int),
    "decimal": _made(*_DECIMALS, read=Decimal),
    "float": _made("0", "1.5", "-2.25", "0.1", "1e300", "1e-300", "3.4e38", "1e39", "16777217", read=float),
    "boolean": _made("true", "false", read=_truth),
    "date": _made(
        "2026-01-31", "2000-02-29", "1970-01-01", "1899-12-31", "0001-01-01", "9999-12-31", read=dt.date.fromisoformat
    ),
    "datetime": _made(
        *("2026-01-31T12:00:00Z", "2026-01-31 12:00:00.123", "2026-01-31T23:59:59.999999", "1970-01-01T00:00:00"),
        *("2026-01-31T12:00:00+02:00", "1969-12-31T23:59:59.5", "2026-03-29T02:30:00"),
        read=_moment,
    ),
    "time": _made("12:00:00", "00:00:00", "23:59:59.9", "23:59:59.999999", "07:30:00.25", read=dt.time.fromisoformat),
    "uuid": _made(*_UUIDS, read=uuid.UUID),
    "json": _made(*_JSON, read=json.loads),
    "text key": [
        *_made(
            *(f"k{n}" for n in range(40)), "Ann", "ann", "ß", "日本", "007", "7", "7.0", "1e5", "a b", "😀", read=str
        ),
        *(Cell(unicodedata.normalize(form, "é"), "é") for form in ("NFC", "NFD")),
        Cell(" k1 ", "k1"),
    ],
    "integer key": [
        *_made(*map(str, (*range(40), -1, 32767, 32768, 2**31, 2**53 + 1, 2**63 - 1)), read=int),
        Cell("007", 7),
    ],
    "decimal key": _made(
        *("0", "1", "1.0", "1.00", "1.5", "2.25", "-3", "1000", "0.1", "12345.678", *map(str, range(20, 50))),
        read=Decimal,
    ),
    "date key": _made(*(f"2026-01-{day:02}" for day in range(1, 32)), read=dt.date.fromisoformat),
    "uuid key": _made(*(f"{n:08}-0000-4000-8000-000000000000" for n in range(30)), _UUIDS[2], read=uuid.UUID),
    "missing": [
        *(Cell("none", "none"), Cell("77", 77), Cell("77", Decimal(77)), Cell("2025-12-31", dt.date(2025, 12, 31))),
        Cell("ffffffff-0000-4000-8000-000000000000", uuid.UUID("ffffffff-0000-4000-8000-000000000000")),
    ],
}
_BADS: dict[str, list[Cell]] = {
    "integer": _bad("1.5", "abc", "1,000", "--1", "9223372036854775808"),
    "decimal": _bad("12,5", "abc", "1.2.3", "NaN", "Infinity"),
    "float": _bad("1,5", "abc", "nan"),
    "boolean": _bad("maybe", "2"),
    "date": _bad("31.01.2026", "2026-02-30", "2026-13-01"),
    "datetime": _bad("2026-01-31T25:00:00", "soon"),
    "time": _bad("24:01", "noon"),
    "uuid": _bad("xyz", "00000000"),
    "json": _bad("{", "[1]", '"x"'),
}


def pool(kind: str, places: int | None) -> tuple[list[Cell], list[Cell]]:
    """Good cells of a kind, and bad ones; `places` are those that the model allows."""
    good, bad = POOLS[kind], _BADS.get(kind, [])
    if places is None:
        return good, bad
    fits = [cell for cell in good if -cell.value.as_tuple().exponent <= places and abs(cell.value) < 10**10]
    return fits, [*bad, *_bad("1.234", "12345678901234567890")]


def normal(value: Any) -> Any:
    """A value of a key as it tells rows apart."""
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


def plain(value: Any, places: int | None = None) -> str:
    """The text of a value where a column keeps texts."""
    match value:
        case bool():
            return "true" if value else "false"
        case Decimal():
            text = f"{value:f}"
            whole, _, behind = text.partition(".")
            behind = behind.rstrip("0").ljust(places or 0, "0")
            text = f"{whole}.{behind}" if behind else whole
            return text.removeprefix("-") if not value else text
        case dt.datetime():
            return value.isoformat(timespec=_timespec(value))
        case dt.time():
            return value.isoformat(timespec=_timespec(value))
        case dict() | list():
            return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        case float():
            return repr(value)
    return str(value)


def _timespec(value: dt.datetime | dt.time) -> str:
    if not value.microsecond:
        return "seconds"
    return "microseconds" if value.microsecond % 1000 else "milliseconds"


def canonical(kind: str, type: Any, value: Any) -> Any:
    """A value, read from a table or from a file, so that equal ones are equal in Python."""
    if value is None:
        return None
    try:
        return _READ[kind](value, str(type))
    except (ValueError, TypeError, ArithmeticError, AttributeError):
        return ("not of its kind", repr(value))


def _number(value: Any, type: str) -> Any:
    if isinstance(value, Decimal128):
        value = value.to_decimal()
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _float(value: Any, type: str) -> Any:
    if isinstance(value, Decimal128):
        value = value.to_decimal()
    number = float(value)
    return struct.unpack("f", struct.pack("f", number))[0] if type == "real" and abs(number) < 3.5e38 else number


def _text(value: Any, type: str) -> Any:
    if type in ("STRING", "ANY"):  # numbers that are written as the text was
        return str(value)
    if not isinstance(value, str):
        raise TypeError
    return value.rstrip(" ") if type.startswith("char") else value


def _as_date(value: Any, type: str) -> Any:
    if isinstance(value, dt.datetime):
        return value.date() if value.time() == dt.time() else value
    return value if isinstance(value, dt.date) else dt.date.fromisoformat(value)


def _as_moment(value: Any, type: str) -> Any:
    return _moment(value if isinstance(value, str) else value.isoformat())


def _as_time(value: Any, type: str) -> Any:
    return value if isinstance(value, dt.time) else dt.time.fromisoformat(value)


def _as_uuid(value: Any, type: str) -> Any:
    return value.as_uuid() if isinstance(value, Binary) else uuid.UUID(str(value))


def _as_json(value: Any, type: str) -> Any:
    return json.dumps(json.loads(value) if isinstance(value, str) else value, sort_keys=True)


def _as_truth(value: Any, type: str) -> Any:
    return {"true": True, "false": False, 1: True, 0: False}[value]


_READ = {
    "text": _text,
    "integer": _number,
    "decimal": _number,
    "float": _float,
    "boolean": _as_truth,
    "date": _as_date,
    "datetime": _as_moment,
    "time": _as_time,
    "uuid": _as_uuid,
    "json": _as_json,
}


def row_of(kinds: Sequence[tuple[str, Any]], values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(canonical(kind, type, value) for (kind, type), value in zip(kinds, values, strict=True))
