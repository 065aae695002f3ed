"""Translates errors of MongoDB and its driver to Rowlock's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from bson.errors import BSONError, InvalidDocument, InvalidStringData
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    ExecutionTimeout,
    OperationFailure,
    PyMongoError,
)

from rowlock.errors import (
    StatementRefused,
    StoreConflict,
    StoreError,
    StoreUnavailable,
    TransactionTooLarge,
    ValueRefused,
)

TRANSIENT = "TransientTransactionError"
DUPLICATE = 11000

_UNAUTHENTICATED, _UNAUTHENTICATED_WORDS = 18, "requires authentication"  # this message comes with _NO_RIGHT
_NO_RIGHT = 13
# BadValue, FailedToParse, TypeMismatch, NamespaceNotFound, conflicting updates, CommandNotFound, InvalidNamespace,
# an unknown stage, operator or field of a command.
_STATEMENT_CODES = frozenset({2, 9, 14, 26, 40, 59, 73, 168, 40324, 40415})
_UNAVAILABLE_CODES = frozenset({50, 89, 91, 189, 262, 365, 9001, 10107, 11600, 11602, 13435, 13436})
# Overflow, InvalidBSON, field names, DocumentValidationFailure, documents and keys that are too large, duplicate keys.
_VALUE_CODES = frozenset({15, 22, 52, 56, 57, 121, 10334, 17280, 17419, 17420, DUPLICATE})
# TransactionExceededLifetimeLimitSeconds, TransactionTooLargeForCache; before 6.2 only a conflict's message may say so.
_TOO_LARGE_CODES = frozenset({290, 388})
_TOO_LARGE_WORDS = ("will not fit in the storage engine cache", "rolled back for eviction")
_FULL_CODE, _FULL_WORDS = 14031, "No space left on device"  # some writes have only the message


class TransactionConflict(StoreConflict, PyMongoError):
    """A transaction conflicted with others and was rolled back; it can be retried as a whole.

    Also an error of the driver, so that a caller's own `with_transaction` retries.
    """

    def has_error_label(self, label: str) -> bool:
        return label == TRANSIENT


def without_password(url: str) -> str:
    """Return the URL for display: without its password, and without parameters, which may contain one."""
    parts = urlsplit(url)
    netloc = parts.netloc
    if "@" in netloc:
        netloc = f"{parts.username or ''}@{netloc.rpartition('@')[2]}"
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))


def translated(error: PyMongoError | BSONError, url: str) -> StoreError:
    """Return Rowlock's error for an error of the driver."""
    told = said(error)
    codes = _codes(error)
    if isinstance(error, TransactionConflict):
        return error
    if codes & _TOO_LARGE_CODES or any(words in told for words in _TOO_LARGE_WORDS):
        return TransactionTooLarge(
            f"MongoDB at {url}: {told}; write less in one transaction, or give the server a larger cache"
        )
    if isinstance(error, PyMongoError) and error.has_error_label(TRANSIENT):
        return TransactionConflict(f"MongoDB at {url} rolled a transaction back: {told}; try it again")
    if _UNAUTHENTICATED in codes or (_NO_RIGHT in codes and _UNAUTHENTICATED_WORDS in told):
        return StoreUnavailable(f"MongoDB at {url} refused the connection: {told}; check DATABASE_URL")
    if isinstance(error, ConnectionFailure | ExecutionTimeout | AutoReconnect) or codes & _UNAVAILABLE_CODES:
        return StoreUnavailable(f"MongoDB at {url} is not available: {told}")
    if _FULL_CODE in codes or _FULL_WORDS in told:
        return StoreUnavailable(f"the disk of MongoDB at {url} is full: {told}; free some space and try again")
    if isinstance(error, ConfigurationError):
        return StoreUnavailable(f"MongoDB at {url} cannot be reached as DATABASE_URL says: {told}")
    # A batch only if every error is of this kind: other errors may be temporary.
    if isinstance(error, InvalidDocument | InvalidStringData) or (codes and codes <= _VALUE_CODES):
        return ValueRefused(f"MongoDB at {url}: {told}")
    if _NO_RIGHT in codes:
        right = told.partition(" to execute command")[0]
        return StatementRefused(
            f"MongoDB at {url} refused a command: {right}; give this user readWrite on the database"
        )
    if codes and codes <= _STATEMENT_CODES:
        return StatementRefused(
            f"MongoDB at {url} refused a command: {told}; correct the statement, or create what is missing"
        )
    return StoreError(f"MongoDB at {url}: {told}")


def said(error: Exception) -> str:
    """Return the error's message without its documents and without the topology that follows the reason."""
    if isinstance(error, PyMongoError) and is_duplicate(error):
        return "this id or key already exists"
    first = next(iter(_write_errors(error)), {})
    text = str(first.get("errmsg") or error).partition(", full error:")[0].partition(", Timeout:")[0]
    return text[:500] or type(error).__name__


def _codes(error: Exception) -> set[int]:
    """Return MongoDB's error codes; for a batch, those of its writes."""
    if isinstance(error, BulkWriteError):
        return {one["code"] for one in _write_errors(error)}
    return {error.code} if isinstance(error, OperationFailure) and error.code is not None else set()


def _write_errors(error: Exception) -> list[dict[str, Any]]:
    """Return the write errors of a batch, then its write concern errors; empty for other errors."""
    details = (error.details or {}) if isinstance(error, BulkWriteError) else {}
    return [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]


@contextmanager
def translated_errors(url: str) -> Iterator[None]:
    """Translate every error of the driver that leaves the block."""
    try:
        yield
    except StoreError:
        raise
    except TimeoutError as error:
        raise StoreUnavailable(f"MongoDB at {url} is not available: it did not answer in time") from error
    except (PyMongoError, BSONError) as error:
        raise translated(error, url) from error
    except (OverflowError, UnicodeError) as error:  # the driver cannot encode it
        raise ValueRefused(f"MongoDB at {url} cannot hold a value: {error}") from error


def is_duplicate(error: PyMongoError) -> bool:
    """Whether the error is that an id or key exists already."""
    return DUPLICATE in _codes(error)
