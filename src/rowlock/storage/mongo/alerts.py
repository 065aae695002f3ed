"""Alerts, and the numbers that workers add to."""

from __future__ import annotations

from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked

INDEXES: tuple[Index, ...] = ()


class Alerts(Worked):
    """Alerts, and the numbers that workers add to."""
