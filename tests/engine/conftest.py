"""Applications on every store, with their store watched and what they log kept."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from conformance.conftest import clock, pytest_generate_tests, resource, rig, store
from conformance.stores import Rig
from engine.running import Log
from engine.watched import WatchedStore
from rowlock import FakeClock, Rowlock, Unique
from rowlock.observe import logs
from rowlock.settings import Settings, load
from rowlock.storage.base import Store
from rowlock.storage.open import open_store

__all__ = ["clock", "pytest_generate_tests", "resource", "rig", "store"]

MakeApp = Callable[..., Awaitable[Rowlock]]


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a folder: what the disk survives is for tests/faults to prove."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(prefix="rowlock-", dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def log() -> Iterator[Log]:
    """What the engine logs in this test."""
    log = Log()
    logs.configure("info", "json", stream=log.stream)
    yield log
    logs.reset()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of whoever runs the tests are not those of the tests."""
    for field in Settings.model_fields.values():
        for name in field.validation_alias.choices:
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def make_app(rig: Rig, store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeApp]:
    """Makes applications on one empty database, each with a store of its own, as processes have."""
    monkeypatch.setattr("rowlock.app.open_store", lambda *given: WatchedStore(open_store(*given)))
    made: list[Rowlock] = []

    async def make(*, clock: Any = clock, allow_unknown_types: bool = False, **settings: Any) -> Rowlock:
        # Few connections: to open one, and to plan its statements, takes longer than most of these tests.
        chosen = load(database_url=rig.url, **{"grace_seconds": 5.0, "connections": 2} | settings)
        app = Rowlock(settings=chosen, clock=clock, allow_unknown_types=allow_unknown_types)
        made.append(app)
        return app

    yield make
    for app in made:
        await app.close()
        app.blocking.close()


@pytest.fixture
async def app(make_app: MakeApp) -> Rowlock:
    return await make_app()


@pytest.fixture
async def open_app(app: Rowlock) -> Rowlock:
    """An application with a type that takes anything."""
    app.job("a")(lambda job: None)
    app.job("once", unique=Unique.forever())(lambda job: None)
    return app
