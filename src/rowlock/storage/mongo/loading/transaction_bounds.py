"""How much one transaction can write: the server keeps all writes of an open transaction in its cache.

Measured on mongod 6.0 with a cache of 256 MB: one transaction takes 45,000 rows of 50 bytes into a collection with one
unique index beside `_id`, or 480 rows of 100 kB, and then fails with TransactionTooLargeForCache. That is a fifth of
the cache, at 1,150 bytes a row in addition to its text.
"""

from __future__ import annotations

from pymongo.errors import PyMongoError

from rowlock.storage.imports import TransactionBounds
from rowlock.storage.mongo.connection import Scope

CHUNK_ROWS = 5_000
CHUNK_BYTES = 2 << 20
"""Seven such chunks fill a fifth of MongoDB's smallest default cache, 256 MB."""

_ROW_BYTES = 1_200
_SHARE = 0.15  # of the cache; the rest of the fifth is for other transactions
_UNKNOWN_CACHE_BYTES = 1 << 30  # assumed if serverStatus does not answer: servers of this size are common
_CACHE = "maximum bytes configured"


async def transaction_bounds(scope: Scope) -> TransactionBounds:
    try:
        status = await scope.db.client.admin.command("serverStatus", metrics=0, locks=0, opcounters=0, repl=0)
        cache_bytes = int(status["wiredTiger"]["cache"][_CACHE])
    except (PyMongoError, KeyError):  # the user lacks the right, or this is a mongos router
        cache_bytes = _UNKNOWN_CACHE_BYTES
    return TransactionBounds(CHUNK_ROWS, CHUNK_BYTES, _ROW_BYTES, int(cache_bytes * _SHARE))
