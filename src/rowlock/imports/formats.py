"""How the cells of a file are written, as the importer declares it. What is not declared is not guessed."""

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
"""What may stand between thousands, for each sign that can be declared: the sign and its typographic twins."""


@dataclass(frozen=True, slots=True)
class Formats:
    """The accepted ways of writing numbers, dates, yes and no, and nothing.

    ISO dates (2026-01-31) are accepted always. A frozen value: one for an importer, others for single fields.
    """

    decimal: Literal[".", ","] = "."
    thousands: Literal[",", ".", " ", "'"] | None = None
    dates: tuple[DateOrder, ...] = ()
    two_digit_years: bool = False  # 70-99 are of the 1900s, 00-69 of the 2000s
    excel_serials: bool = False  # 46053 in a date field is the day of that number in a spreadsheet
    true_words: tuple[str, ...] = ("true",)  # in any case
    false_words: tuple[str, ...] = ("false",)
    blank_words: tuple[str, ...] = ()  # texts that mean an empty cell, as they are written: N/A, -
    strip: bool = True  # blanks around a cell do not count; a no-break space is one
    currency: tuple[str, ...] = ()  # signs that may stand before or behind a number: €, EUR
    _hash: int = field(default=0, init=False, repr=False, compare=False)  # patterns are looked up by it for each cell

    def __post_init__(self) -> None:
        for name in ("dates", "true_words", "false_words", "blank_words", "currency"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise ValueError(f"{name} is a tuple of texts, not one text: ({value!r},)")
            object.__setattr__(self, name, tuple(value))  # a list, as JSON has it, is fine
        if self.decimal not in (".", ","):
            raise ValueError(f"decimal is '.' or ',', not {self.decimal!r}")
        if self.thousands is not None and self.thousands not in GROUPS:
            raise ValueError(f"thousands is one of {', '.join(map(repr, GROUPS))} or None, not {self.thousands!r}")
        if self.thousands == self.decimal:
            raise ValueError(f"the decimal sign and the sign between thousands cannot both be {self.decimal!r}")
        if unknown := set(self.dates) - {"day_first", "month_first", "year_first"}:
            raise ValueError(f"an order of dates is day_first, month_first or year_first, not {sorted(unknown)}")
        if {"day_first", "month_first"} <= set(self.dates):
            raise ValueError("day_first and month_first together leave 01/02/2026 open: declare one")
        both = {word.casefold() for word in self.true_words} & {word.casefold() for word in self.false_words}
        if both:
            raise ValueError(f"a word cannot mean both yes and no: {', '.join(sorted(both))}")
        if any(sign.strip() != sign or not sign or set(sign) & set("0123456789+-") for sign in self.currency):
            raise ValueError("a currency sign has no digits, plus, minus or blanks around it")
        object.__setattr__(self, "_hash", hash(tuple(getattr(self, name) for name in _NAMES)))

    def __hash__(self) -> int:
        return self._hash


_NAMES = tuple(one.name for one in fields(Formats) if one.init)


def dump_formats(formats: Formats) -> dict[str, Any]:
    """What differs from the defaults, ready for JSON."""
    default = Formats()
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name in _NAMES
        if (value := getattr(formats, name)) != getattr(default, name)
    }


def load_formats(data: dict[str, Any]) -> Formats:
    """The formats that `dump_formats` wrote; a name that is none of theirs is an error."""
    if unknown := set(data) - set(_NAMES):
        raise ValueError(f"formats have no {', '.join(sorted(unknown))}")
    return Formats(**data)
