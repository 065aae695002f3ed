"""The record of failed attempts."""

from __future__ import annotations

from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked

INDEXES: tuple[Index, ...] = ()


class Failures(Worked):
    """The record of failed attempts."""
