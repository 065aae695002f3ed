"""Rows of files into collections of the user's."""

from __future__ import annotations

from rowlock.storage.mongo.work import InTransaction


class Loading(InTransaction):
    """What a load does inside a transaction."""
