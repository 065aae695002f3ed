"""What MongoDB and its driver say went wrong, in our own words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from bson.errors import BSONError
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    ExecutionTimeout,
    OperationFailure,
    PyMongoError,
)

from rowlock.errors import StoreError, StoreUnavailable

TRANSIENT = "TransientTransactionError"
DUPLICATE = 11000

_DENIED = frozenset({13, 18})
_UNAVAILABLE_CODES = frozenset({50, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436})
_FULL_CODE, _FULL_WORDS = 14031, "No space left on device"  # some writes say it in words alone


class TransactionConflict(StoreUnavailable, PyMongoError):
    """Others were in the way of a transaction: it was rolled back, and can be tried again whole.

    One of the driver's too, so that a caller's own `with_transaction` does try again.
    """

    def has_error_label(self, label: str) -> bool:
        return label == TRANSIENT


def without_password(url: str) -> str:
    """The URL as it may be shown: no password, and no parameters, which may hold one."""
    parts = urlsplit(url)
    netloc = parts.netloc
    if "@" in netloc:
        netloc = f"{parts.username or ''}@{netloc.rpartition('@')[2]}"
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))


def in_own_words(error: PyMongoError | BSONError, url: str) -> StoreError:
    """The error of our own tree that says the same."""
    told = said(error)
    codes = _codes(error)
    if isinstance(error, TransactionConflict):
        return error
    if isinstance(error, PyMongoError) and error.has_error_label(TRANSIENT):
        return TransactionConflict(f"MongoDB at {url} rolled a transaction back: {told}; try it again")
    if codes & _DENIED:
        return StoreUnavailable(f"MongoDB at {url} refused the connection: {told}; check DATABASE_URL")
    if isinstance(error, ConnectionFailure | ExecutionTimeout | AutoReconnect) or codes & _UNAVAILABLE_CODES:
        return StoreUnavailable(f"MongoDB at {url} is not available: {told}")
    if _FULL_CODE in codes or _FULL_WORDS in told:
        return StoreUnavailable(f"the disk of MongoDB at {url} is full: {told}; free some of it and try again")
    if isinstance(error, ConfigurationError):
        return StoreUnavailable(f"MongoDB at {url} cannot be reached as DATABASE_URL says: {told}")
    return StoreError(f"MongoDB at {url}: {told}")


def said(error: Exception) -> str:
    """What an error says, without the documents that it is about, nor the topology that follows the reason."""
    if isinstance(error, PyMongoError) and is_duplicate(error):
        return "this id or key is there already"
    first = next(iter(_write_errors(error)), {})
    text = str(first.get("errmsg") or error).partition(", full error:")[0].partition(", Timeout:")[0]
    return text[:500] or type(error).__name__


def _codes(error: Exception) -> set[int]:
    """MongoDB's numbers for what went wrong; of a batch, those of its writes."""
    if isinstance(error, BulkWriteError):
        return {one["code"] for one in _write_errors(error)}
    return {error.code} if isinstance(error, OperationFailure) and error.code is not None else set()


def _write_errors(error: Exception) -> list[dict[str, Any]]:
    """What a batch says of its single writes, and then of how they were kept."""
    details = (error.details or {}) if isinstance(error, BulkWriteError) else {}
    return [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]


@contextmanager
def own_words(url: str) -> Iterator[None]:
    """Let no error of the driver's out of the block unexplained."""
    try:
        yield
    except StoreError:
        raise
    except TimeoutError as error:
        raise StoreUnavailable(f"MongoDB at {url} is not available: it did not answer in time") from error
    except (PyMongoError, BSONError) as error:
        raise in_own_words(error, url) from error


def is_duplicate(error: PyMongoError) -> bool:
    """Whether an id or key is there already."""
    return DUPLICATE in _codes(error)
