"""Decides which PostgreSQL errors are a row's fault, and translates them for users."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from rowlock.storage.references import FOREIGN_KEY
from rowlock.storage.tables import Refused

# Bad values, violated constraints, errors raised by triggers, and values too long for an index.
ROWS_OWN = ("21", "22", "23", "44", "54", "P0")
# All other classes of PostgreSQL itself; a class in neither list is a trigger's own.
SERVERS_OWN = (
    *("01", "02", "03", "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "24", "25", "26", "27", "28", "2B"),
    *("2D", "2F", "34", "38", "39", "3B", "3D", "3F", "40", "42", "53", "55", "57", "58", "72", "F0", "HV", "XX"),
)
_CODES = {
    "23502": "not_null",
    "23503": FOREIGN_KEY,
    "23505": "unique",
    "23514": "check",
    "23P01": "unique",
    "22001": "too_long",
    "22003": "out_of_range",
    "22008": "out_of_range",
    "54000": "too_long",
}


@dataclass(frozen=True, slots=True)
class Said:
    """The server's message about one of several rows tried in a block."""

    sqlstate: str
    column_name: str | None
    constraint_name: str | None
    message: str


_COPY_LINE = re.compile(r"COPY [^,]*,\D*(\d+)(?:,[^:]*\bc(\d+)\b)?")  # a server may translate "line"


def rows_fault(error: asyncpg.PostgresError) -> bool:
    """Returns whether the error is the row's fault, not that of the server, the connection or the statement."""
    if _by_policy(error):
        return True
    kind = (error.sqlstate or "XX")[:2]
    return kind in ROWS_OWN or kind not in SERVERS_OWN


def _by_policy(error: asyncpg.PostgresError | Said) -> bool:
    """Returns whether a row policy refused the row: its code is that of a missing right, its text in any language."""
    return error.sqlstate == "42501" and _named(error, "server_source_function") == "ExecWithCheckOptions"


def copied_line(error: asyncpg.PostgresError, columns: Sequence[str]) -> tuple[int | None, str | None]:
    """Returns the line (from 0) and the column at which a COPY into columns c0, c1, … failed."""
    match = _COPY_LINE.search(getattr(error, "context", None) or "")
    if match is None:
        return None, None
    place = int(match[2]) if match[2] else len(columns)
    return int(match[1]) - 1, columns[place] if place < len(columns) else None


def refused(error: asyncpg.PostgresError | Said, row: int, column: str | None = None) -> Refused:
    """Returns what the user is shown about a refused row; does not repeat its values."""
    code = "policy" if _by_policy(error) else _CODES.get(error.sqlstate or "", "refused")
    return Refused(row, code, _reason(error, code, column), column or _named(error, "column_name"))


def refers_to_nothing(row: int) -> Refused:
    """Refuses a row with a missing reference, without having tried it."""
    return Refused(row, FOREIGN_KEY, "the row refers to a record that does not exist")


def _reason(error: asyncpg.PostgresError | Said, code: str, column: str | None) -> str:
    at = column or _named(error, "column_name")
    rule = _named(error, "constraint_name")
    by = f" ({rule})" if rule else ""
    match code:
        case "not_null":
            return f"{at or 'a required column'} must have a value{by}"
        case "foreign_key":
            return f"the row refers to a record that does not exist{by}"
        case "unique":
            return f"another row has the same value in a unique column{by}"
        case "policy":
            return "the table's row-level security does not allow this row"
        case "check":
            return f"the row breaks a rule of the table{by}"
        case "too_long":
            return f"the value of {at} is too long" if at else "a value is too long for its column"
        case "out_of_range":
            return f"the value of {at} is out of range" if at else "a value is out of the range of its column"
    if at and (error.sqlstate or "").startswith("22"):
        return f"the value of {at} is not valid for the column"
    return f"the database rejected the row: {_named(error, 'message') or error}"


def _named(error: asyncpg.PostgresError | Said, field: str) -> str | None:
    value = getattr(error, field, None)
    return None if value is None else str(value)
