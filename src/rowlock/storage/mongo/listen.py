"""Wake-up hints from a change stream on counter deltas and new jobs; each arrives after its change is committed."""

from __future__ import annotations

import asyncio
from typing import Any

from rowlock.errors import StoreUnavailable
from rowlock.storage.contract import Wake
from rowlock.storage.mongo.connection import Database, Link, database
from rowlock.storage.mongo.documents import JOBS
from rowlock.storage.mongo.errors import translated_errors
from rowlock.storage.mongo.jobs.counter_deltas import DELTAS

ANY_QUEUE = "*"
AWAIT_MS = 30_000
CANCELS_AT_MOST = 20
CANCEL_SECONDS = 0.1

_HINTS: list[dict[str, Any]] = [
    {
        "$match": {
            "operationType": "insert",
            "$or": [
                {"ns.coll": JOBS, "fullDocument.isNew": True},
                {"ns.coll": DELTAS, "fullDocument.rings": True},
                {"ns.coll": DELTAS, "fullDocument.cancels": {"$exists": True}},
            ],
        }
    },
    {"$project": {"fullDocument.queue": 1, "fullDocument.cancels": 1}},
]


async def listen(link: Link, wake: Wake) -> None:
    """Call `wake` on each hint until cancelled; raises StoreUnavailable without a replica set or if the stream ends."""
    if not await link.replicated():
        raise StoreUnavailable(
            f"MongoDB at {link.url} is a single server without a replica set, which has no change streams: "
            "polling goes on (start it with --replSet for wake-ups in milliseconds)"
        )
    client = link.new_client()
    hearing = asyncio.create_task(_hear(database(client, link.database), wake))
    try:
        await asyncio.wait([hearing])
    finally:
        for _ in range(CANCELS_AT_MOST):  # the driver may swallow a cancellation while it sends or gets a connection
            hearing.cancel()
            if (await asyncio.wait([hearing], timeout=CANCEL_SECONDS))[0]:
                break
        await client.close()
        error = None if hearing.cancelled() or not hearing.done() else hearing.exception()
    with translated_errors(link.url):
        raise error or StoreUnavailable(f"the change stream of {link.url} ended")


async def _hear(db: Database, wake: Wake) -> None:
    async with await db.watch(_HINTS, max_await_time_ms=AWAIT_MS) as stream:
        wake("queue", ANY_QUEUE)  # for jobs enqueued before the stream began
        async for change in stream:
            note = change["fullDocument"]
            if "cancels" in note:
                wake("cancel", note["cancels"])
            else:
                wake("queue", note["queue"])
