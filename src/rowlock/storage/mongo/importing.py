"""Imports, chunk by chunk."""

from __future__ import annotations

from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import InTransaction, Worked

INDEXES: tuple[Index, ...] = ()


class Importing(Worked):
    """Imports, chunk by chunk."""


class ImportingTransaction(InTransaction):
    """What an import does inside a transaction."""
