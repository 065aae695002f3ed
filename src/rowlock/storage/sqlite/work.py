"""Base of the store's mixins: each method runs its work with a connection, in its thread, and the time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import apsw

T = TypeVar("T")
Work = Callable[[apsw.Connection, int], T]  # takes a connection, and the time in microseconds


class Worked(ABC):
    """Base of a group of store methods; the store itself manages the connections."""

    @abstractmethod
    async def _write(self, work: Work[T]) -> T:
        """Run the work in a transaction that is durable when this returns."""

    @abstractmethod
    async def _read(self, work: Work[T]) -> T:
        """Run the work on the connection for reads."""
