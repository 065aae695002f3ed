"""One at a time decides what becomes of an import; whoever comes second waits, as for a row that is locked in SQL.

In a transaction of MongoDB nobody waits: what another has written since it began is a conflict, and all is to be done
again, which is too much for a chunk whose rows are loaded. So there is a lock beside the transaction:

    lock      a document with the import's id, a token and an end; whoever wants it waits while it is there
    hold      a document with the token, written inside the transaction that has the lock
    read      what the import and its chunks are, outside of the transaction: all that was committed before the lock
    release   the lock's document is removed after the transaction has ended, either way

A lock whose end has passed may be taken over. Who does so writes the hold of the one before: if that one's transaction
still runs, the server makes this wait for it; if it has not come that far, it cannot any more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

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

# A lock that is lost with its server is lost together with the transaction of its holder.
_AT_ONCE = WriteConcern(w=1)


async def lock(db: Database, import_id: ImportId) -> str:
    """The token of the lock on an import, which is ours from here on."""
    token = uuid7()
    locks = db[LOCKS].with_options(write_concern=_AT_ONCE)
    clock = asyncio.get_running_loop()
    begun = clock.time()
    attempt = 0
    while clock.time() - begun < WAIT_SECONDS:
        ours = [{"$set": {"token": token, "until": {"$add": ["$$NOW", LEASE_MS]}}}]
        try:
            # Not there: it is made. There: the key is taken, which is the answer.
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


async def release(db: Database, import_id: ImportId, token: str) -> None:
    """Let the next one in; where that cannot be said, it comes in when the time of the lock is over."""
    try:
        await db[LOCKS].with_options(write_concern=_AT_ONCE).delete_one({"_id": import_id, "token": token})
    except PyMongoError:
        return


@asynccontextmanager
async def locked(db: Database, import_id: ImportId) -> AsyncIterator[str]:
    """Have the lock on an import for the block; transactions within tie themselves to it."""
    token = await lock(db, import_id)
    try:
        yield token
    finally:
        await asyncio.shield(release(db, import_id, token))


async def _fence(db: Database, token: str) -> None:
    try:
        await db[HOLDS].insert_one({"_id": token, "at": datetime.now(UTC)})
    except DuplicateKeyError:
        return  # it was committed
