"""What every folder of tests may use."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from mongo_server import MongoServer
from postgres_server import PostgresServer

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("rowlock", deadline=None)
hypothesis.settings.load_profile("rowlock")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for the whole session, started by the first test that asks for it; fast, not durable."""
    # Compiling a statement that runs once takes longer than running it.
    with PostgresServer(fsync=False, settings={"jit": "off"}) as server:
        yield server


@pytest.fixture(scope="session")
def mongo() -> Iterator[MongoServer]:
    """One MongoDB, a replica set of one, for the whole session, started by the first test that asks for it."""
    with MongoServer(durable=False) as server:
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests have measured."""
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
