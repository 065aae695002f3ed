"""Where a worker's next claim starts to look.

Rows that were claimed stay in the index until vacuum may remove them; while some old transaction is open it may
not, and every scan from the head steps over all of them. Looking from the head is what keeps priorities exact, so
it is the rule; only where a large claim took far longer than such claims do, the worker goes on from where it
ended for a while: five times what the slow scan cost.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

HEAD = (-32769, 0)
PATIENCE = 5.0
LARGE = 50  # smaller claims say nothing about what a row costs
SLOW_FACTOR = 2.0
SLOW_SECONDS = 0.002


@dataclass(slots=True)
class Scan:
    """One worker's place in one queue."""

    place: tuple[int, int] = HEAD
    key: str = ""
    _usual_seconds: float = 0.0  # per job of a large claim, the least seen, forgotten slowly
    _head_due: float = 0.0
    _started: float = 0.0

    def start(self) -> tuple[int, int]:
        """Where to look from, for the claim about to be made."""
        self._started = time.monotonic()
        if self._started >= self._head_due:
            self.place = HEAD
        return self.place

    def end(self, claimed: int, asked: int, last: tuple[int, int], last_key: str | None) -> bool:
        """Note how the claim went; True when it must be made again, from the head, before it may be called empty."""
        now = time.monotonic()
        took, from_head = now - self._started, self.place == HEAD
        if last_key:
            self.key = last_key
        if claimed < asked:
            self._head_due = 0.0
            return claimed == 0 and not from_head
        if claimed < LARGE:
            return False
        each = took / claimed
        self._usual_seconds = min(each, self._usual_seconds * 1.01) or each
        excess = took - SLOW_FACTOR * self._usual_seconds * claimed - SLOW_SECONDS
        if not from_head:
            self.place = max(self.place, last)
        elif excess > 0:
            self.place = last
            self._head_due = now + PATIENCE * took
        return False
