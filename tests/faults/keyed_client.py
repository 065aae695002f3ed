"""`python -m faults.keyed_client URL COUNT`: enqueue keys 0 to COUNT-1, repeating each until it is answered.

Skips keys that an earlier run has written to the journal. With FAULTS_DIE_AFTER_COMMITS=N the process dies after every
Nth commit of an enqueue, before the answer.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from faults.app import app, journal
from rowlock import Unique
from rowlock.errors import StoreError

AGAIN_SECONDS = 0.01
IN_FLIGHT = 4


async def ask(key: str) -> None:
    unique = Unique.forever(key=key, on_conflict="return_existing")
    while True:
        try:
            receipt = await app.enqueue("noop", unique=unique)
        except StoreError:
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            journal.write("acknowledged", receipt.job_id, note=key)
            return


async def ask_for_all(url: str, number: int) -> None:
    app.settings = app.settings.model_copy(update={"database_url": url})
    known = {entry.note for entry in journal.all("acknowledged")}
    wanted = [key for key in map(str, range(number)) if key not in known]

    async def some(place: int) -> None:
        for key in wanted[place::IN_FLIGHT]:
            await ask(key)

    async with app:
        await asyncio.gather(*map(some, range(IN_FLIGHT)))


def die_after_commits(number: int) -> None:
    """Die after the job is committed and before the enqueue returns."""
    from rowlock.storage.mongo import MongoStore
    from rowlock.storage.sqlite import SqliteStore

    commits = 0

    def change(enqueue: Any) -> Any:
        async def dying(self: Any, *args: object) -> object:
            nonlocal commits
            done = await enqueue(self, *args)
            commits += 1
            if commits % number == 0:
                os._exit(os.EX_TEMPFAIL)
            return done

        return dying

    for store in (SqliteStore, MongoStore):
        setattr(store, "enqueue", change(store.enqueue))  # noqa: B010 - a method of someone else's class


if __name__ == "__main__":
    if number := os.environ.get("FAULTS_DIE_AFTER_COMMITS"):
        die_after_commits(int(number))
    asyncio.run(ask_for_all(sys.argv[1], int(sys.argv[2])))
