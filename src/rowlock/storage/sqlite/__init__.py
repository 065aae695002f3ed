"""The SQLite store: one file, one writer at a time, no server."""

from rowlock.storage.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
