"""Jobs by filter, newest first."""

from __future__ import annotations

from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked

INDEXES: tuple[Index, ...] = ()


class Listing(Worked):
    """Jobs by filter, newest first."""
