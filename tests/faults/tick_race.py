"""`python -m faults.tick_race URL TICKS PROCESSES`: fire the ticks of one schedule as fast as possible.

Each process has its own clock.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime

from faults.app import app, journal
from faults.race import fork
from faults.until import until
from rowlock import FakeClock
from rowlock.errors import StoreUnavailable
from rowlock.jobs.scheduler import Scheduler
from rowlock.observe import logs

START = "start"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
EVERY_SECONDS = 60


async def race(url: str, ticks: int) -> None:
    clock = FakeClock(EPOCH)
    app.settings = app.settings.model_copy(update={"database_url": url})
    app.clock = clock
    app.schedule("minutely", "noop", every_seconds=EVERY_SECONDS, missed="catch_up")
    async with app:
        scheduler = Scheduler(app.engine, logs.get())
        await scheduler.round()
        journal.write("ready", "")
        until(lambda: journal.path.with_name(START).exists(), 100, "the start signal")
        for _ in range(ticks):
            clock.advance(EVERY_SECONDS)
            await fire(scheduler)
        journal.write("done", "")


async def fire(scheduler: Scheduler) -> None:
    """Run a round, repeated while the store is unavailable, as `Scheduler.run` does."""
    while True:
        try:
            await scheduler.round()
            return
        except StoreUnavailable as error:
            journal.write("delayed", "", note=str(error))


if __name__ == "__main__":
    fork(int(sys.argv[3]))
    asyncio.run(race(sys.argv[1], int(sys.argv[2])))
