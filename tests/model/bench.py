"""The store and the clock that every state machine uses."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from conformance.stores import Rig
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store

T = TypeVar("T")


class Bench:
    """A rig and its event loop, for a machine that is not asynchronous."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.clock = FakeClock()
        self._runner = asyncio.Runner()
        self._store: Store | None = None

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def empty_store(self) -> Store:
        if self._store is None:
            self._store = self.run(self.rig.make(self.clock))
        else:
            self._store = self.run(self.rig.empty(self._store))
        return self._store

    def close(self) -> None:
        self.run(self.rig.dispose())
        self._runner.close()
