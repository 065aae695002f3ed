"""Classify and describe the exceptions of handlers: try again, or never."""

from __future__ import annotations

import traceback

from rowlock.errors import (
    BadPayload,
    CallRefused,
    NoTransactions,
    Outcome,
    Permanent,
    SyncError,
    UnknownJobType,
)
from rowlock.observe.redaction import Redactor
from rowlock.settings import ERROR_LENGTH_MAX, STACK_LENGTH_MAX

_PERMANENT = (
    *(Permanent, BadPayload, UnknownJobType, NoTransactions),
    *(FileNotFoundError, NotADirectoryError, IsADirectoryError),
)
_DENIED = (401, 403)
_MISSING_SCOPES = "MISSING_SCOPES"
_FRAMES_MAX = 50


def is_permanent(error: BaseException, declared: tuple[type[BaseException], ...] = ()) -> bool:
    """Return whether trying again cannot help: a bad payload, a missing file, a refused credential, a declared type."""
    if isinstance(error, SyncError):  # decided by type: the message may repeat anything
        return isinstance(error, (CallRefused, *declared))
    return isinstance(error, _PERMANENT + declared) or _status(error) in _DENIED or _MISSING_SCOPES in _message(error)


def _status(error: BaseException) -> object:
    """Return the HTTP status that an exception of a common HTTP client carries, or None."""
    response = _attribute(error, "response")
    for holder, name in ((response, "status_code"), (response, "status"), (error, "status_code"), (error, "status")):
        found = _attribute(holder, name)
        if isinstance(found, int):
            return found
    return None


def _attribute(holder: object, name: str) -> object:
    try:
        return getattr(holder, name, None)
    except Exception:  # a property that raises, as some clients' `response` does
        return None


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a user's exception whose __str__ raises
        return ""


def describe(error: BaseException, redact: Redactor) -> str:
    """Return the type and message of an error for people, without secrets, cut to ERROR_LENGTH_MAX characters."""
    message = _message(error)
    kind = type(error).__name__
    text = message if isinstance(error, Outcome) and message else f"{kind}: {message}" if message else kind
    # Redacted before it is cut: half a secret is still a secret. Bounded first, since a message may be a whole file.
    return redact.text(text[: 50 * ERROR_LENGTH_MAX].replace("\x00", "\\x00"))[:ERROR_LENGTH_MAX]


def stack_of(error: BaseException, redact: Redactor) -> str | None:
    """Return the innermost end of the stack trace, without secrets, or None without a traceback."""
    if error.__traceback__ is None:
        return None
    try:
        # No local variables: they may hold anything.
        text = "".join(traceback.format_exception(error, limit=-_FRAMES_MAX, chain=True))
    except Exception:  # a user's exception that cannot be formatted
        text = "".join(traceback.format_tb(error.__traceback__, limit=-_FRAMES_MAX))
    return redact.text(text[-50 * STACK_LENGTH_MAX :].replace("\x00", "\\x00"))[-STACK_LENGTH_MAX:]
