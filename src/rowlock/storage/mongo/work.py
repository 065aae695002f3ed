"""What the verbs of a subject build on, apart from the store's connections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from rowlock.clock import Clock
from rowlock.storage.mongo.connection import STATEMENT_SECONDS, Work

T = TypeVar("T")


class Worked(ABC):
    """A store's verbs on a subject of their own."""

    url: str
    clock: Clock

    @abstractmethod
    async def _atomic(self, work: Work[T], seconds: float = STATEMENT_SECONDS) -> T:
        """Do the work in a transaction, again as often as others get in its way; without a replica set, plainly."""

    @abstractmethod
    async def _plain(self, work: Work[T], seconds: float = STATEMENT_SECONDS) -> T:
        """Do the work without one: reads, and writes of one document."""


class InTransaction(ABC):
    """A transaction's verbs on a subject of their own."""

    @abstractmethod
    async def _run(self, work: Work[T]) -> T:
        """Do the work in this transaction."""
