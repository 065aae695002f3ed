"""`python -m faults.inline URL`: an inline worker, heartbeat included, as `app.work()` runs it."""

from __future__ import annotations

import asyncio
import sys

from faults.app import app


async def work(url: str) -> None:
    app.settings = app.settings.model_copy(update={"database_url": url})
    async with app:
        await app.work()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
