"""Months of a period, and the monthly share of a year's budget."""

from __future__ import annotations

from datetime import date

from rowlock import Permanent

PERIOD_MONTHS_MAX = 600


def months_of(start: str, end: str) -> list[str]:
    """Return the months that a period touches, both ends included. Raises Permanent if it is reversed or too long."""
    first, last = _number(start), _number(end)
    if end < start:
        raise Permanent(f"the period ends on {end}, before it starts on {start}")
    if last - first >= PERIOD_MONTHS_MAX:
        raise Permanent(f"the period {start} to {end} has {last - first + 1} months, the limit is {PERIOD_MONTHS_MAX}")
    return [f"{number // 12:04}-{number % 12 + 1:02}" for number in range(first, last + 1)]


def share_cents(year_cents: int, month: str) -> int:
    """Return a month's twelfth of a year's budget in whole cents. The twelve shares add up to the budget exactly."""
    number = int(month[5:7])
    return year_cents * number // 12 - year_cents * (number - 1) // 12


def days_before(day: str, days: int) -> str:
    """Return the day `days` earlier, at the earliest 0001-01-01."""
    return date.fromordinal(max(1, date.fromisoformat(day).toordinal() - days)).isoformat()


def days_between(earlier: str, later: str) -> int:
    return (date.fromisoformat(later) - date.fromisoformat(earlier)).days


def _number(day: str) -> int:
    return int(day[:4]) * 12 + int(day[5:7]) - 1
