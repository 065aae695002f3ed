"""The club's HubSpot operations on an application of their own, with the stand-in at the other end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from backoffice.hubspot import declare
from conformance.stores import Rig
from rowlock import FakeClock, JobRecord, Rowlock
from rowlock.settings import Settings, load
from rowlock.storage.contract import Store
from rowlock.testing import drain
from sync.conftest import standin, standin_process
from sync.standin import StandIn
from sync.standin.schema import KNOWN, defaults

__all__ = ["Club", "any_club", "club", "opened", "standin", "standin_process"]

FAR = {"hubspot_calls_per_10_seconds": 10_000, "hubspot_searches_per_second": 10_000}  # the clock does not move


class Club:
    """The operations, and what HubSpot has after them."""

    def __init__(self, app: Rowlock, standin: StandIn, clock: FakeClock, **options: Any) -> None:
        self.app = app
        self.hub = declare(app, **options)
        self.standin = standin
        self.clock = clock

    async def send(self, operation: str, **payload: Any) -> str:
        return (await self.hub.enqueue(operation, payload)).job_id

    async def work(self) -> None:
        await drain(self.app, raise_failures=False)

    async def run(self, operation: str, **payload: Any) -> dict[str, Any]:
        """Enqueue, work until nothing is ready, and return what the job results in; it must have succeeded."""
        record = await self.record(await self.send(operation, **payload), work=True)
        assert record.status.value == "succeeded", (record.status, record.error)
        found: dict[str, Any] = json.loads(record.result or "null")
        return found

    async def record(self, job_id: str, *, work: bool = False) -> JobRecord:
        if work:
            await self.work()
        record = await self.app.get(job_id)
        assert record is not None
        return record

    async def retry_all(self, rounds: int = 6) -> None:
        """Work, and let the time for retries come, until nothing is left to try."""
        for _ in range(rounds):
            await self.work()
            self.clock.advance(hours=2)

    def one(self, kind: str) -> dict[str, str]:
        """The properties of the only object of a kind."""
        (found,) = self.standin.things(kind)
        return {name: value for name, value in found.items() if not name.startswith("hs_")}

    def calls(self) -> list[tuple[str, str]]:
        """What was asked, without what it was about."""
        return [(each["method"], each["path"]) for each in self.standin.journal()]


@asynccontextmanager
async def opened(
    url: str, clock: FakeClock, standin: StandIn, *, ensured: bool = True, **options: Any
) -> AsyncIterator[Club]:
    """The club on this database, with all operations on, and with its properties at HubSpot if `ensured`."""
    standin.limits(100_000, 10.0, searches=100_000)
    given = {"database_url": url, "hubspot_token": standin.token, "hubspot_url": standin.url}
    async with Rowlock(settings=_settings().model_copy(update=given), clock=clock) as app:
        made = Club(app, standin, clock, **{"operations_off": ()} | options)
        await app.migrate()
        if ensured:
            await _ensure(made)
        yield made


@cache
def _settings() -> Settings:
    """Loaded once: it takes longer than most of these tests. No call is cut off because the machine is busy."""
    return load(connections=2, grace_seconds=0.2, sync_timeout_seconds=60.0, **FAR)


_ENSURED: dict[str, list[dict[str, Any]]] = {}


async def _ensure(club: Club) -> None:
    """Have the operation make the properties once, and put the same ones into the stand-in from then on."""
    if not _ENSURED:
        await club.run("ensure")
        for kind, found in club.standin.state()["properties"].items():
            new = [found[name] for name in found if name not in defaults(kind)]
            _ENSURED[kind] = [{name: each[name] for name in KNOWN & each.keys()} for each in new]
        return
    for kind, properties in _ENSURED.items():
        if properties:
            club.standin.properties(kind, *properties)


@pytest.fixture
async def club(tmp_path: Path, clock: FakeClock, standin: StandIn) -> AsyncIterator[Club]:
    """On one store: what an operation does is the same on all."""
    async with opened(f"sqlite:///{tmp_path}/jobs.db", clock, standin) as made:
        yield made


@pytest.fixture
async def any_club(rig: Rig, store: Store, clock: FakeClock, standin: StandIn) -> AsyncIterator[Club]:
    """On every store: where their holds and marks matter."""
    async with opened(rig.url, clock, standin) as made:
        yield made
