"""Converts cells of a frame to values of a document and back, by the column's kind and the field's types."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal, DecimalException
from typing import Any
from uuid import UUID

import orjson
from bson.binary import Binary
from bson.decimal128 import Decimal128
from bson.int64 import Int64

from rowlock.storage.exact import INEXACT, Form, kept_by_double
from rowlock.storage.mongo.documents import json_fields
from rowlock.storage.mongo.loading.table_schema import NULL
from rowlock.storage.plain import plain
from rowlock.storage.tables import Kind

_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
TEXT_BYTES_MAX = 15 * 1024 * 1024
"""A document has at most 16 MB."""

_WANTED: dict[Kind, tuple[str, ...]] = {
    Kind.TEXT: ("string",),
    Kind.INTEGER: ("long", "int", "decimal", "double", "string"),
    Kind.DECIMAL: ("decimal", "double", "string"),
    Kind.FLOAT: ("double", "decimal", "string"),
    Kind.BOOLEAN: ("bool", "long", "int", "string"),
    Kind.DATE: ("date", "string"),
    Kind.DATETIME: ("date", "string"),
    Kind.TIME: ("string",),
    Kind.UUID: ("string", "binData"),
    Kind.JSON: ("json", "string"),
}


class CellRefused(Exception):
    """A value that its field cannot hold."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def keeper(kind: Kind, types: frozenset[str]) -> Callable[[Any], Any]:
    """Return the function that converts a cell of this kind, not None, to a value that these field types accept."""
    allowed = types - {NULL}
    if "number" in allowed:
        allowed |= {"long", "double", "decimal"}
    if allowed & {"object", "array"}:
        allowed |= {"json"}
    fitting = [each for each in _WANTED[kind] if not allowed or each in allowed]
    texts = not allowed or "string" in allowed
    return lambda cell: _kept(cell, kind, fitting[0], texts) if fitting else _misfit()


def _misfit() -> Any:
    raise CellRefused("out_of_range", "a value is not of the kind that its column takes")


def _kept(cell: Any, kind: Kind, chosen: str, texts: bool) -> Any:
    match chosen:
        case "string":
            return _text(cell, kind)
        case "long" | "int":
            return _integer(int(cell), chosen)
        case "double":
            return _double(cell, kind)
        case "decimal":
            return _decimal(cell)
        case "date":
            return _moment(cell, texts)
        case "binData":
            return Binary.from_uuid(UUID(str(cell)))
        case "json":
            return json_fields("v", cell)["v"]
    return cell


def _text(cell: Any, kind: Kind) -> str:
    text = cell if isinstance(cell, str) else str(plain(cell))
    if kind is Kind.BOOLEAN:
        text = text.lower()
    if len(text) > TEXT_BYTES_MAX // 4 and len(text.encode()) > TEXT_BYTES_MAX:
        raise CellRefused("too_long", "a value is too long for its column")
    return text


def _integer(number: int, chosen: str) -> int:
    if number not in (_INT32 if chosen == "int" else _INT64):
        raise CellRefused("out_of_range", "a number is beyond what its column takes")
    return number if chosen == "int" else Int64(number)


def _double(cell: Any, kind: Kind) -> float:
    if kind is not Kind.FLOAT and not kept_by_double(cell):
        raise CellRefused(INEXACT, f"a value would be rounded: its column is {Form.DOUBLE}")
    return float(cell)


def _decimal(cell: Any) -> Decimal128:
    if isinstance(cell, float) and not math.isfinite(cell):
        return Decimal128(str(cell))
    number = Decimal(str(cell))
    try:
        kept = Decimal128(number)
    except (DecimalException, ValueError):
        raise CellRefused("too_precise", "a number has more than 34 digits") from None
    if kept.to_decimal() != number and number.is_finite():
        raise CellRefused("too_precise", "a number has more than 34 digits")
    return kept


def _moment(cell: date | datetime, texts: bool) -> Any:
    if not isinstance(cell, datetime):
        return datetime(cell.year, cell.month, cell.day, tzinfo=UTC)
    moment = cell.replace(tzinfo=UTC) if cell.tzinfo is None else cell.astimezone(UTC)
    if moment.microsecond % 1000 == 0:
        return moment
    if texts:
        return moment.isoformat()
    raise CellRefused("too_precise", "a moment has more than milliseconds")


def cell_of(value: Any, kind: Kind) -> Any:
    """Return the cell, as in a frame, from which a value was made."""
    match value:
        case None:
            return None
        case Decimal128():
            return str(value.to_decimal())
        case Binary():
            return str(value.as_uuid())
    match kind:
        case Kind.DATE:
            return value.date() if isinstance(value, datetime) else value
        case Kind.DATETIME:
            return datetime.fromisoformat(value) if isinstance(value, str) else value
        case Kind.TIME:
            return time.fromisoformat(value) if isinstance(value, str) else value
        case Kind.JSON:
            return value if isinstance(value, str) else orjson.dumps(value).decode()
        case Kind.INTEGER:
            return int(value)
    return value


def told(value: Any, kind: Kind) -> Any:
    """Return a document's value in a form that JSON can represent."""
    if isinstance(value, dict | list):
        return value
    return plain(cell_of(value, kind) if kind is not Kind.JSON else value)


def given(value: Any, kind: Kind | None) -> tuple[Any, Kind]:
    """Return a scope's value as a cell, with its kind; a text has the kind of its column, if this is known."""
    match value:
        case bool():
            own = Kind.BOOLEAN
        case int():
            own = Kind.INTEGER
        case float():
            own = Kind.FLOAT
        case Decimal():
            own, value = Kind.DECIMAL, str(value)
        case datetime():
            own = Kind.DATETIME
        case date():
            own = Kind.DATE
        case time():
            own = Kind.TIME
        case UUID():
            own, value = Kind.UUID, str(value)
        case dict() | list() | tuple():
            own, value = Kind.JSON, orjson.dumps(value).decode()
        case _:
            own, value = Kind.TEXT, str(value)
    if own is Kind.TEXT and kind is not None:
        return _read(value, kind), kind
    return value, own


def _read(text: str, kind: Kind) -> Any:
    """Return a text as a cell of this kind, or unchanged if it is none."""
    try:
        match kind:
            case Kind.DATE:
                return date.fromisoformat(text)
            case Kind.DATETIME:
                return datetime.fromisoformat(text)
            case Kind.TIME:
                return time.fromisoformat(text)
            case Kind.INTEGER:
                return int(text)
            case Kind.FLOAT:
                return float(text)
    except ValueError:
        return text
    return text


def same(value: Any) -> Any:
    """Return a hashable form that is the same for values that MongoDB considers equal."""
    match value:
        case None:
            return None
        case bool():
            return ("bool", value)
        case Decimal128():
            number = value.to_decimal()
            return ("number", "nan" if number.is_nan() else number)
        case float():
            return ("number", "nan" if math.isnan(value) else value)
        case int():
            return ("number", int(value))
        case dict():
            return ("object", tuple((key, same(inner)) for key, inner in value.items()))
        case list():
            return ("array", tuple(map(same, value)))
        case datetime():
            return ("date", value.astimezone(UTC))
    return (type(value).__name__, value)
