"""`python -m faults.claim_race URL LIMIT PROCESSES [unguarded]`: wait for the start signal, then claim all jobs."""

from __future__ import annotations

import asyncio
import sys
import time

from faults.journal import Journal
from faults.race import fork
from faults.until import until
from rowlock.clock import StoreClock
from rowlock.errors import StoreError
from rowlock.ids import uuid7
from rowlock.settings import Settings
from rowlock.storage.open import open_store

START = "start"
LATE_SECONDS = 0.1
EMPTY_AT_LAST = 3
"""Stop after this many empty claims in a row: a single one may only mean that others were faster."""

journal = Journal.from_environment()


async def race(url: str, limit: int) -> None:
    store = open_store(Settings(database_url=url), StoreClock())
    await store.open()
    await store.warm()
    owner, empty = uuid7(), 0
    journal.write("ready", "")
    until(lambda: journal.path.with_name(START).exists(), 100, "the start signal")
    begun = time.monotonic()
    while empty < EMPTY_AT_LAST:
        try:
            claims = await store.claim("default", owner, limit)
        except StoreError as error:  # a timeout on a busy machine: ask again, as a worker does
            journal.write("unanswered", "", note=str(error))
            continue
        empty = 0 if claims else empty + 1
        if claims:
            journal.write("claimed", "", note=[[claimed.id, claimed.lease] for claimed in claims])
            ended = time.monotonic()
    held = [lease.job_id for lease in await store.held(owner)]
    journal.write("ended", "", note={"seconds": ended - begun if held else 0.0, "held": held})
    await store.close()


def take_the_guard_out() -> None:
    """Make MongoDB claim the jobs that it has read, even if another process claimed them meanwhile."""
    from rowlock.storage.mongo.jobs import claim

    def unguarded(ids: object, lease: object, attempts: object) -> object:
        time.sleep(LATE_SECONDS)  # others read the same jobs meanwhile, even if processes take turns
        return {"_id": {"$in": ids}}

    claim._still = unguarded  # type: ignore[assignment]


if __name__ == "__main__":
    if sys.argv[4:] == ["unguarded"]:
        take_the_guard_out()
    fork(int(sys.argv[3]))
    asyncio.run(race(sys.argv[1], int(sys.argv[2])))
