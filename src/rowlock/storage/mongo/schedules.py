"""What runs when, once in the fleet."""

from __future__ import annotations

from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked

INDEXES: tuple[Index, ...] = ()


class Schedules(Worked):
    """What runs when, once in the fleet."""
