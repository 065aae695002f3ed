"""Base classes for the verbs of one subject, independent of the store's connections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from rowlock.clock import Clock
from rowlock.storage.mongo.connection import STATEMENT_SECONDS, Work

T = TypeVar("T")


class Worked(ABC):
    """Base of a class with the store's verbs on one subject."""

    url: str
    clock: Clock

    @abstractmethod
    async def _atomic(self, work: Work[T], seconds: float = STATEMENT_SECONDS) -> T:
        """Run the work in a transaction, retried on conflicts; without a replica set, run it plainly."""

    @abstractmethod
    async def _plain(self, work: Work[T], seconds: float = STATEMENT_SECONDS) -> T:
        """Run the work without a transaction: reads, and writes of one document."""


class InTransaction(ABC):
    """Base of a class with a transaction's verbs on one subject."""

    @abstractmethod
    async def _run(self, work: Work[T]) -> T:
        """Run the work in this transaction."""
