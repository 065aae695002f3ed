"""What SQLite's errors mean to people: what happened, to which file, what to do next."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from rowlock.errors import SchemaMissing, StoreError, StoreUnavailable

BUSY_SECONDS = 5.0
"""How long a statement waits for another process's write before the store counts as unavailable."""

_TABLE = re.compile(
    r"no such table: (main\.)?(jobs|ready|delayed|running|finished|unique_keys|queues|wakes|limits"
    r"|key_pauses|key_starts|workers|job_records|totals|minutes|job_failures|job_idempotency_locks|schedules"
    r"|schedule_runs|alerts|measures|tokens|requests|imports|import_chunks|import_errors|import_records)\b"
)
_UNAVAILABLE = {
    apsw.SQLITE_BUSY: f"{{path}} is locked: another connection has held its write lock for {BUSY_SECONDS:g} s; "
    "end the transaction that was left open (only one can write at a time)",
    apsw.SQLITE_LOCKED: "{path} is locked by another connection of this process; end its transaction first",
    apsw.SQLITE_READONLY: "{path} is read-only: give this user write permission on the file and on its folder",
    apsw.SQLITE_PERM: "{path} may not be opened: give this user permission on the file and on its folder",
    apsw.SQLITE_AUTH: "{path} may not be opened: give this user permission on the file and on its folder",
    apsw.SQLITE_FULL: "no space is left for {path}: free some on its disk and try again; nothing was recorded",
    apsw.SQLITE_IOERR: "the disk of {path} failed or is full ({error}): check both before trying again",
    apsw.SQLITE_CANTOPEN: "{path} cannot be opened: check that its folder exists and that this user may write in it",
    apsw.SQLITE_NOTADB: "{path} is not a SQLite database: point the URL at another file",
    apsw.SQLITE_CORRUPT: "{path} is damaged ({error}): stop all workers and restore it from a backup",
    apsw.SQLITE_PROTOCOL: "{path} is contended beyond what SQLite's locking can resolve; try again",
}


def explained(error: apsw.Error | sqlite3.Error, path: Path | str) -> StoreError:
    """The error of our own tree that says the same, with the file and the advice."""
    message = str(error)
    code = _code(error)
    if code in _UNAVAILABLE:
        return StoreUnavailable(_UNAVAILABLE[code].format(path=path, error=message))
    if isinstance(error, apsw.ConnectionClosedError):
        return StoreUnavailable(f"{path} is closed: open the store before using it")
    if _TABLE.search(message):
        return SchemaMissing(f"{path} has not been migrated ({message}): run `rowlock migrate`")
    return StoreError(f"{path}: {message}")


def _code(error: apsw.Error | sqlite3.Error) -> int:
    """SQLite's primary result code, as either driver keeps it."""
    found: int = getattr(error, "result", None) or getattr(error, "sqlite_errorcode", None) or apsw.SQLITE_ERROR
    return found & 0xFF


@contextmanager
def explaining(path: Path | str) -> Iterator[None]:
    """Let no driver error out of the block unexplained."""
    try:
        yield
    except (apsw.Error, sqlite3.Error) as error:
        raise explained(error, path) from error
