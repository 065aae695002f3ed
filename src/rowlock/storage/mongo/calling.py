"""Calls of other services, within their limits."""

from __future__ import annotations

from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked

INDEXES: tuple[Index, ...] = ()


class Calling(Worked):
    """Calls of other services, within their limits."""
