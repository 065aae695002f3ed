"""Guidance: what people may do about jobs that died, the same in messages to staff, commands and answers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

# What was refused says so in many words, as a number most often; "row 403" is not one of them.
_DENIED = re.compile(
    r"\bCallRefused\b|MISSING_SCOPES|\b(?:unauthori[sz]ed|forbidden)\b"
    r"|(?<!row )(?<!line )(?<![\w.,:#/-])(?:401|403)(?![\w%-]|[.,]\d)",
    re.IGNORECASE,
)


class OtherSide(NamedTuple):
    """The system that jobs of some types call."""

    name: str
    scopes_url: str | None = None  # where its owner says what our credentials may do


def denied(reason: str) -> bool:
    """Whether the other system refused our credentials or their scopes."""
    return _DENIED.search(reason) is not None


def about_job(job_id: str, reason: str, other: OtherSide | None) -> list[str]:
    """What to do about one job that failed for good."""
    again = f"When the cause is gone, run it again: rowlock dead retry {job_id}"
    return [*_put_right(reason, other), again, *_run_all(other)]


def about_jobs(name: str, count: int, job_ids: Sequence[str], reason: str, other: OtherSide | None) -> list[str]:
    """What to do about jobs of one type that failed for good; these ids are those of the last."""
    quoted = shlex.quote(name)
    again = f"rowlock dead retry {job_ids[0]}" if count == 1 and job_ids else f"rowlock dead retry --type {quoted}"
    return [
        *_put_right(reason, other),
        *([f"See what happened: rowlock jobs show {job_ids[0]}"] if job_ids else []),
        f"See all of them: rowlock dead list --type {quoted}",
        f"When the cause is gone, run again: {again}",
        *_run_all(other),
    ]


def about_group(name: str, reason: str, other: OtherSide | None) -> list[str]:
    """What to do about jobs of one type that failed for good for the same reason."""
    which = f"--type {shlex.quote(name)} --reason {shlex.quote(reason)}"
    return [*_put_right(reason, other), f"When the cause is gone, run all of them again: rowlock dead retry {which}"]


def _run_all(other: OtherSide | None) -> list[str]:
    if other is None:
        return []
    types = shlex.quote(f"{other.name}.*")
    return [f"To run all jobs of {other.name} again that failed: rowlock dead retry --type {types}"]


def _put_right(reason: str, other: OtherSide | None) -> list[str]:
    if not denied(reason):
        return []
    where = f" Those of {other.name} are set at {other.scopes_url}" if other is not None and other.scopes_url else ""
    return [
        "The other system refused our credentials or their scopes (401, 403 or MISSING_SCOPES): trying again cannot "
        f"help before they are put right.{where}"
    ]
