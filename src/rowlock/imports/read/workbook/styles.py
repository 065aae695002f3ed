"""Number formats: whether the number in a cell is a date, a time, both, or a number."""

from __future__ import annotations

import re
from enum import IntEnum

from rowlock.imports.read.workbook.errors import damaged
from rowlock.imports.read.workbook.guarded import parse
from rowlock.imports.read.workbook.package import Package
from rowlock.imports.read.workbook.parts import small_part

STYLES_MAX = 100_000
FORMATS_MAX = 10_000
CODE_CHARS_MAX = 255  # Excel's own limit


class Show(IntEnum):
    """How a number is shown."""

    NUMBER = 0
    DATE = 1
    TIME = 2
    BOTH = 3


# 27-36 and 50-58 depend on the language of the Excel that wrote them: some are times in one and dates in another, so
# the value decides.
BUILT_IN = {
    **dict.fromkeys((14, 15, 16, 17), Show.DATE),
    **dict.fromkeys((18, 19, 20, 21, 45, 47), Show.TIME),
    22: Show.BOTH,
    **dict.fromkeys((*range(27, 37), *range(50, 59)), Show.BOTH),
}

_SILENT = re.compile(r'"[^"]*"?|\\.|_.|\*.')  # quoted text, escapes, the width of a character, fillers
_ELAPSED = re.compile(r"\[(?:h+|m+|s+)\]", re.IGNORECASE)
_BRACKETS = re.compile(r"\[[^\]]*\]")  # colours, conditions, languages: [Red], [>100], [$-409]
_HALF_DAY = re.compile(r"am/pm|a/p|上午/下午", re.IGNORECASE)
_MINUTES = re.compile(r"h[^a-z]*+m+|(?<!m)m++[^a-z]*+s", re.IGNORECASE)


def show_of(code: str) -> Show:
    """Return what a format code shows; elapsed time ([h]:mm) is a number of days: it has no date and no clock time."""
    section = _SILENT.sub("", code).split(";", 1)[0]
    if _ELAPSED.search(section):
        return Show.NUMBER
    section = _BRACKETS.sub("", section)
    if section.strip().lower() in ("", "general", "@", "standard"):
        return Show.NUMBER
    bare, half_days = _HALF_DAY.subn("", section)
    bare = re.sub("general", "", bare, flags=re.IGNORECASE).lower()
    if re.search("e[+-]", bare):  # 0.00E+00: here E is an exponent, not a year
        return Show.NUMBER
    bare, clocks = _MINUTES.subn("", bare)
    time = half_days or clocks or re.search("[hs]", bare)
    date = re.search("[yd]", bare) or re.search("m", bare) or re.search("(?:^|[^a-z])(?:e+|g+e)(?![a-z])", bare)
    if date:
        return Show.BOTH if time else Show.DATE
    return Show.TIME if time else Show.NUMBER


def read_styles(package: Package, part: str | None) -> list[Show]:
    """Return what each cell style shows, by style number."""
    codes: dict[int, Show] = {}
    styles: list[Show] = []
    within: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if name == "numFmt" and within and within[-1] == "numFmts":
            number = _number(attributes.get("numFmtId"))
            codes[number] = show_of(attributes.get("formatCode", "")[:CODE_CHARS_MAX])
        elif name == "xf" and within and within[-1] == "cellXfs":
            number = _number(attributes.get("numFmtId"))
            styles.append(codes.get(number, BUILT_IN.get(number, Show.NUMBER)))
        if len(codes) > FORMATS_MAX or len(styles) > STYLES_MAX:
            raise damaged(f"it has more than {FORMATS_MAX:,} number formats or {STYLES_MAX:,} cell styles")
        within.append(name)

    def end(_: str) -> None:
        within.pop()

    if part is not None:
        parse(part, small_part(package, part), start, end)
    return styles


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0
