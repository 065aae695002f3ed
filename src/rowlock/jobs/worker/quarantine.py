"""Quarantine candidates: jobs that one more process death would quarantine. Each runs alone in its process."""

from __future__ import annotations

import time
from collections.abc import Callable

from rowlock.storage.records import Claimed

ALONE_SECONDS = 3.0  # after which a running candidate no longer keeps the others waiting
AGAIN_SECONDS = 10.0  # delay of a released candidate, which could not run alone


class Quarantine:
    """Lets the candidates of all queues of a process run one after another, and nothing beside them."""

    def __init__(self, busy: Callable[[], bool], on_end: Callable[[], None]) -> None:
        """`busy` says whether anything runs in this process; `on_end` is called when other jobs may start again."""
        self._busy = busy
        self._on_end = on_end
        self.pending = False  # a candidate waits or runs alone: no other job starts
        self._running: Claimed | None = None
        self._started_at = 0.0

    def add(self) -> None:
        """Let no other job start, since a candidate waits."""
        self.pending = True

    def start(self, candidate: Claimed) -> bool:
        """Start the candidate if nothing else runs; returns whether it starts."""
        if self._running is not None or self._busy():
            return False
        self._running, self._started_at = candidate, time.monotonic()
        return True

    def remove(self) -> None:
        """Let others start, since the candidate has ended, or does not wait any more."""
        self.pending, self._running = False, None
        self._on_end()

    def job_ended(self, claimed: Claimed) -> None:
        """Let others start if this was the candidate; else the waiting candidate may start now."""
        if self._running is claimed:
            self.remove()
        else:
            self._on_end()

    def watch(self, now: float) -> None:
        """Let others start beside a candidate that has run for `ALONE_SECONDS`."""
        if self._running is not None and now - self._started_at > ALONE_SECONDS:
            self.remove()
