"""How many jobs there are, without counting them."""

from __future__ import annotations

from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked

INDEXES: tuple[Index, ...] = ()


class Counts(Worked):
    """How many jobs there are, without counting them."""
