"""Turns an exception into one line for people, a JSON object for programs, and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import typer
import typer.main

from rowlock.errors import (
    BadCursor,
    BadPayload,
    DuplicateImport,
    DuplicateJob,
    FileRefused,
    IntegrationNotFound,
    OperationNotFound,
    RequestFailed,
    RowlockError,
    ScheduleNotFound,
    SettingsError,
    UnknownImportType,
    UnknownJobType,
)

OK, FAILED, USAGE = 0, 1, 2

_WRONG_BY_ITSELF = (
    *(BadCursor, BadPayload, IntegrationNotFound, OperationNotFound, ScheduleNotFound, SettingsError),
    *(UnknownImportType, UnknownJobType),
)
"""Usage errors: the same command would always fail."""
_WRONG_TO_A_SERVER = ("malformed_body", "validation_failed")


class UsageError(RowlockError):
    """The command's arguments are not valid."""

    code = "usage"


def reported(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; errors become messages, or stack traces with ROWLOCK_DEBUG set."""
    as_json = "--json" in arguments
    debug = bool(os.environ.get("ROWLOCK_DEBUG"))
    try:
        code: int = _built(app).main(list(arguments), prog_name="rowlock", standalone_mode=False) or OK
        sys.stdout.flush()
        return code
    except RowlockError as error:
        if debug:
            raise
        _say(error.code, str(error), as_json, _details(error))
        return USAGE if _wrong_by_itself(error) else FAILED
    except typer.Abort:
        _say("aborted", "aborted; nothing was changed", as_json)
        return FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader is gone: discard further output
        return FAILED
    except Exception as error:
        # Exceptions of the argument parser, recognised by their attributes: typer may bring its own copy of click.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            return _usage(error, as_json)
        if debug:
            raise
        _say("bug", f"unexpected {type(error).__name__}: {error} (ROWLOCK_DEBUG=1 shows the traceback)", as_json)
        return FAILED


@cache
def _built(app: typer.Typer) -> Any:
    """Return the parser of all commands; cached, because building it takes as long as running a command."""
    return typer.main.get_command(app)


def _usage(error: Any, as_json: bool) -> int:
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return USAGE
    context = getattr(error, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    _say("usage", message.rstrip(".") + hint, as_json)
    return int(error.exit_code)


def _wrong_by_itself(error: RowlockError) -> bool:
    if isinstance(error, RequestFailed):
        return error.code in _WRONG_TO_A_SERVER
    return isinstance(error, (UsageError, *_WRONG_BY_ITSELF))


def _details(error: RowlockError) -> dict[str, Any]:
    if isinstance(error, DuplicateJob):
        return {"existingJobId": error.existing_job_id, "existingRemoved": error.removed}
    if isinstance(error, DuplicateImport):
        return {"existingImportId": error.existing_import_id}
    if isinstance(error, FileRefused):
        return dict(error.more)
    return {}


def _say(code: str, message: str, as_json: bool, details: dict[str, Any] | None = None) -> None:
    line = " ".join(message.split())
    sys.stdout.flush()
    sys.stderr.write(f"error: {line}\n")
    if as_json:
        import orjson

        sys.stdout.write(orjson.dumps({"code": code, "message": line, **(details or {})}).decode() + "\n")
