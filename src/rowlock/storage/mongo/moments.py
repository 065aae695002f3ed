"""Time on MongoDB: BSON dates, which have milliseconds; a moment is rounded down to them, a duration up.

no fake clock:  "$$NOW" in a pipeline, or `Scope.now()`, both the server's
a fake clock:   its moment, as a literal, in either place
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from rowlock.clock import Clock

MILLISECOND = timedelta(milliseconds=1)


def floor(moment: datetime) -> datetime:
    """The moment as MongoDB keeps it: in UTC, without the microseconds below its last millisecond."""
    utc = moment.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def floor_or_none(moment: datetime | None) -> datetime | None:
    return None if moment is None else floor(moment)


def millis(seconds: float) -> int:
    """A duration in whole milliseconds, none shorter than it was asked for."""
    return math.ceil(round(seconds * 1000, 6))


def after(now: datetime, seconds: float) -> datetime:
    """So many seconds later, or earlier where they are negative."""
    return floor(now) + timedelta(milliseconds=millis(seconds))


def now_of(clock: Clock) -> datetime | str:
    """What stands for the time in a pipeline or an `$expr`."""
    given = clock.now()
    return "$$NOW" if given is None else floor(given)
