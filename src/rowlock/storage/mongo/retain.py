"""What is removed, and when."""

from __future__ import annotations

from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked

INDEXES: tuple[Index, ...] = ()


class Retention(Worked):
    """What is removed, and when."""
