"""How long, and how often, a conflicting transaction is retried."""

from __future__ import annotations

import random
import time

from pymongo.errors import PyMongoError

from rowlock.storage.mongo.errors import TRANSIENT, is_duplicate

PATIENCE = 0.75
"""The share of a statement's time in which its transaction is retried; the rest is for the last try."""
TRIES_OF_A_KEY = 5
NAP_SECONDS = (0.002, 0.25)
"""The first and the longest pause between two tries; the actual pause is random, up to this long."""

_UNKNOWN = "UnknownTransactionCommitResult"


class Tries:
    """The tries of one transaction: limited by time, not by number.

    If a process is killed within a transaction, its locks stay until that transaction is ended. Meanwhile every try
    fails at once, so a limited number of tries would be used up within seconds.
    """

    __slots__ = ("_began", "_ends", "_failed")

    def __init__(self, seconds: float) -> None:
        self._began = time.monotonic()
        self._ends = self._began + seconds * PATIENCE
        self._failed = 0

    def again(self, error: PyMongoError) -> bool:
        """Whether to try again after this error."""
        return self._counted() and (
            error.has_error_label(TRANSIENT)
            # Another transaction may just have taken the key: the next try sees it. If not, the id itself is taken.
            or (self._failed < TRIES_OF_A_KEY and is_duplicate(error))
        )

    def commit_again(self, error: PyMongoError) -> bool:
        """Whether to commit again: only if the reply was lost, since to commit twice is to commit once."""
        return self._counted() and error.has_error_label(_UNKNOWN)

    def _counted(self) -> bool:
        self._failed += 1
        return time.monotonic() < self._ends

    @property
    def seconds(self) -> float:
        """Seconds since the first try began."""
        return time.monotonic() - self._began

    @property
    def pause_seconds(self) -> float:
        """Seconds to pause before the next try: longer each time, and random, so that two callers do not keep step."""
        first, longest = NAP_SECONDS
        return random.uniform(0, min(longest, first * 2 ** min(self._failed - 1, 10)))  # noqa: S311 - not a secret
