"""What must not be done twice at once."""

from __future__ import annotations

from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked

INDEXES: tuple[Index, ...] = ()


class Locks(Worked):
    """What must not be done twice at once."""
