"""What the tests of both distributions share: options, database servers, and the summary of a run."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import hypothesis
import pytest
import pytest_asyncio

from mongo_server import MongoServer
from postgres_server import PostgresServer
from timing import Timing

# How long an example takes says more about the machine than about the code.
# `make test` uses the quick profile, the same examples each time: chance must not decide whether it passes.
# `make faults` uses the deep one (--hypothesis-profile=deep), with others each time.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=30, stateful_step_count=30, derandomize=True)
hypothesis.settings.register_profile("deep", deadline=None, max_examples=300)
hypothesis.settings.load_profile("quick")

# Collecting makes millions of objects that stay: to look through them for garbage took 40 % of the time.
gc.disable()

# Databases and files are in memory where there is room: SQLite and MongoDB wait for the disk at every commit.
MEMORY = "/dev/shm"
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 8 * 2**30:
    tempfile.tempdir = os.environ["TMPDIR"] = MEMORY


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rowlock")
    group.addoption("--every-store", action="store_true", help="run every test on every store")
    group.addoption("--no-servers", action="store_true", help="run only the tests that need no database server")
    group.addoption("--budget-seconds", type=float, default=float("inf"), help="fail a run that takes longer")
    group.addoption("--started", type=float, default=time.time(), help="when the run began, in seconds since 1970")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the process that prints, not one that runs tests for it
        config.pluginmanager.register(Timing(config.option.started, config.option.budget_seconds))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.no_servers:
        remote = [item for item in items if _needs_server(item)]
        config.hook.pytest_deselected(items=remote)
        items[:] = [item for item in items if not _needs_server(item)]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect garbage again, but never look at the collected tests and imported modules."""
    gc.freeze()
    gc.enable()


def _needs_server(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    rig = item.callspec.params.get("rig") if hasattr(item, "callspec") else None
    return bool({"postgres", "mongo"} & set(item.fixturenames)) or bool(rig and rig.resource)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for the whole session, started by the first test that asks for it; fast, not durable."""
    # Compiling a statement that runs once takes longer than running it.
    with PostgresServer(fsync=False, settings={"jit": "off"}) as server:
        yield server


@pytest.fixture(scope="session")
def mongo() -> Iterator[MongoServer]:
    """One MongoDB, a replica set of one, for the session, started by the first test that asks for it; not durable."""
    with MongoServer(journaled=False, settings={"enableTestCommands": 1}) as server:  # which fail points need
        yield server


@pytest.fixture(scope="session")
def standalone_mongo() -> Iterator[MongoServer]:
    """One MongoDB without a replica set, for the session."""
    with MongoServer(0, journaled=False) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_pools(postgres: PostgresServer) -> AsyncIterator[None]:
    """Keeps connection pools between tests, and closes them before the server stops."""
    from conformance.stores import PostgresRig

    async with PostgresRig.pools.kept():
        yield


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def mongo_pools(mongo: MongoServer) -> AsyncIterator[None]:
    """Keeps clients between tests, and closes them before the server stops."""
    from conformance.stores import MongoRig

    async with MongoRig.pools.kept():
        yield


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests have measured, and last which tests did not run."""
    lines = [
        f"{report.nodeid.rpartition('/')[2]}: {value}"
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        for name, value in report.user_properties
        if name == "figure" and report.when == "call"
    ]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)
    missed = Counter(report.longrepr[2] for report in terminalreporter.getreports("skipped"))
    for reason, times in missed.items():
        terminalreporter.write_line(f"DID NOT RUN: {times} tests ({reason.removeprefix('Skipped: ')})", red=True)
