"""Records the transactions of attempts by session, so that those of a lost attempt are ended and block no successor.

The server keeps a transaction whose process was killed for `transactionLifetimeLimitSeconds` (default: 60). Until then
every write to one of its documents fails with a conflict. So each transaction of an attempt is recorded beside it:

    begin    record the session with the attempt, before the first command of the transaction
    finish   remove the record; then the driver may use the session again
    end      mark the record, kill the session, remove the record

`finish` or `end` comes first, and the record tells which. A session whose record is marked or gone is never used again,
so `end` cannot reach the transaction of another attempt. It is for attempts whose lease is lost, or whose process died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pymongo import WriteConcern
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from rowlock.storage.mongo.connection import Collection, Database, Document, Session
from rowlock.storage.mongo.imports.import_locks import free
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.jobs.orphans import KEPT_SECONDS, VERB_SESSIONS
from rowlock.storage.records import Attempt

TRANSACTIONS = "rowlock_transactions"
INDEXES: tuple[Index, ...] = (
    Index(TRANSACTIONS, "of_job", (("jobId", 1), ("lease", 1))),
    Index(TRANSACTIONS, "past", (("at", 1),), expire_seconds=KEPT_SECONDS),
    Index(VERB_SESSIONS, "past", (("at", 1),), expire_seconds=KEPT_SECONDS),
)

ANSWER_SECONDS = 1.0

# If a server fails and loses a record, it loses the transaction too.
_AT_ONCE = WriteConcern(w=1)
_LOCAL = ReadConcern("local")


class Recorder:
    """Records the sessions in which one attempt has transactions."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    async def begin(self, db: Database, session: Session) -> None:
        """Record that this session is the attempt's; end the open transactions of earlier attempts at its job."""
        job_id, lease = self._attempt
        record = {"_id": _id(session), "jobId": job_id, "lease": lease, "at": datetime.now(UTC)}
        if lease > 1:  # before any write, which may have to wait for these transactions
            await _end(db, {"jobId": job_id, "lease": {"$lt": lease}})
        await _records(db).insert_one(record)

    async def finish(self, db: Database, session: Session) -> bool:
        """Remove the record of a transaction that has ended; returns False if the session must not be used again."""
        removed = await _records(db).delete_one({"_id": _id(session), "lost": {"$exists": False}})
        return removed.deleted_count > 0


async def end(db: Database, attempts: Sequence[Attempt]) -> None:
    """End the open transactions of these attempts, and of earlier attempts at their jobs."""
    if attempts:
        await _end(db, {"$or": [{"jobId": job_id, "lease": {"$lte": lease}} for job_id, lease in attempts]})


async def _end(db: Database, lost: Document) -> None:
    records = _records(db)
    if not await _mark(db, lost):
        return
    sessions = await _marked(records, lost)
    if not sessions:  # another process has ended them; an empty list would end every session of this user
        return
    try:
        await _kill(db, sessions)
    except OperationFailure:  # some services do not allow it: the server ends them later
        return
    await free(db, sessions)
    await records.delete_many({"_id": {"$in": sessions}})


async def _mark(db: Database, lost: Document) -> int:
    """Mark the records of lost attempts; returns their number.

    If their transactions have filled the server's cache, it holds this write back until they end, so they are ended
    first. That may reach a session which the driver has reused since: its transaction conflicts, and is retried.
    """
    records = _records(db)
    marking = asyncio.ensure_future(records.update_many(lost, {"$set": {"lost": True}}))
    try:
        done, _ = await asyncio.wait({marking}, timeout=ANSWER_SECONDS)
        if not done and (sessions := [one["_id"] for one in await records.find(lost, {"_id": 1}).to_list()]):
            with suppress(OperationFailure):
                await _kill(db, sessions)
        return (await marking).matched_count
    except asyncio.CancelledError:
        marking.cancel()
        raise


async def _marked(records: Collection, lost: Document) -> list[Any]:
    return [one["_id"] for one in await records.find({"$and": [lost, {"lost": True}]}, {"_id": 1}).to_list()]


async def _kill(db: Database, sessions: Sequence[Any]) -> None:
    await db.client.admin.command("killSessions", [{"id": session} for session in sessions])


def _records(db: Database) -> Collection:
    # Marks are read back at once, before a majority may have them.
    return db[TRANSACTIONS].with_options(write_concern=_AT_ONCE, read_concern=_LOCAL)


def _id(session: Session) -> Any:
    return session.session_id["id"]
