"""Parses times on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from rowlock.cli.errors import UsageError

Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only jobs enqueued since 2030-01-31T08:00:00Z, or 30m, 2h, 7d ago."),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Only jobs enqueued before this time, in the same format.")
]

_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def moment_of(text: str | None, option: str) -> datetime | None:
    """Parse an ISO 8601 time, without a zone in that of this machine; raises UsageError if it is malformed."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.astimezone()
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {text}: not a time such as 2030-01-31T08:00:00Z") from None


def past_of(text: str | None, option: str) -> datetime | None:
    """Parse an ISO 8601 time, or a time before now: 30m, 2h, 7d."""
    ago = _AGO.fullmatch(text or "")
    if ago is None:
        return moment_of(text, option)
    try:
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    except OverflowError:
        raise UsageError(f"{option} {text}: that is too long ago") from None
