"""The stand-in: one process for the session, as new for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sync.standin import StandIn


@pytest.fixture(scope="session")
def standin_process() -> Iterator[StandIn]:
    with StandIn() as made:
        yield made


@pytest.fixture
def standin(standin_process: StandIn) -> StandIn:
    standin_process.reset()
    return standin_process
