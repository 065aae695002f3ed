"""Template filters: numbers, times and data for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import orjson

_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def count(number: float | None) -> str:
    """1,234."""
    return "–" if number is None else f"{number:,.0f}"


def size(number: int | None) -> str:
    """1.2 MB."""
    if number is None:
        return "–"
    value = float(number)
    for unit in ("B", "kB", "MB"):
        if value < 1_000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1_000
    return f"{value:.1f} GB"


def seconds(number: float | None) -> str:
    """1.2 s, 3 min, 2 h 5 min."""
    if number is None:
        return "–"
    if number < 1:
        return f"{number * 1_000:.0f} ms"
    if number < 10:
        return f"{number:.1f} s"
    if number < 60:
        return f"{number:.0f} s"
    whole = int(number)
    for (large, name), (small, part) in pairwise(_UNITS):
        if whole >= large:
            rest = whole % large // small
            return f"{whole // large} {name}" + (f" {rest} {part}" if rest and whole // large < 10 else "")
    return f"{whole} s"


def ago(moment: str | datetime | None) -> str:
    """3 min ago, in 2 h."""
    at = instant(moment)
    if at is None:
        return "–"
    passed = (datetime.now(UTC) - at).total_seconds()
    if abs(passed) < 5:
        return "now"
    whole = int(abs(passed))
    text = next(f"{whole // unit} {name}" for unit, name in _UNITS if whole >= unit)
    return f"{text} ago" if passed > 0 else f"in {text}"


def exact(moment: str | datetime | None) -> str:
    """2026-11-16 13:21:32 UTC."""
    at = instant(moment)
    return "" if at is None else at.strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(moment: str | datetime | None) -> str:
    at = instant(moment)
    return "" if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant(moment: str | datetime | None) -> datetime | None:
    """Parse an ISO 8601 time; None and datetimes are returned as they are."""
    if moment is None or isinstance(moment, datetime):
        return moment
    return datetime.fromisoformat(moment).astimezone(UTC)


def pretty(value: Any) -> str:
    """Return indented JSON; marks that change the text direction are escaped, because they would move the quotes."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str).decode()
    return _TURNS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def sentence(text: str) -> str:
    """Return a message as a sentence: with a capital letter, unless it begins with a name, and a full stop."""
    text = text.strip()
    first = text.split(" ", 1)[0]
    if first.isalpha() and first.islower():
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!", "…")) else f"{text}."


def titled(name: str) -> str:
    """Return an identifier for people: priceList becomes Price list, ap becomes AP."""
    if len(name) <= 3:
        return name.upper()
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_\-.]+", " ", name).lower()
    return words[:1].upper() + words[1:]


FILTERS = {
    "titled": titled,
    "sentence": sentence,
    "number": count,
    "size": size,
    "duration": seconds,
    "ago": ago,
    "exact": exact,
    "iso": iso,
    "pretty": pretty,
}
