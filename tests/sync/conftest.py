"""The stand-in, one process per session, reset for each test; a small service; applications on every store."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from engine.conftest import (
    MakeApp,
    clock,
    log,
    make_app,
    plain_environment,
    pytest_generate_tests,
    resource,
    rig,
    store,
    tmp_path,
)
from rowlock import FakeClock, Integration
from rowlock.sync.request import Wire
from sync.service import Service, serving
from sync.standin import StandIn

__all__ = [
    "clock",
    "log",
    "make_app",
    "plain_environment",
    "pytest_generate_tests",
    "resource",
    "rig",
    "store",
    "tmp_path",
]

MakeHub = Callable[..., Awaitable[Integration]]


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with serving() as made:
        yield made


@pytest.fixture
async def make_hub(make_app: MakeApp, service: Service) -> MakeHub:
    """Makes integrations with the small service, each of an application of its own on one database."""

    async def make(
        settings: dict[str, Any] | None = None, *, clock: FakeClock | None = None, **options: Any
    ) -> Integration:
        app = await make_app(clock=clock, **settings or {})
        return app.integration(
            "crm", **{"base_url": service.url, "token": "secret-token-1", "timeout_seconds": 30.0} | options
        )

    return make


@pytest.fixture
def elapse(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets seconds pass for the store, if it has the fake clock, and for what this process holds."""
    passed = 0.0

    def pass_by(seconds: float) -> None:
        nonlocal passed
        passed += seconds
        clock.advance(seconds)

    monkeypatch.setattr("rowlock.sync.subject_lock.time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed))
    return pass_by


@contextmanager
def impatient(seconds: float = 0.3) -> Iterator[None]:
    """Calls in this block wait so long for their answer; all others as long as a busy machine needs."""

    def keep(wire: Wire, own_seconds: float) -> None:
        vars(wire)["_timeout_seconds"] = own_seconds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wire, "_timeout_seconds", property(lambda _: seconds, keep), raising=False)
        yield


@pytest.fixture
async def hub(make_hub: MakeHub) -> Integration:
    return await make_hub()


@pytest.fixture(scope="session")
def standin_process() -> Iterator[StandIn]:
    with StandIn() as made:
        yield made


@pytest.fixture
def standin(standin_process: StandIn) -> StandIn:
    standin_process.reset()
    return standin_process
