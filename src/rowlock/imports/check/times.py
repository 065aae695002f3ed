"""Read dates and times in single cells; their patterns, made from the declared formats, also serve whole columns."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from rowlock.imports.check.reasons import BadCell
from rowlock.imports.formats import Formats

SERIAL_MAX = 2_958_465  # 9999-12-31
SERIAL_EPOCH = dt.date(1899, 12, 30)
SERIAL_PATTERN = r"[0-9]{1,7}(?:\.[0-9]{1,20})?"
DAY = 86_400_000_000  # in microseconds
_ISO = r"(?P<y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})"
CLOCK = r"(?P<H>[01][0-9]|2[0-3]):(?P<M>[0-5][0-9])(?::(?P<S>[0-5][0-9])(?:\.(?P<f>[0-9]{1,9}))?)?"
ZONE = r"(?P<z>Z|z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])"


@dataclass(frozen=True, slots=True)
class Written:
    """One notation of dates."""

    pattern: str  # named groups y, m, d
    strptime: str  # the same for Polars; the year has four digits or two


@lru_cache(maxsize=256)
def written_dates(formats: Formats) -> tuple[Written, ...]:
    """Return every accepted notation, ISO first."""
    ways = [Written(_ISO, "%Y-%m-%d")]
    year, month, day = r"(?P<y>[0-9]{4})", r"(?P<m>[0-9]{1,2})", r"(?P<d>[0-9]{1,2})"
    for order in formats.dates:
        for separator in ("/", ".") if order == "year_first" else (".", "/", "-"):
            parts = {
                "day_first": (day, month, year),
                "month_first": (month, day, year),
                "year_first": (year, month, day),
            }[order]
            codes = {"day_first": "%d %m %Y", "month_first": "%m %d %Y", "year_first": "%Y %m %d"}[order]
            ways.append(Written(re.escape(separator).join(parts), codes.replace(" ", separator)))
            if formats.two_digit_years and order != "year_first":
                short = [r"(?P<y>[0-9]{2})" if part is year else part for part in parts]
                ways.append(
                    Written(re.escape(separator).join(short), codes.replace(" ", separator).replace("%Y", "%y"))
                )
    return tuple(ways)


@lru_cache(maxsize=256)
def _compiled(formats: Formats) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(f"{way.pattern}(?:[T ]{CLOCK}{ZONE}?)?") for way in written_dates(formats))


_CLOCK = re.compile(CLOCK)
_SERIAL = re.compile(SERIAL_PATTERN)


def read_date(text: str, formats: Formats, *, serial: bool) -> dt.date:
    """Return the date of a cell, which may end in a time of zero without zone or in UTC; raises BadCell."""
    if serial and _SERIAL.fullmatch(text):
        days, rest = _serial(text)
        if rest:
            raise BadCell("has_a_time", "must be a date without a time: the number has a fraction")
        return days
    found = _match(text, formats)
    if found is None:
        raise _no_date(text, "not_a_date", "a date")
    day = _day(found)
    if any(int(found[part] or 0) for part in "HMSf"):
        raise BadCell("has_a_time", f"must be a date without a time: write {day.isoformat()}")
    if found["z"] and found["z"] not in ("Z", "z") and int(found["z"].replace(":", "")):
        raise BadCell("has_a_time", "must be a date without a time zone")
    return day


def read_datetime(text: str, formats: Formats, *, serial: bool) -> dt.datetime:
    """Return the datetime of a cell: midnight if it has no time, in UTC if it has a zone; raises BadCell."""
    if serial and _SERIAL.fullmatch(text):
        days, rest = _serial(text)
        return dt.datetime.combine(days, dt.time()) + dt.timedelta(microseconds=rest)
    found = _match(text, formats)
    if found is None:
        raise _no_date(text, "not_a_datetime", "a date with a time")
    value = dt.datetime.combine(_day(found), _time(found))
    zone = found["z"]
    if not zone:
        return value
    offset = dt.timedelta()
    if zone not in ("Z", "z"):
        digits = zone[1:].replace(":", "")
        offset = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:])) * (-1 if zone[0] == "-" else 1)
    try:
        return (value - offset).replace(tzinfo=dt.UTC)
    except OverflowError:
        raise BadCell("out_of_range", "must be in the years 1 to 9999") from None


def read_time(text: str) -> dt.time:
    """Return the time of day of a cell, which has at least hours and minutes; raises BadCell."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise BadCell("not_a_time", "not a valid time: write 14:30 or 14:30:00")
    return _time(found)


def _match(text: str, formats: Formats) -> re.Match[str] | None:
    for pattern in _compiled(formats):
        if found := pattern.fullmatch(text):
            return found
    return None


def _day(found: re.Match[str]) -> dt.date:
    year, month, day = int(found["y"]), int(found["m"]), int(found["d"])
    if len(found["y"]) == 2:
        year += 1900 if year >= 70 else 2000
    try:
        return dt.date(year, month, day)
    except ValueError:
        raise BadCell("not_a_date", "not a valid date: this day does not exist; write 2026-01-31") from None


def _time(found: re.Match[str]) -> dt.time:
    if found["H"] is None:
        return dt.time()
    digits = found["f"] or "0"
    if digits[6:].strip("0"):
        raise BadCell("rounded", "more than 6 decimal places of seconds: write at most 6")
    fraction = int(digits[:6].ljust(6, "0"))
    return dt.time(int(found["H"]), int(found["M"]), int(found["S"] or 0), fraction)


def _serial(text: str) -> tuple[dt.date, int]:
    """Return the date of a spreadsheet's day number, and the microseconds since midnight; raises BadCell."""
    number = Decimal(text)
    days = int(number)
    # Spreadsheets count a 29 February 1900 that did not exist: lower numbers are off by one, and 60 is no day.
    if not 1 <= number < SERIAL_MAX + 1 or days == 60:
        raise BadCell("not_a_date", "not a valid date: this spreadsheet day number does not exist")
    rest = min(int(((number - days) * DAY).to_integral_value()), DAY - 1)
    return SERIAL_EPOCH + dt.timedelta(days + (1 if days < 60 else 0)), rest


def _no_date(text: str, code: str, what: str) -> BadCell:
    example = "2026-01-31" + (" or 2026-01-31T14:30:00" if "time" in code else "")
    if re.fullmatch(r"[+-]?[0-9]+(?:\.[0-9]+)?", text):
        return BadCell(code, f"not {what} but a number: write {example}")
    return BadCell(code, f"not a valid {what.removeprefix('a ')}: write {example}")
