"""The reference application on an empty database of every store, with tables to fill."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from office_rig import Office

import backoffice
from conformance.conftest import clock, pytest_generate_tests, resource, rig, store
from conformance.stores import Rig
from engine.conftest import log, tmp_path
from rowlock import FakeClock
from rowlock.storage.base import Store

__all__ = ["clock", "log", "pytest_generate_tests", "resource", "rig", "store", "tmp_path"]


@pytest.fixture
async def office(rig: Rig, store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Office]:
    app = backoffice.app
    changed = app.settings.model_copy(update={"database_url": rig.url, "connections": 2})
    monkeypatch.setattr(app, "settings", changed)
    monkeypatch.setattr(app, "clock", clock)
    yield Office(app, store)
    await app.close()


@pytest.fixture
def no_language_model() -> Iterator[None]:
    """None before the test, and none after it."""
    backoffice.insights.use_language_model(None)
    yield
    backoffice.insights.use_language_model(None)
