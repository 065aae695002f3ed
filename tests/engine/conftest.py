"""Fixtures: applications on every store, with a watched store and a captured log."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from conformance.conftest import clock, resource, rig, store
from conformance.conftest import on_one_store as pytest_generate_tests
from conformance.stores import Rig
from engine.running import Log
from engine.watched import WatchedStore
from rowlock import FakeClock, Rowlock, Unique
from rowlock.observe import logs
from rowlock.settings import Settings, load
from rowlock.storage.contract import Store
from rowlock.storage.open import open_store

__all__ = ["clock", "pytest_generate_tests", "resource", "rig", "store"]

MakeApp = Callable[..., Awaitable[Rowlock]]


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A temporary folder in memory if the machine has one; durability on disk is tested in tests/faults."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(prefix="rowlock-", dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def log() -> Iterator[Log]:
    """The engine's log in this test."""
    log = Log()
    logs.configure("info", "json", stream=log.stream)
    yield log
    logs.reset()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove Rowlock settings from the environment of the test run."""
    for field in Settings.model_fields.values():
        for name in field.validation_alias.choices:
            monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def exact_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make retries wait exactly as long as their policy says; jitter has separate tests."""
    monkeypatch.setattr("rowlock.jobs.policy.chance", lambda: 0.0)


@pytest.fixture(autouse=True)
def time_to_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stopping take as long as the machine needs; the limit has a separate test."""
    monkeypatch.setattr("rowlock.jobs.worker.worker._SETTLE_SECONDS", 30.0)


@pytest.fixture
async def make_app(rig: Rig, store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeApp]:
    """Return a factory of applications on one empty database, each with its own store, as in separate processes."""
    monkeypatch.setattr("rowlock.app.open_store", lambda *given: WatchedStore(open_store(*given)))
    made: list[Rowlock] = []

    async def make(*, clock: Any = clock, allow_unknown_types: bool = False, **settings: Any) -> Rowlock:
        # Few connections: opening one and planning its statements takes longer than most of these tests.
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
    """An application with a job type that accepts any payload."""
    app.job("a")(lambda job: None)
    app.job("once", unique=Unique.forever())(lambda job: None)
    return app
