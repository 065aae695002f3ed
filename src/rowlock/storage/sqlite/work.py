"""What a verb is given: a connection in its thread, and the time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import apsw

T = TypeVar("T")
Work = Callable[[apsw.Connection, int], T]  # a connection, and the time


class Worked(ABC):
    """A store's verbs on a subject of their own, apart from the store's connections."""

    @abstractmethod
    async def _write(self, work: Work[T]) -> T:
        """Do the work in a transaction that is on the disk when this returns."""

    @abstractmethod
    async def _read(self, work: Work[T]) -> T:
        """Do the work on a connection that only reads."""
