"""One browser for each test process, and the pages of `rowlock up`."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from browser.house import House
from browser.visitor import Visitor
from one_store import on_one_store
from postgres_server import PostgresServer
from rowlock.ids import uuid7

HERE = Path(__file__).parent
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # whatever a page asks of others is not sent
)

Visit = Callable[..., Awaitable[Visitor]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    on_one_store(metafunc, "any_house", ("sqlite", "postgres"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One loop for all of these tests: the browser lives in it."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    chromium = os.environ.get("ROWLOCK_TEST_CHROMIUM") or shutil.which("chromium")
    if not chromium:
        pytest.skip("BROWSER TESTS: chromium is not installed, see tests/get_chromium.sh")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        await browser.close()


def _folder() -> TemporaryDirectory[str]:
    """In memory where there is such a place."""
    return TemporaryDirectory(prefix="rowlock-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sqlite_house() -> AsyncIterator[House]:
    with _folder() as folder:
        async with House(f"sqlite:///{folder}/jobs.db", Path(folder)) as house:
            yield house


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_house(postgres: PostgresServer) -> AsyncIterator[House]:
    name = f"pages_{uuid7().replace('-', '')}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    with _folder() as folder:
        async with House(postgres.url_of(name), Path(folder)) as house:
            yield house


@pytest.fixture
def house(sqlite_house: House) -> House:
    """Where most tests look: shared, so each has jobs, companies and tokens of its own."""
    return sqlite_house


@pytest.fixture
def any_house(request: pytest.FixtureRequest) -> House:
    """For the main journeys: on one of two stores, with `--every-store` on both."""
    house: House = request.getfixturevalue(f"{request.param}_house")
    return house


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser) -> AsyncIterator[Visit]:
    """Opens a browser window for somebody: with a token (or a role) they are signed in."""
    async with AsyncExitStack() as stack:

        async def come(house: House, who: str | None = None, path: str = "/", **options: Any) -> Visitor:
            visitor = await stack.enter_async_context(Visitor(browser, house, **options))
            if who is not None:
                token = who if who.startswith("rlk_") else await house.token(who)
                await visitor.sign_in(token, path)
            return visitor

        yield come
