"""Values as frames and tables hold them: exact, and one text per value.

A decimal is text in plain notation, because no frame can hold all decimals: padded to the declared places, or without
trailing zeros if none are declared, never "-0". So equal numbers are equal texts.
"""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Any

import orjson
from pydantic import SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

from rowlock.storage.tables import Kind


def stored(kind: Kind, value: Any, places: int | None = None, zone: str | None = None) -> Any:
    """Return the value as a frame holds it; raises TypeError if a custom validator returned another kind of value."""
    if value is None or (kind is Kind.TEXT and type(value) is str):
        return value
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, SecretStr | SecretBytes):
        value = value.get_secret_value()
    match kind:
        case Kind.TEXT:
            return _as_text(value)
        case Kind.INTEGER if type(value) is int or (isinstance(value, Decimal | float) and value == int(value)):
            if not -(2**63) <= int(value) < 2**63:
                raise TypeError(f"{value} does not fit into 64 bits")
            return int(value)
        case Kind.DECIMAL if isinstance(value, Decimal | int) and Decimal(value).is_finite():
            return plain_decimal(Decimal(value), places)
        case Kind.FLOAT if isinstance(value, float | int | Decimal):
            return float(value)
        case Kind.BOOLEAN if isinstance(value, bool):
            return value
        case Kind.DATE if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return value
        case Kind.DATETIME if isinstance(value, dt.datetime):
            return _datetime(value, zone)
        case Kind.TIME if isinstance(value, dt.time) and value.tzinfo is None:
            return value
        case Kind.UUID if isinstance(value, uuid.UUID):
            return str(value)
        case Kind.JSON:
            return orjson.dumps(to_jsonable_python(value), option=orjson.OPT_SORT_KEYS).decode()
    raise TypeError(f"a value of type {type(value).__name__} is not {kind.value}")


def plain_decimal(value: Decimal, places: int | None) -> str:
    """Return the canonical text of a number: 12.50 with two places, 12.5 if none are declared."""
    text = format(value, "f")
    whole, _, behind = text.partition(".")
    behind = behind.rstrip("0")
    if places:
        behind = behind.ljust(places, "0")
    sign, digits = ("-", whole[1:]) if whole[0] == "-" else ("", whole)
    digits = digits.lstrip("0") or "0"
    if digits == "0" and not behind.strip("0"):
        sign = ""
    return f"{sign}{digits}.{behind}" if behind else f"{sign}{digits}"


def _datetime(value: dt.datetime, zone: str | None) -> dt.datetime:
    if zone == "naive":
        return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
    return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)


def _as_text(value: Any) -> str:
    made = to_jsonable_python(value)
    return made if isinstance(made, str) else str(made)
