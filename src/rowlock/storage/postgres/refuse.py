"""Which of PostgreSQL's errors are a row's own fault, and what they mean in plain words."""

from __future__ import annotations

import re
from collections.abc import Sequence

import asyncpg

from rowlock.storage.tables import Refused

# Bad values, broken rules, what triggers raise, and values too long for an index.
_ROWS_OWN = ("21", "22", "23", "44", "54", "P0")
# Everything else that PostgreSQL itself says; what is in neither list is a trigger's own code.
_SERVERS_OWN = (
    *("01", "02", "03", "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "24", "25", "26", "27", "28", "2B"),
    *("2D", "2F", "34", "38", "39", "3B", "3D", "3F", "40", "42", "53", "55", "57", "58", "72", "F0", "HV", "XX"),
)
_CODES = {
    "23502": "not_null",
    "23503": "foreign_key",
    "23505": "unique",
    "23514": "check",
    "23P01": "unique",
    "22001": "too_long",
    "22003": "out_of_range",
    "22008": "out_of_range",
    "54000": "too_long",
}
_COPY_LINE = re.compile(r"COPY [^,]*,\D*(\d+)(?:,[^:]*\bc(\d+)\b)?")  # a server may say "line" in its own language


def rows_fault(error: asyncpg.PostgresError) -> bool:
    """Whether the row is to blame, and not the server, the connection or the statement."""
    kind = (error.sqlstate or "XX")[:2]
    return kind in _ROWS_OWN or kind not in _SERVERS_OWN


def copied_line(error: asyncpg.PostgresError, columns: Sequence[str]) -> tuple[int | None, str | None]:
    """The line (from 0) and the column at which a COPY into columns c0, c1, … broke off."""
    match = _COPY_LINE.search(getattr(error, "context", None) or "")
    if match is None:
        return None, None
    place = int(match[2]) if match[2] else len(columns)
    return int(match[1]) - 1, columns[place] if place < len(columns) else None


def refused(error: asyncpg.PostgresError, row: int, column: str | None = None) -> Refused:
    """What to tell the user of a row that was not taken; its values are not repeated."""
    code = _CODES.get(error.sqlstate or "", "refused")
    return Refused(row, code, _reason(error, code, column), column or _named(error, "column_name"))


def rounding(row: int, column: str, places: int) -> Refused:
    """A row with a number that its column would round."""
    return Refused(
        row, "too_precise", f"{column} keeps {places} places behind the point, and the value has more", column
    )


def _reason(error: asyncpg.PostgresError, code: str, column: str | None) -> str:
    at = column or _named(error, "column_name")
    rule = _named(error, "constraint_name")
    by = f" (rule {rule})" if rule else ""
    match code:
        case "not_null":
            return f"{at or 'a required column'} must have a value{by}"
        case "foreign_key":
            return f"what the row refers to does not exist{by}"
        case "unique":
            return f"another row has the same values where they must differ{by}"
        case "check":
            return f"the row breaks a rule of the table{by}"
        case "too_long":
            return f"the value of {at} is too long" if at else "a value is too long for its column"
        case "out_of_range":
            return f"the value of {at} is out of range" if at else "a value is out of the range of its column"
    if at and (error.sqlstate or "").startswith("22"):
        return f"the value of {at} is not one that the column takes"
    return f"the database refused the row: {_named(error, 'message') or error}"


def _named(error: asyncpg.PostgresError, field: str) -> str | None:
    value = getattr(error, field, None)
    return None if value is None else str(value)
