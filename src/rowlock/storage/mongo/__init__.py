"""The MongoDB store (6.0 and later), through pymongo's asynchronous client."""

from rowlock.storage.mongo.store import MongoStore

__all__ = ["MongoStore"]
