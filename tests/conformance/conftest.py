"""Runs every behaviour on every store, and those about callers with every kind of connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from conformance.callers import Caller
from conformance.stores import STORES, Rig
from rowlock.clock import FakeClock
from rowlock.storage.base import Store


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    stores = STORES
    if metafunc.definition.get_closest_marker("relational"):
        stores = tuple(kind for kind in stores if kind.relational)
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


@pytest.fixture
async def rig(request: pytest.FixtureRequest, tmp_path: Path, resource: object) -> AsyncIterator[Rig]:
    rig: Rig = request.param(tmp_path, resource)
    yield rig
    await rig.dispose()


@pytest.fixture
def resource(request: pytest.FixtureRequest) -> object:
    kind: type[Rig] = request.node.callspec.params["rig"]
    return request.getfixturevalue(kind.resource) if kind.resource else None


@pytest.fixture
async def store(rig: Rig, clock: FakeClock) -> Store:
    return await rig.make(clock)


@pytest.fixture
async def other(rig: Rig, store: Store, clock: FakeClock) -> Store:
    """A second store object on the same data, as another process would have."""
    return await rig.another(clock)


@pytest.fixture
async def caller(request: pytest.FixtureRequest, rig: Rig, store: Store) -> AsyncIterator[Caller]:
    """A connection of the caller's, in a transaction."""
    async with rig.callers[request.param](rig.url) as caller:
        yield caller


@pytest.fixture
async def autocommit_caller(request: pytest.FixtureRequest, rig: Rig, store: Store) -> AsyncIterator[Caller]:
    """A connection of the caller's, without a transaction."""
    async with rig.autocommit_callers[request.param](rig.url) as caller:
        yield caller


@pytest.fixture
async def offline_caller(request: pytest.FixtureRequest, rig: Rig, store: Store) -> AsyncIterator[Caller]:
    """A synchronous connection of a process that has no open store."""
    await store.close()
    async with rig.offline_callers[request.param](rig.url) as caller:
        yield caller
