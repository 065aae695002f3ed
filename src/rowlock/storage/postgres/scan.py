"""Decides where a worker's next claim starts to scan.

Claimed rows stay in the index until vacuum can remove them. While an old transaction is open vacuum cannot, and every
scan from the head steps over all of them. Claims normally scan from the head, which keeps priorities exact. Only if a
large claim took far longer than usual, the worker continues from its last position for a while: five times what the
slow scan cost.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

HEAD = (-32769, 0)
PATIENCE = 5.0
LARGE = 50  # smaller claims do not show the cost per row
SLOW_FACTOR = 2.0
SLOW_SECONDS = 0.002
ROUNDS_AT_MOST = 4  # claims in a row that continue to further limit keys if earlier keys are full


@dataclass(slots=True)
class Scan:
    """One worker's position in one queue."""

    place: tuple[int, int] = HEAD
    key: str = ""  # the last limit key that a claim looked at, if there are too many for one claim
    _rounds: int = 0  # empty claims in a row that did not look at all keys
    _usual_seconds: float = 0.0  # per job of a large claim: a slowly rising minimum
    _head_due: float = 0.0
    _started: float = 0.0

    def start(self) -> tuple[int, int]:
        """Returns the position from which the next claim scans."""
        self._started = time.monotonic()
        if self._started >= self._head_due:
            self.place = HEAD
        return self.place

    def end(self, claimed: int, asked: int, last: tuple[int, int], stopped_at: str | None) -> bool:
        """Records a claim's result; returns True if it must be repeated elsewhere before the queue counts as empty."""
        now = time.monotonic()
        took, from_head = now - self._started, self.place == HEAD
        self.key = stopped_at or ""
        if stopped_at is not None and not claimed:
            self._rounds += 1
            if self._rounds < ROUNDS_AT_MOST:
                return True
        self._rounds = 0
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
