"""`python -m faults.tick_race URL TICKS`: fires the ticks of one schedule as fast as it can, on a clock of its own."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime

from faults.app import app, journal
from faults.until import until
from rowlock import FakeClock
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
        engine = app.engine
        scheduler = Scheduler(engine.store, engine.enqueuer, engine.schedules, engine.measures, logs.get())
        await scheduler.round()
        journal.write("ready", "")
        until(lambda: journal.path.with_name(START).exists(), 60, "the start signal")
        for _ in range(ticks):
            clock.advance(EVERY_SECONDS)
            await scheduler.round()
        journal.write("done", "")


if __name__ == "__main__":
    asyncio.run(race(sys.argv[1], int(sys.argv[2])))
