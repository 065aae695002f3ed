"""The stand-in, one process for the session, as new for each test; a small service; applications on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
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
from rowlock import Integration
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

    async def make(settings: dict[str, Any] | None = None, **options: Any) -> Integration:
        app = await make_app(clock=None, **settings or {})
        return app.integration(
            "crm", **{"base_url": service.url, "token": "secret-token-1", "timeout_seconds": 2.0} | options
        )

    return make


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
