"""Values of the user's tables as JSON can say them."""

from __future__ import annotations

import math
from typing import Any

import orjson


def plain(value: Any, json: bool = False) -> Any:
    """The same value as JSON knows it: numbers that it would round, and moments, are texts."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return orjson.loads(value) if json else value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
