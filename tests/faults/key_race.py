"""`python -m faults.key_race URL KEYS PROCESSES SEED`: wait for the start signal, then enqueue every key.

Each process uses its own order.
"""

from __future__ import annotations

import asyncio
import random
import sys

from faults.app import app, journal
from faults.race import fork
from faults.until import until
from rowlock import Unique

START = "start"
TOGETHER = 50


async def race(url: str, number: int, rng: random.Random) -> None:
    app.settings = app.settings.model_copy(update={"database_url": url})
    keys = [f"key {index}" for index in range(number)]
    rng.shuffle(keys)
    async with app:
        await app.store.depth("default", 1)  # connect before the race
        journal.write("ready", "")
        until(lambda: journal.path.with_name(START).exists(), 100, "the start signal")
        for first in range(0, number, TOGETHER):
            await asyncio.gather(
                *(
                    app.enqueue("noop", unique=Unique.forever(key=key, on_conflict="return_existing"))
                    for key in keys[first : first + TOGETHER]
                )
            )


if __name__ == "__main__":
    place = fork(int(sys.argv[3]))
    asyncio.run(race(sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[4]) + place)))
