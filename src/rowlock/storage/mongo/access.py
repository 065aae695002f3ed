"""Tokens and requests of the HTTP API."""

from __future__ import annotations

from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked

INDEXES: tuple[Index, ...] = ()


class Access(Worked):
    """Tokens and requests of the HTTP API."""
