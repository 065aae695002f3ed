"""Translate SQLite's errors about a row into row errors for the user."""

from __future__ import annotations

import apsw

from rowlock.storage.tables import Refused

_CODES = {
    apsw.SQLITE_CONSTRAINT_NOTNULL: "not_null",
    apsw.SQLITE_CONSTRAINT_FOREIGNKEY: "foreign_key",
    apsw.SQLITE_CONSTRAINT_CHECK: "check",
    apsw.SQLITE_CONSTRAINT_UNIQUE: "unique",
    apsw.SQLITE_CONSTRAINT_PRIMARYKEY: "unique",
    apsw.SQLITE_CONSTRAINT_ROWID: "unique",
    apsw.SQLITE_CONSTRAINT_DATATYPE: "out_of_range",
}
ROWS_FAULT = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)


def refused(error: apsw.Error, row: int) -> Refused:
    """Return the error to show the user for a refused row; it does not repeat the row's values."""
    if isinstance(error, apsw.TooBigError):
        return Refused(row, "too_long", "a value is too long for its column")
    code = _CODES.get(getattr(error, "extendedresult", 0), "refused")
    if isinstance(error, apsw.MismatchError):
        code = "out_of_range"
    # The message continues with table.column, or with the name or expression of a constraint.
    about = str(error).partition(" constraint failed: ")[2]
    columns = [each.rpartition(".")[2] for each in about.split(", ")] if code in ("not_null", "unique") else []
    column = columns[0] if len(columns) == 1 else None
    return Refused(row, code, _reason(error, code, about, columns), column)


def _reason(error: apsw.Error, code: str, about: str, columns: list[str]) -> str:
    match code:
        case "not_null":
            return f"{columns[0]} must have a value"
        case "foreign_key":
            return "the row refers to a record that does not exist"
        case "unique":
            return f"another row has the same {', '.join(columns)}"
        case "check":
            return f"the row breaks a rule of the table ({about})"
        case "out_of_range":
            return "a value has the wrong type for its column"
    return f"the database rejected the row: {error}"
