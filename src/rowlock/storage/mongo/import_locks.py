"""A lock for each import: one caller at a time decides about it, and a second one waits, as for a row lock in SQL.

MongoDB's transactions do not wait: if another has written since a transaction began, that is a conflict, and all of it
must be repeated, which is too much for a chunk whose rows are loaded. So the lock is beside the transaction:

    lock      a document with the import's id, a token and an expiry; others wait while it exists
    hold      a document with the token, written inside the transaction that has the lock
    read      the import and its chunks, outside of the transaction: all that was committed before the lock
    release   the lock's document is removed after the transaction has ended, either way

An expired lock may be taken over. The new holder writes the hold of the previous one: if the previous transaction still
runs, the server makes this write wait for it; if it has not written its hold yet, it no longer can.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from pymongo import ReturnDocument, WriteConcern
from pymongo.errors import DuplicateKeyError, PyMongoError

from rowlock.errors import StoreUnavailable
from rowlock.ids import uuid7
from rowlock.storage.imports import ImportId
from rowlock.storage.mongo.connection import Database, Scope
from rowlock.storage.mongo.indexes import Index

LOCKS = "rowlock_import_locks"
HOLDS = "rowlock_import_holds"

INDEXES: tuple[Index, ...] = (
    Index(LOCKS),
    Index(HOLDS, "past", (("at", 1),), expire_seconds=24 * 3600),
)

LEASE_MS = 10_000
WAIT_SECONDS = 45.0  # shorter than a statement may take
_NAP_SECONDS = (0.002, 0.05)

# If a server fails and loses a lock, it loses the transaction of the lock's holder too.
_AT_ONCE = WriteConcern(w=1)


async def lock(db: Database, import_id: ImportId, session: Any = None) -> str:
    """Take the lock on an import, and return its token; `session` is the id of the holder's session."""
    token = uuid7()
    locks = db[LOCKS].with_options(write_concern=_AT_ONCE)
    clock = asyncio.get_running_loop()
    begun = clock.time()
    attempt = 0
    while clock.time() - begun < WAIT_SECONDS:
        ours = [{"$set": {"token": token, "session": session, "until": {"$add": ["$$NOW", LEASE_MS]}}}]
        try:
            # Creates the lock, or fails with a duplicate key if it exists.
            await locks.update_one({"_id": import_id, "token": token}, ours, upsert=True)
            return token
        except DuplicateKeyError:
            pass
        past = {"_id": import_id, "$expr": {"$lte": ["$until", "$$NOW"]}}
        before = await locks.find_one_and_update(past, ours, return_document=ReturnDocument.BEFORE)
        if before is not None:
            await _fence(db, before["token"])
            return token
        await asyncio.sleep(random.uniform(0, min(_NAP_SECONDS[1], _NAP_SECONDS[0] * 2 ** min(attempt, 10))))  # noqa: S311
        attempt += 1
    raise StoreUnavailable(f"import {import_id} was locked by another for {WAIT_SECONDS:.0f} seconds")


async def hold(scope: Scope, token: str) -> None:
    """Tie the transaction of this scope to its lock."""
    await scope[HOLDS].insert_one({"_id": token, "at": datetime.now(UTC)}, session=scope.session)


async def free(db: Database, sessions: Sequence[Any]) -> None:
    """Expire the locks of these sessions, whose transactions were ended, so that others can take them over."""
    await db[LOCKS].update_many({"session": {"$in": list(sessions)}}, [{"$set": {"until": "$$NOW"}}])


async def release(db: Database, import_id: ImportId, token: str) -> None:
    """Remove the lock; if the server cannot be reached, the lock expires."""
    try:
        await db[LOCKS].with_options(write_concern=_AT_ONCE).delete_one({"_id": import_id, "token": token})
    except PyMongoError:
        return


@asynccontextmanager
async def locked(db: Database, import_id: ImportId) -> AsyncIterator[str]:
    """Lock an import for the block; transactions within call `hold` with the token."""
    token = await lock(db, import_id)
    try:
        yield token
    finally:
        await asyncio.shield(release(db, import_id, token))


async def _fence(db: Database, token: str) -> None:
    try:
        await db[HOLDS].insert_one({"_id": token, "at": datetime.now(UTC)})
    except DuplicateKeyError:
        return  # the previous holder's transaction was committed
