"""Applications on every store with their HTTP API, served for real on a loopback port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
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
from rowlock import Job, Permanent, Rowlock, Unique
from web.site import SECONDS, Site

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

MakeSite = Callable[..., Awaitable[Site]]


class Seconds:
    """A stopwatch that stands still until it is moved, in place of `time`."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


def declare(app: Rowlock) -> None:
    """Job types for these tests."""

    @app.job("ping")
    async def ping(job: Job) -> dict[str, Any]:
        return {"pong": True}

    @app.job("mail")
    async def mail(job: Job, to: str, subject: str = "") -> None: ...

    @app.job("once", unique=Unique.forever())
    async def once(job: Job, number: int = 0) -> None: ...

    @app.job("doomed")
    async def doomed(job: Job, password: str = "") -> None:
        raise Permanent("it never works")

    @app.job("open")
    async def anything(job: Job, **payload: Any) -> None: ...

    app.schedule("nightly", "ping", cron="0 3 * * *")


@pytest.fixture
def rate_seconds(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    """The time by which rates are limited: however slow the machine is, requests come at the same moment."""
    seconds = Seconds()
    monkeypatch.setattr("rowlock.http.middleware.rate_limits.time", seconds)
    return seconds


@pytest.fixture
async def make_site(make_app: MakeApp, tmp_path: Path) -> AsyncIterator[MakeSite]:
    """Makes sites: an application, its API on a port, tokens of every role."""
    sites: list[Site] = []

    async def make(also: Callable[[Rowlock], object] | None = None, **settings: Any) -> Site:
        places = {
            "import_store": str(tmp_path / "files"),
            "import_folder": str(tmp_path / "folder"),
            "import_manifest": str(tmp_path / "manifest.json"),
        }
        app = await make_app(**{"http_event_ms": 50, "http_token_seconds": 0.0} | places | settings)
        declare(app)
        if also is not None:
            also(app)
        site = Site(app)
        sites.append(site)
        await site.start()
        return site

    yield make
    for site in sites:
        async with asyncio.timeout(SECONDS):
            await site.stop()


@pytest.fixture
async def site(make_site: MakeSite) -> Site:
    return await make_site()
