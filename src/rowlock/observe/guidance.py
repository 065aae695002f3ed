"""Guidance: what to do about dead letters, the same in notifications, commands and HTTP responses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

# Services report refused credentials in many ways, mostly as a status number; "row 403" is not one of them.
_DENIED = re.compile(
    r"\bCallRefused\b|MISSING_SCOPES|\b(?:unauthori[sz]ed|forbidden)\b"
    r"|(?<!row )(?<!line )(?<![\w.,:#/-])(?:401|403)(?![\w%-]|[.,]\d)",
    re.IGNORECASE,
)


IMPORT_JOB = "rowlock.import"
_IMPORTS = (
    "See the imports that failed with their jobs: rowlock imports list --status FAILED",
    "When the cause is fixed, resume the import: rowlock imports resume IMPORT_ID",
)


class OtherSide(NamedTuple):
    """The external system that jobs of some types call."""

    name: str
    scopes_url: str | None = None  # where its owner sets the scopes of our credentials


def denied(reason: str) -> bool:
    """Whether the other system refused our credentials or their scopes."""
    return _DENIED.search(reason) is not None


def about_job(job_id: str, reason: str, other: OtherSide | None, import_id: str | None = None) -> list[str]:
    """Return what to do about one dead letter; `import_id` is the import that it belongs to."""
    if import_id is not None:
        return [
            "The import failed because this job failed; chunks that are loaded stay loaded.",
            f"When the cause is fixed, resume the import: rowlock imports resume {shlex.quote(import_id)}",
        ]
    again = f"When the cause is fixed, retry it: rowlock dead retry {job_id}"
    return [*_correct_credentials(reason, other), again, *_run_all(other)]


def about_jobs(name: str, count: int, job_ids: Sequence[str], reason: str, other: OtherSide | None) -> list[str]:
    """Return what to do about the dead letters of one type; `job_ids` are those of the last ones."""
    quoted = shlex.quote(name)
    if name == IMPORT_JOB:
        return [
            *([f"See what happened: rowlock jobs show {job_ids[0]}"] if job_ids else []),
            *_IMPORTS,
        ]
    again = f"rowlock dead retry {job_ids[0]}" if count == 1 and job_ids else f"rowlock dead retry --type {quoted}"
    return [
        *_correct_credentials(reason, other),
        *([f"See what happened: rowlock jobs show {job_ids[0]}"] if job_ids else []),
        f"See all of them: rowlock dead list --type {quoted}",
        f"When the cause is fixed, retry: {again}",
        *_run_all(other),
    ]


def about_group(name: str, reason: str, other: OtherSide | None) -> list[str]:
    """Return what to do about the dead letters of one type with the same reason."""
    if name == IMPORT_JOB:
        return list(_IMPORTS)
    which = f"--type {shlex.quote(name)} --reason {shlex.quote(reason)}"
    return [
        *_correct_credentials(reason, other),
        f"When the cause is fixed, retry all of them: rowlock dead retry {which}",
    ]


def _run_all(other: OtherSide | None) -> list[str]:
    if other is None:
        return []
    types = shlex.quote(f"{other.name}.*")
    return [f"To retry all failed jobs of {other.name}: rowlock dead retry --type {types}"]


def _correct_credentials(reason: str, other: OtherSide | None) -> list[str]:
    if not denied(reason):
        return []
    where = (
        f" The scopes of {other.name} are set at {other.scopes_url}" if other is not None and other.scopes_url else ""
    )
    return [
        "The service refused the credentials or their scopes (401, 403 or MISSING_SCOPES): correct them before you "
        f"retry.{where}"
    ]
