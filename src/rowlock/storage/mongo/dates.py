"""Time on MongoDB. BSON dates have milliseconds: a moment is rounded down to them, a duration up.

no fake clock:  "$$NOW" in a pipeline, or `Scope.now()`, both the server's
a fake clock:   its moment, as a literal, in either place
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from rowlock.clock import Clock

MILLISECOND = timedelta(milliseconds=1)


def floor(moment: datetime) -> datetime:
    """Return the moment as MongoDB stores it: in UTC, rounded down to milliseconds."""
    utc = moment.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def floor_or_none(moment: datetime | None) -> datetime | None:
    return None if moment is None else floor(moment)


def millis(seconds: float) -> int:
    """Return a duration in whole milliseconds, rounded up."""
    return math.ceil(round(seconds * 1000, 6))


def after(now: datetime, seconds: float) -> datetime:
    """Return the moment `seconds` later, or earlier if they are negative."""
    return floor(now) + timedelta(milliseconds=millis(seconds))


def now_of(clock: Clock) -> datetime | str:
    """Return the time for a pipeline or an `$expr`: "$$NOW", or the fake clock's."""
    given = clock.now()
    return "$$NOW" if given is None else floor(given)
