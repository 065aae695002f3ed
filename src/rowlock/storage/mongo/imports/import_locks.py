"""A lock for each import: one caller at a time decides about it, and a second one waits, as for a row lock in SQL.

MongoDB's transactions do not wait: if another has written since a transaction began, that is a conflict, and all of it
must be repeated, which is too much for a chunk whose rows are loaded. So the lock is beside the transaction:

    lock      a document with the import's id, a token and an expiry; others wait while it exists
    hold      a document with the token, written inside the transaction that has the lock
    read      the import and its chunks, outside of the transaction: all that was committed before the lock
    release   the lock's document is removed after the transaction has ended, either way

An expired lock may be taken over. The new holder writes the hold of the previous one: if the previous transaction still
runs, the server makes this write wait for it; if it has not written its hold yet, it no longer can.

A chunk takes the lock after its rows are written, so that chunks are loaded concurrently. That fails if transactions
have made a fifth of the server's cache dirty: until they end, the server holds back the writes of others, that of the
lock included, for which they wait. So a chunk that gets no answer to that write is rolled back and repeated, and for a
minute the chunks of this process take the lock before they write (`Room`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from pymongo import ReturnDocument, WriteConcern
from pymongo.errors import DuplicateKeyError, PyMongoError

from rowlock.errors import StoreUnavailable
from rowlock.ids import uuid7
from rowlock.storage.imports import ImportId
from rowlock.storage.mongo.connection import Database, Scope
from rowlock.storage.mongo.errors import TransactionConflict
from rowlock.storage.mongo.indexes import Index

T = TypeVar("T")

LOCKS = "rowlock_import_locks"
HOLDS = "rowlock_import_holds"

INDEXES: tuple[Index, ...] = (
    Index(LOCKS),
    Index(HOLDS, "past", (("at", 1),), expire_seconds=24 * 3600),
)

LEASE_MS = 10_000
LEASE_OF_ROWS_MS = 40_000  # of a lock that is taken before the rows are written
WAIT_SECONDS = 45.0  # shorter than a statement may take
ANSWER_SECONDS = 2.0
LACKING_SECONDS = 60.0
_NAP_SECONDS = (0.002, 0.05)
_NAP_OF_ROWS_SECONDS = (0.02, 0.25)  # longer, so that a cancellation comes between two chunks

# If a server fails and loses a lock, it loses the transaction of the lock's holder too.
_AT_ONCE = WriteConcern(w=1)


class Room:
    """Whether the cache of the server has lately had too little room for chunks that are loaded concurrently."""

    def __init__(self) -> None:
        self._lacking_until = 0.0

    @property
    def lacking(self) -> bool:
        return time.monotonic() < self._lacking_until

    def lack(self) -> None:
        self._lacking_until = time.monotonic() + LACKING_SECONDS


class HeldBack(Exception):
    """The server has not answered a write of the lock; `statement` still runs, and may take the lock with `token`."""

    def __init__(self, token: str, statement: asyncio.Future[Any]) -> None:
        super().__init__(token)
        self.token = token
        self.statement = statement


async def lock(
    db: Database,
    import_id: ImportId,
    session: Any = None,
    *,
    answer_seconds: float | None = None,
    lease_ms: int = LEASE_MS,
    nap_seconds: tuple[float, float] = _NAP_SECONDS,
) -> str:
    """Take the lock on an import, and return its token; `session` is the id of the holder's session.

    Raises HeldBack if the server does not answer a statement for `answer_seconds` (None: no limit).
    """
    token = uuid7()
    locks = db[LOCKS].with_options(write_concern=_AT_ONCE)
    clock = asyncio.get_running_loop()
    begun = clock.time()
    attempt = 0
    while clock.time() - begun < WAIT_SECONDS:
        ours = [{"$set": {"token": token, "session": session, "until": {"$add": ["$$NOW", lease_ms]}}}]
        try:
            # Creates the lock, or fails with a duplicate key if it exists.
            mine = {"_id": import_id, "token": token}
            await _answer(locks.update_one(mine, ours, upsert=True), token, answer_seconds)
            return token
        except DuplicateKeyError:
            pass
        past = {"_id": import_id, "$expr": {"$lte": ["$until", "$$NOW"]}}
        taking = locks.find_one_and_update(past, ours, return_document=ReturnDocument.BEFORE)
        before = await _answer(taking, token, answer_seconds)
        if before is not None:
            await _fence(db, before["token"])
            return token
        first, longest = nap_seconds
        await asyncio.sleep(random.uniform(0, min(longest, first * 2 ** min(attempt, 10))))  # noqa: S311
        attempt += 1
    raise StoreUnavailable(f"import {import_id} was locked by another for {WAIT_SECONDS:.0f} seconds")


async def lock_for_rows(db: Database, import_id: ImportId, session: Any) -> str:
    """Take the lock on an import for a transaction that writes its rows afterwards."""
    return await lock(db, import_id, session, lease_ms=LEASE_OF_ROWS_MS, nap_seconds=_NAP_OF_ROWS_SECONDS)


async def _answer(statement: Coroutine[Any, Any, T], token: str, seconds: float | None) -> T:
    if seconds is None:
        return await statement
    running = asyncio.ensure_future(statement)
    try:
        done, _ = await asyncio.wait({running}, timeout=seconds)
    except asyncio.CancelledError:
        running.cancel()
        raise
    if not done:
        raise HeldBack(token, running)
    return running.result()


async def hold(scope: Scope, token: str) -> None:
    """Tie the transaction of this scope to its lock."""
    try:
        await scope[HOLDS].insert_one({"_id": token, "at": datetime.now(UTC)}, session=scope.session)
    except DuplicateKeyError as error:
        raise TransactionConflict("the lock on the import expired, and another has taken it; try it again") from error


async def free(db: Database, sessions: Sequence[Any]) -> None:
    """Expire the locks of these sessions, whose transactions were ended, so that others can take them over."""
    await db[LOCKS].update_many({"session": {"$in": list(sessions)}}, [{"$set": {"until": "$$NOW"}}])


async def release(db: Database, import_id: ImportId, token: str) -> None:
    """Remove the lock; if the server cannot be reached, the lock expires."""
    try:
        await db[LOCKS].with_options(write_concern=_AT_ONCE).delete_one({"_id": import_id, "token": token})
    except PyMongoError:
        return


async def release_late(db: Database, import_id: ImportId, late: HeldBack) -> None:
    """Release a lock that was held back, after the end of the transaction that has held it back."""
    await asyncio.wait({late.statement}, timeout=WAIT_SECONDS)
    if late.statement.cancel() or late.statement.cancelled() or late.statement.exception() is not None:
        return  # it expires
    if isinstance(before := late.statement.result(), dict):
        await _fence(db, before["token"])
    await release(db, import_id, late.token)


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
