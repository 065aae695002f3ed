"""Where a worker's next claim starts to look.

Rows that a worker has claimed stay in the index until vacuum may remove them; while some old transaction is
open it may not, and every scan from the head steps over all of them. So a worker may start where its last claim
ended. Looking from the head is what keeps priorities exact, and stays the rule while it is cheap: after a scan
that cost more than a resumed one, the next is due when five times the excess has passed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

HEAD = (-32769, 0)
PATIENCE = 5.0


@dataclass(slots=True)
class Scan:
    """One worker's place in one queue."""

    place: tuple[int, int] = HEAD
    key: str = ""
    _resumed_seconds: float | None = None
    _head_due: float = 0.0
    _from_head: bool = True
    _started: float = 0.0

    def start(self) -> tuple[int, int]:
        """Where to look from, for the claim about to be made."""
        self._started = time.monotonic()
        self._from_head = self.place == HEAD or self._started >= self._head_due
        return HEAD if self._from_head else self.place

    def end(self, claimed: int, asked: int, last: tuple[int, int] | None, last_key: str | None) -> bool:
        """Note how the claim went; True when it must be made again from the head before it may be called short."""
        finished = time.monotonic()
        took = finished - self._started
        if last_key:
            self.key = last_key
        if claimed < asked:
            self.place = HEAD
            return not self._from_head and claimed == 0
        assert last is not None
        if self._from_head:
            excess = 0.0 if self._resumed_seconds is None else took - 1.5 * self._resumed_seconds
            self._head_due = finished + PATIENCE * max(0.0, excess)
            # Now and then a resumed claim is made to learn what one costs.
            if self._resumed_seconds is None:
                self._head_due = finished + took
            self.place = last
        else:
            known = self._resumed_seconds
            self._resumed_seconds = took if known is None else 0.8 * known + 0.2 * took
            self.place = max(self.place, last)
        return False
