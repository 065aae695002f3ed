"""Job counters, updated in the transaction of each change: SQLite has one writer, so they cause no contention."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import apsw

from rowlock.storage.records import Status
from rowlock.storage.reliability import Activity, Total
from rowlock.storage.sqlite.callers import ApswCaller, Caller
from rowlock.storage.sqlite.sql import SQL, run

_MINUTE_MICROS = 60_000_000
_KEPT_MINUTES = 25 * 60


@dataclass(slots=True)
class Change:
    """The counter deltas of one transaction for one queue and job type."""

    alive: int = 0
    delayed: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    failures: int = 0
    retries: int = 0
    rescues: int = 0
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


class Counters(defaultdict[tuple[str, str], Change]):
    """The counter deltas of one transaction, by queue and job type."""

    def __init__(self) -> None:
        super().__init__(Change)

    def write(self, caller: Caller, now: int) -> None:
        changed = {kind: change for kind, change in self.items() if change}
        caller.each(SQL["add_totals"], [_total(kind, change) for kind, change in changed.items()])
        happened = [_minute(now, kind, change) for kind, change in changed.items() if _is_event(change)]
        caller.each(SQL["add_minutes"], happened)


def _total(kind: tuple[str, str], change: Change) -> tuple[object, ...]:
    return (*kind, change.alive, change.delayed, change.succeeded, change.failed, change.cancelled)


def _is_event(change: Change) -> bool:
    return max(change.succeeded, change.failed, change.cancelled, change.failures, change.retries, change.rescues) > 0


def _minute(now: int, kind: tuple[str, str], change: Change) -> tuple[object, ...]:
    # History stays when a finished job is removed or retried, so only increases count here.
    happened = (max(change.succeeded, 0), max(change.failed, 0), max(change.cancelled, 0))
    return (now // _MINUTE_MICROS, *kind, *happened, change.failures, change.retries, change.rescues, change.seconds)


def write(connection: apsw.Connection, now: int, changes: Mapping[tuple[str, str], Change]) -> None:
    """Add these deltas to the counters."""
    counters = Counters()
    counters.update(changes)
    counters.write(ApswCaller(connection), now)


def counts(connection: apsw.Connection) -> dict[Status, int]:
    return dict(zip(Status, run(connection, "counts")[0], strict=True))


def totals(connection: apsw.Connection) -> list[Total]:
    return [Total._make(row) for row in run(connection, "totals")]


def activity(connection: apsw.Connection, now: int, seconds: float) -> list[Activity]:
    since = (now - round(seconds * 1e6)) // _MINUTE_MICROS
    return [Activity._make(row) for row in run(connection, "activity", {"since": since})]


def forget(connection: apsw.Connection, now: int) -> int:
    """Delete history older than 25 hours and return 0: these counters need no compaction."""
    for old in ("forget_minutes", "forget_lags"):
        run(connection, old, {"before": now // _MINUTE_MICROS - _KEPT_MINUTES})
    return 0
