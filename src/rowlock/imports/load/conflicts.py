"""Retry transactions of an import that conflict with others, which costs their job no attempt."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rowlock.errors import Outcome, Snooze, StoreConflict

T = TypeVar("T")

TRY_SECONDS = 60.0
"""How long a transaction is retried before its job is released."""

PAUSE_SECONDS = (0.05, 2.0)
RELEASE_SECONDS = 2.0
RELEASES_MAX = 100
"""How often a job is released for a conflict; each further conflict costs an attempt."""


def is_conflict(error: BaseException | None) -> bool:
    """Return whether an error means a conflict of transactions; driver errors count, as hooks get them untranslated."""
    while error is not None:
        sqlstate = getattr(error, "sqlstate", None)
        if isinstance(error, StoreConflict) or (isinstance(sqlstate, str) and sqlstate.startswith("40")):
            return True
        error = error.__cause__
    return False


async def until_it_commits(step: Callable[[], Awaitable[T]]) -> T:
    """Run a step of an import, which is one transaction; retries it on conflicts, for TRY_SECONDS."""
    until, (pause, longest) = time.monotonic() + TRY_SECONDS, PAUSE_SECONDS
    while True:
        try:
            return await step()
        except Outcome:
            raise
        except Exception as error:
            if not is_conflict(error) or time.monotonic() + pause > until:
                raise
        await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - not a secret
        pause = min(2 * pause, longest)


def check_conflict(error: Exception, releases: int) -> None:
    """Raise Snooze, so that the attempt does not count, for a conflict of a job that was not released too often.

    Without that limit, a hook that blocks its own import through another connection would never end.
    """
    if is_conflict(error) and releases < RELEASES_MAX:
        raise Snooze(RELEASE_SECONDS, f"its transaction conflicted with others: {error}") from error
