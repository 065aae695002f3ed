"""`python -m faults.call_race URL STANDIN COUNT SECONDS`: call the stand-in as often as the store permits, forever."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys

import httpx

from faults import mutation
from faults.app import make_app
from rowlock.errors import StoreError
from rowlock.ids import uuid7
from rowlock.settings import load
from rowlock.storage.calls import CallLimit
from rowlock.storage.contract import Store

TOGETHER = 8
HOLD_SECONDS = 2.0
AGAIN_SECONDS = 0.05
ON_THE_WAY_SECONDS = 0.1  # a call arrives at any time between its permit and its end


async def call_often(store: Store, client: httpx.AsyncClient, limits: list[CallLimit]) -> None:
    while True:
        permit = uuid7()
        try:
            wait = await store.take_call(permit, limits, HOLD_SECONDS)
        except StoreError:  # the store was busy: ask again
            await asyncio.sleep(AGAIN_SECONDS)
            continue
        if wait > 0:
            await asyncio.sleep(wait)
            continue
        await asyncio.sleep(random.uniform(0.0, ON_THE_WAY_SECONDS))
        await client.get("/crm/v3/objects/contacts/1")
        with contextlib.suppress(StoreError):
            await store.end_call(permit)


async def race(url: str, standin: str, count: int, seconds: float) -> None:
    limits = [CallLimit("race/short", count, seconds), CallLimit("race/day", 1_000_000, 86_400.0)]
    async with make_app(load(database_url=url)) as app, httpx.AsyncClient(base_url=standin, trust_env=False) as client:
        await asyncio.gather(*(call_often(app.store, client, limits) for _ in range(TOGETHER)))


if __name__ == "__main__":
    mutation.apply()
    asyncio.run(race(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
