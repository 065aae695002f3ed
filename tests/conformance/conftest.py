"""Run every test on every store, and tests of callers with every kind of connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from conformance.callers import Caller
from conformance.stores import STORES, Rig
from one_store import chosen
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the test on every store."""
    _parametrize(metafunc, _eligible(metafunc))


def on_one_store(metafunc: pytest.Metafunc) -> None:
    """Run the test on one store, or on every store if it is marked `every_store`."""
    _parametrize(metafunc, chosen(metafunc, _eligible(metafunc)))


def _eligible(metafunc: pytest.Metafunc) -> tuple[type[Rig], ...]:
    relational = metafunc.definition.get_closest_marker("relational")
    return tuple(kind for kind in STORES if kind.relational or not relational)


def _parametrize(metafunc: pytest.Metafunc, stores: Sequence[type[Rig]]) -> None:
    for fixture in ("caller", "autocommit_caller", "offline_caller"):
        if fixture in metafunc.fixturenames:
            pairs = [(kind, name) for kind in stores for name in getattr(kind, f"{fixture}s")]
            ids = [f"{kind.name}-{name}" for kind, name in pairs]
            metafunc.parametrize(("rig", fixture), pairs, ids=ids, indirect=True)
            return
    if "rig" in metafunc.fixturenames:
        metafunc.parametrize("rig", stores, ids=[kind.name for kind in stores], indirect=True)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(autouse=True)
def patient_rescues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a rescue on MongoDB take a machine that stands still for half a second for what it is: not an outage."""
    monkeypatch.setattr("rowlock.storage.mongo.jobs.settle.AWAY_SECONDS", 30.0)


@pytest.fixture
async def rig(request: pytest.FixtureRequest, tmp_path: Path, resource: object) -> AsyncIterator[Rig]:
    rig: Rig = request.param(tmp_path, resource)
    yield rig
    await rig.dispose()


@pytest.fixture
def resource(request: pytest.FixtureRequest) -> object:
    kind: type[Rig] = request.node.callspec.params["rig"]
    if kind.resource is None:
        return None
    request.getfixturevalue(f"{kind.resource}_pools")
    return request.getfixturevalue(kind.resource)


@pytest.fixture
async def store(rig: Rig, clock: FakeClock) -> Store:
    return await rig.make(clock)


@pytest.fixture
async def other(rig: Rig, store: Store, clock: FakeClock) -> Store:
    """A second store object on the same data, as in another process."""
    return await rig.another(clock)


@pytest.fixture
async def caller(request: pytest.FixtureRequest, rig: Rig, store: Store) -> AsyncIterator[Caller]:
    """A caller's connection, in a transaction."""
    async with rig.callers[request.param](rig.url) as caller:
        yield caller


@pytest.fixture
async def autocommit_caller(request: pytest.FixtureRequest, rig: Rig, store: Store) -> AsyncIterator[Caller]:
    """A caller's connection, without a transaction."""
    async with rig.autocommit_callers[request.param](rig.url) as caller:
        yield caller


@pytest.fixture
async def offline_caller(request: pytest.FixtureRequest, rig: Rig, store: Store) -> AsyncIterator[Caller]:
    """A synchronous connection of a process that has no open store."""
    await store.close()
    async with rig.offline_callers[request.param](rig.url) as caller:
        yield caller
