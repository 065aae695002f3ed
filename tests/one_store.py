"""The choice of stores for a test: one of them, or all if the store can make a difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

import pytest

Kind = TypeVar("Kind")


def chosen(metafunc: pytest.Metafunc, stores: Sequence[Kind]) -> Sequence[Kind]:
    """One store for the test, or every store if it is marked `every_store`.

    The checksum of the test's name chooses the store, so the choice is stable and every store gets its share.
    `--every-store` runs every test on every store.
    """
    if metafunc.definition.get_closest_marker("every_store") or metafunc.config.getoption("--every-store"):
        return stores
    return (stores[crc32(metafunc.definition.nodeid.encode()) % len(stores)],)


def on_one_store(metafunc: pytest.Metafunc, fixture: str, names: Sequence[str]) -> None:
    """Give the fixture the name of the chosen store, or of each of them, if the test uses it."""
    if fixture in metafunc.fixturenames:
        metafunc.parametrize(fixture, chosen(metafunc, names), indirect=True)
