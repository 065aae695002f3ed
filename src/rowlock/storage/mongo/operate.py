"""What operators do to jobs and queues."""

from __future__ import annotations

from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked

INDEXES: tuple[Index, ...] = ()


class Operators(Worked):
    """What operators do to jobs and queues."""
