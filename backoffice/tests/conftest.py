"""The reference application on an empty database of every store, with tables to fill."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from hubspot_rig import any_club, club, standin, standin_process
from office_rig import Office

import backoffice
from conformance.conftest import clock, resource, rig, store
from conformance.conftest import on_one_store as pytest_generate_tests
from conformance.stores import Rig
from engine.conftest import log, tmp_path
from rowlock import FakeClock
from rowlock.imports.read.sandbox import Sandbox
from rowlock.storage.contract import Store

__all__ = [
    "any_club",
    "clock",
    "club",
    "log",
    "pytest_generate_tests",
    "resource",
    "rig",
    "standin",
    "standin_process",
    "store",
    "tmp_path",
]


@pytest.fixture
async def office(rig: Rig, store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Office]:
    app = backoffice.app
    changed = app.settings.model_copy(update={"database_url": rig.url, "connections": 2})
    monkeypatch.setattr(app, "settings", changed)
    monkeypatch.setattr(app, "clock", clock)
    # No child process waits for a next file: few tests import one, and a start takes half a second of processor time.
    monkeypatch.setattr(Sandbox, "warm", _no_spare)
    yield Office(app, store)
    await app.close()


async def _no_spare(sandbox: Sandbox) -> None: ...


@pytest.fixture
def no_language_model() -> Iterator[None]:
    """None before the test, and none after it."""
    backoffice.insights.use_language_model(None)
    yield
    backoffice.insights.use_language_model(None)
