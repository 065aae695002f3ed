"""Translate SQLite's errors into Rowlock's: what happened, to which file, what to do next."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from rowlock.errors import SchemaMissing, StatementRefused, StoreConflict, StoreError, StoreUnavailable, ValueRefused

BUSY_SECONDS = 5.0
"""Seconds that a statement waits for another process's write before it raises StoreConflict."""

_TABLE = re.compile(
    r"no such table: (main\.)?(jobs|ready|delayed|running|finished|unique_keys|queues|wakes|limits"
    r"|key_pauses|key_starts|workers|totals|minutes|lags|job_failures|job_idempotency_locks|schedules|schedule_runs"
    r"|alerts|measures|tokens|requests|imports|import_chunks|import_errors|call_keys|call_permits|call_sums|subjects)\b"
)
_UNAVAILABLE = {
    apsw.SQLITE_BUSY: f"{{path}} is locked: another connection has held its write lock for {BUSY_SECONDS:g} s; "
    "end the transaction that was left open (only one can write at a time)",
    apsw.SQLITE_LOCKED: "{path} is locked by another connection of this process; end its transaction first",
    apsw.SQLITE_READONLY: "{path} is read-only: give this user write permission for the file and its folder",
    apsw.SQLITE_PERM: "{path} cannot be opened: give this user permission for the file and its folder",
    apsw.SQLITE_AUTH: "{path} cannot be opened: give this user permission for the file and its folder",
    apsw.SQLITE_FULL: "the disk of {path} is full: free some space and try again; nothing was recorded",
    apsw.SQLITE_IOERR: "the disk of {path} failed or is full ({error}): check both before trying again",
    apsw.SQLITE_CANTOPEN: "{path} cannot be opened: check that its folder exists and that this user can write to it",
    apsw.SQLITE_NOTADB: "{path} is not a SQLite database: point the URL at another file",
    apsw.SQLITE_CORRUPT: "{path} is damaged ({error}): stop all workers and restore it from a backup",
    apsw.SQLITE_PROTOCOL: "{path} is contended beyond what SQLite's locking can resolve; try again",
}
_CONFLICTS = (apsw.SQLITE_BUSY, apsw.SQLITE_LOCKED, apsw.SQLITE_PROTOCOL)
_VALUE_CODES = (apsw.SQLITE_TOOBIG, apsw.SQLITE_CONSTRAINT, apsw.SQLITE_MISMATCH)


def explained(error: apsw.Error | sqlite3.Error, path: Path | str) -> StoreError:
    """Return Rowlock's error for a driver error; the message names the file and what to do."""
    message = str(error)
    code = _code(error)
    if code in _UNAVAILABLE:
        kind = StoreConflict if code in _CONFLICTS else StoreUnavailable
        return kind(_UNAVAILABLE[code].format(path=path, error=message))
    if isinstance(error, apsw.ConnectionClosedError):
        return StoreUnavailable(f"{path} is closed: open the store before using it")
    if _TABLE.search(message):
        return SchemaMissing(f"{path} has not been migrated ({message}): run `rowlock migrate`")
    if code in _VALUE_CODES:
        return ValueRefused(f"{path} refused a value: {message}")
    if isinstance(error, apsw.SQLError):
        return StatementRefused(f"{path} refused a statement: {message}; create what is missing, or correct it")
    return StoreError(f"{path}: {message}")


def _code(error: apsw.Error | sqlite3.Error) -> int:
    """Return SQLite's primary result code from an error of either driver."""
    found: int = getattr(error, "result", None) or getattr(error, "sqlite_errorcode", None) or apsw.SQLITE_ERROR
    return found & 0xFF


@contextmanager
def explaining(path: Path | str) -> Iterator[None]:
    """Raise the block's driver errors as Rowlock's."""
    try:
        yield
    except (apsw.Error, sqlite3.Error) as error:
        raise explained(error, path) from error
