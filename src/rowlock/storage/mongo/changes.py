"""Jobs that changed lately, for those who watch, and workers."""

from __future__ import annotations

from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked

INDEXES: tuple[Index, ...] = ()


class Changing(Worked):
    """Jobs that changed lately, for those who watch, and workers."""
