"""What every folder of tests may use."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

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
