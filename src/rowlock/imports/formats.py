"""The cell formats that an importer declares for its files. Rowlock does not guess formats that are not declared."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

DateOrder = Literal["day_first", "month_first", "year_first"]

GROUPS: dict[str, str] = {
    ",": ",",
    ".": ".",
    " ": " \u00a0\u2009\u202f",
    "'": "'\u2019",
}
"""The accepted thousands separators for each one that can be declared: itself and its typographic variants."""


@dataclass(frozen=True, slots=True)
class Formats:
    """The accepted formats of numbers, dates, booleans and empty cells.

    ISO dates (2026-01-31) are always accepted. A frozen value: one for an importer, others for single fields.
    """

    decimal: Literal[".", ","] = "."
    thousands: Literal[",", ".", " ", "'"] | None = None
    dates: tuple[DateOrder, ...] = ()
    two_digit_years: bool = False  # 70-99 mean 1970-1999, 00-69 mean 2000-2069
    excel_serials: bool = False  # 46053 in a date field is a spreadsheet's day number
    true_words: tuple[str, ...] = ("true",)  # case-insensitive, like false_words
    false_words: tuple[str, ...] = ("false",)
    blank_words: tuple[str, ...] = ()  # texts that mean an empty cell, case-sensitive: N/A, -
    strip: bool = True  # ignore white space around a cell, including no-break spaces
    currency: tuple[str, ...] = ()  # signs that are accepted before or after a number: €, EUR
    _hash: int = field(default=0, init=False, repr=False, compare=False)  # cached: each cell's pattern lookup needs it

    def __post_init__(self) -> None:
        for name in ("dates", "true_words", "false_words", "blank_words", "currency"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise ValueError(f"{name} must be a tuple of texts: ({value!r},)")
            object.__setattr__(self, name, tuple(value))  # a list from JSON
        if self.decimal not in (".", ","):
            raise ValueError(f"decimal must be '.' or ',', not {self.decimal!r}")
        if self.thousands is not None and self.thousands not in GROUPS:
            raise ValueError(f"thousands must be one of {', '.join(map(repr, GROUPS))} or None, not {self.thousands!r}")
        if self.thousands == self.decimal:
            raise ValueError(f"decimal and thousands cannot both be {self.decimal!r}")
        if unknown := set(self.dates) - {"day_first", "month_first", "year_first"}:
            raise ValueError(f"dates may contain day_first, month_first or year_first, not {sorted(unknown)}")
        if {"day_first", "month_first"} <= set(self.dates):
            raise ValueError("with both day_first and month_first, 01/02/2026 is ambiguous: declare one")
        both = {word.casefold() for word in self.true_words} & {word.casefold() for word in self.false_words}
        if both:
            raise ValueError(f"a word cannot mean both yes and no: {', '.join(sorted(both))}")
        if any(sign.strip() != sign or not sign or set(sign) & set("0123456789+-") for sign in self.currency):
            raise ValueError("a currency sign cannot contain digits, plus or minus, or start or end with a space")
        object.__setattr__(self, "_hash", hash(tuple(getattr(self, name) for name in _NAMES)))

    def __hash__(self) -> int:
        return self._hash


_NAMES = tuple(one.name for one in fields(Formats) if one.init)


def dump_formats(formats: Formats) -> dict[str, Any]:
    """Return the values that differ from the defaults, ready for JSON."""
    default = Formats()
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name in _NAMES
        if (value := getattr(formats, name)) != getattr(default, name)
    }


def load_formats(data: dict[str, Any]) -> Formats:
    """Return the formats that `dump_formats` wrote; raises ValueError for an unknown name."""
    if unknown := set(data) - set(_NAMES):
        raise ValueError(f"Formats has no field {', '.join(sorted(unknown))}")
    return Formats(**data)
