"""Ends transactions of verbs whose process was killed. They belong to no attempt, so no lease shows that they are lost.

Each process has its own sessions for the transactions of verbs, recorded when they are created. A verb sends its
statements one after the other. If such a transaction blocks another process and has run no statement for 4 seconds,
the blocked process ends it. If its own process is alive, that process retries the transaction.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from pymongo import AsyncMongoClient, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import PyMongoError

VERB_SESSIONS = "rowlock_verb_sessions"
KEPT_SECONDS = 24 * 3600
STILL_SECONDS = 4.0  # longer than the verbs of a worker may take altogether
LOOK_SECONDS = 1.0

_AT_ONCE = WriteConcern(w=1)
_OPEN: list[dict[str, Any]] = [
    {"$currentOp": {"idleSessions": True}},
    {"$match": {"type": "idleSession", "transaction": {"$exists": True}}},
    {"$project": {"id": "$lsid.id", "transaction": 1}},
]


class VerbSessions:
    """The sessions of one client for the transactions of verbs, which are reused."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]]) -> None:
        self._client = client
        self._free: list[tuple[AsyncClientSession, float]] = []

    @asynccontextmanager
    async def session(self, db: Any) -> AsyncIterator[AsyncClientSession]:
        session, until = await self._next(db)
        try:
            yield session
        finally:
            if not session.in_transaction:
                self._free.append((session, until))

    async def close(self, db: Any) -> None:
        """End the sessions that are not in use."""
        free, self._free = self._free, []
        await self._end(db, [session for session, _ in free])

    async def _next(self, db: Any) -> tuple[AsyncClientSession, float]:
        while self._free:
            session, until = self._free.pop()
            if time.monotonic() < until:
                return session, until
            await self._end(db, [session])
        session = self._client.start_session(causal_consistency=False)
        record = {"at": datetime.now(UTC)}
        await _records(db).replace_one({"_id": session.session_id["id"]}, record, upsert=True)
        return session, time.monotonic() + KEPT_SECONDS / 2

    async def _end(self, db: Any, sessions: list[AsyncClientSession]) -> None:
        """Return sessions to the driver, without their records: it may use them for transactions of callers."""
        if sessions:
            await _records(db).delete_many({"_id": {"$in": [session.session_id["id"] for session in sessions]}})
        for session in sessions:
            await session.end_session()


def _records(db: Any) -> Any:
    return db[VERB_SESSIONS].with_options(write_concern=_AT_ONCE)


class Orphans:
    """Finds transactions of verbs that stand still, and ends them."""

    def __init__(self) -> None:
        self._still: dict[Any, tuple[Any, float]] = {}  # by session, its last state and since when
        self._looked_at = -LOOK_SECONDS

    async def end(self, db: Any) -> bool:
        """Look, at most once a second; returns whether to look again, because a transaction is open and idle.

        If the server does not let this user look, it does nothing.
        """
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            try:
                await self._end(db, now)
            except PyMongoError:
                return False
        return bool(self._still)

    async def _end(self, db: Any, now: float) -> None:
        seen = {}
        async for one in await db.client.admin.aggregate(_OPEN):
            transaction = one["transaction"]
            seen[bytes(one["id"])] = (
                one["id"],
                transaction["parameters"]["txnNumber"],
                transaction["timeActiveMicros"],
            )
        self._still = {
            session: before if (before := self._still.get(session)) and before[0] == found else (found, now)
            for session, found in seen.items()
        }
        long = [found[0] for found, since in self._still.values() if now - since >= STILL_SECONDS]
        ours = [one["_id"] async for one in db[VERB_SESSIONS].find({"_id": {"$in": long}}, {"_id": 1})] if long else []
        if ours:
            await db.client.admin.command("killSessions", [{"id": session} for session in ours])
