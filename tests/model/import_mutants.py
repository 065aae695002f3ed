"""Guards of imports that are removed to show that the oracle notices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rowlock.storage.mongo.loading import cells
from rowlock.storage.mongo.loading import load as mongo_load
from rowlock.storage.postgres.loading import load as postgres_load
from rowlock.storage.postgres.loading import stage as postgres_stage
from rowlock.storage.sqlite.loading import load as sqlite_load
from rowlock.storage.sqlite.loading import merge as sqlite_put
from rowlock.storage.tables import Loaded

_STORES = (sqlite_load, postgres_load, mongo_load)


def rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns may change values without a word."""
    for module in (sqlite_put, postgres_load, postgres_stage):
        monkeypatch.setattr(module, "inexact", lambda *_: ())
    monkeypatch.setattr(cells, "kept_by_double", lambda _: True)


def subtracts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are in no other count are taken for unchanged."""

    def change(load: Any) -> Any:
        async def changed(*given: Any) -> Loaded:
            loaded = await load(*given)
            return replace(loaded, unchanged=loaded.unchanged + len(loaded.refused), refused=())

        return changed

    _each_store(monkeypatch, change)


def loses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last row of a chunk is counted, and not loaded."""

    def change(load: Any) -> Any:
        async def changed(self: Any, how: Any, frame: Any) -> Loaded:
            loaded = await load(self, how, frame.head(-1))
            return replace(loaded, inserted=loaded.inserted + min(1, len(frame)))

        return changed

    _each_store(monkeypatch, change)


def _each_store(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    for module in _STORES:
        monkeypatch.setattr(module.Loading, "load", change(module.Loading.load))


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {each.__name__: each for each in (rounds, subtracts, loses)}
