"""Converts values of users' tables to JSON."""

from __future__ import annotations

import math
from typing import Any

import orjson


def plain(value: Any, json: bool = False) -> Any:
    """Returns the value as JSON represents it exactly: numbers that JSON would round, and times, become text."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return orjson.loads(value) if json else value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
