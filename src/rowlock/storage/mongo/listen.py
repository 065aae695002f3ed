"""Hints by a change stream on the notes of changes: each arrives when its change is committed."""

from __future__ import annotations

from typing import Any

from rowlock.errors import StoreUnavailable
from rowlock.storage.base import Wake
from rowlock.storage.mongo.connection import Link, own_words
from rowlock.storage.mongo.notes import NOTES

ANY_QUEUE = "*"
AWAIT_MS = 30_000

_HINTS: list[dict[str, Any]] = [
    {
        "$match": {
            "operationType": "insert",
            "$or": [{"fullDocument.rings": True}, {"fullDocument.cancels": {"$exists": True}}],
        }
    },
    {"$project": {"fullDocument.queue": 1, "fullDocument.cancels": 1}},
]


async def listen(link: Link, wake: Wake) -> None:
    """Call `wake` on every hint until cancelled; raises StoreUnavailable when hints cannot be had or end."""
    if not await link.replicated():
        raise StoreUnavailable(
            f"MongoDB at {link.url} is a single server without a replica set, which has no change streams: polling goes on "
            "(start it with --replSet for wake-ups in milliseconds)"
        )
    with own_words(link.url):
        async with await link.db[NOTES].watch(_HINTS, max_await_time_ms=AWAIT_MS) as stream:
            wake("queue", ANY_QUEUE)  # what was enqueued before we listened
            async for change in stream:
                note = change["fullDocument"]
                if "cancels" in note:
                    wake("cancel", note["cancels"])
                else:
                    wake("queue", note["queue"])
    raise StoreUnavailable(f"the change stream of {link.url} ended")
