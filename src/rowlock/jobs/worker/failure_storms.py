"""Failure storms: identical failures that come faster than anyone reads them are counted in one record a minute."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from rowlock.ids import uuid7
from rowlock.storage.records import Outcome, Settlement

WINDOW_SECONDS = 60.0
KINDS_MAX = 1_000
"""Kinds of failures that a worker remembers; beyond it, the worker clears them all and records one by one again."""

_COMPARED = 300  # characters of a reason
_NUMBERED = re.compile(r"\b[A-Za-z_]{0,32}\d[\w.:-]*")  # numbers, times, addresses, ids


@dataclass(slots=True)
class _Window:
    """A minute of one kind of failure."""

    began: float
    storm: bool  # the minute before had more failures than are recorded one by one
    seen: int = 0
    record: str | None = None  # the failure record that counts the others


class Storms:
    """Decides which failures of a worker get a record of their own.

    Failures are identical if job type, queue, company and reason are, apart from the numbers in the reason. Failures
    of a last attempt always get their own record: operators retry dead letters by it.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._windows: dict[tuple[str, str, str | None, str], _Window] = {}

    def sampled(self, end: Settlement, company_id: str | None) -> Settlement:
        """Return this settlement; in a storm, its failure is counted in the record of an earlier one."""
        if end.failure is None or end.outcome != Outcome.RETRY:
            return end
        window = self._window((end.type, end.queue, company_id, _NUMBERED.sub("#", (end.error or "")[:_COMPARED])))
        window.seen += 1
        if not window.storm and window.seen <= self._per_minute:
            return end
        if window.record is None:
            window.record = uuid7()
        return end._replace(failure=end.failure._replace(id=window.record, counted=True))

    def _window(self, kind: tuple[str, str, str | None, str]) -> _Window:
        now = self._clock()
        window = self._windows.get(kind)
        if window is not None and now - window.began < WINDOW_SECONDS:
            return window
        storm = window is not None and now - window.began < 2 * WINDOW_SECONDS and window.seen > self._per_minute
        if window is None and len(self._windows) >= KINDS_MAX:
            self._windows.clear()
        window = self._windows[kind] = _Window(now, storm)
        return window
