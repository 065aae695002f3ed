"""Producers: in the test's own process, and as separate processes that may be killed.

`python -m faults.producer URL COUNT [TYPE]` enqueues, and journals each id as soon as its enqueue returned.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from unittest import mock

from faults.databases import Database
from faults.processes import QUICK
from rowlock.errors import StoreError
from rowlock.settings import load

IN_FLIGHT = 20
AGAIN_SECONDS = 0.1
PAUSE_SECONDS = 0.25  # between two jobs, to limit the jobs left over after an attack


class Producer:
    """Enqueues from the test, with the settings of its workers."""

    def __init__(self, database: Database | str, environment: Mapping[str, str] = QUICK) -> None:
        from faults.app import make_app

        url = database if isinstance(database, str) else database.url
        with mock.patch.dict(os.environ, dict(environment)):
            self.app = make_app(load(database_url=url))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.app.blocking.close()

    def put(
        self, type_name: str, number: int = 1, *, options: Mapping[str, Any] | None = None, **payload: Any
    ) -> list[str]:
        """Enqueue `number` equal jobs in one call. Returns their ids."""
        receipts = self.app.blocking.enqueue_many([(type_name, payload)] * number, **(options or {}))
        return [receipt.job_id for receipt in receipts]

    def rescue(self) -> int:
        """Rescue jobs with an expired lease, as maintenance on another machine does. Returns how many."""

        async def rescue() -> int:
            return len(await self.app.store.rescue(100, {}, str))

        return self.app.blocking.run(rescue())


async def produce(url: str, number: int, type_name: str) -> None:
    from faults.app import app, journal

    app.settings = app.settings.model_copy(update={"database_url": url})

    async def some(numbers: range) -> None:
        for _ in numbers:
            try:
                receipt = await app.enqueue(type_name)
            except StoreError:
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                journal.write("acknowledged", receipt.job_id)
                await asyncio.sleep(PAUSE_SECONDS)

    async with app:
        await asyncio.gather(*(some(range(place, number, IN_FLIGHT)) for place in range(IN_FLIGHT)))


if __name__ == "__main__":
    asyncio.run(produce(sys.argv[1], int(sys.argv[2]), *(sys.argv[3:] or ["tick"])))
