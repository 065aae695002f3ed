"""Counter deltas: written with every change to the number of jobs, compacted later; they also carry wake-up hints.

    {at, queue, type, alive: +3, …, rings: true}     the queue may have work
    {at, queue, type, cancels: <job id>}             the owner is asked to stop the job

Deltas are only inserted, so no writer waits for another; listeners see a delta when its change is committed.
A job that is enqueued alone is its own delta, `isNew`, until it is compacted: it needs no transaction.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.documents import JOBS
from rowlock.storage.mongo.indexes import Index

DELTAS = "rowlock_counter_deltas"
NEW = {"isNew": True}
# The index covers all queries for new jobs.
INDEXES = (Index(DELTAS), Index(JOBS, "new", (("isNew", 1), ("seq", -1), ("queue", 1), ("type", 1)), where=NEW))
NUMBERS = ("alive", "succeeded", "failed", "cancelled", "failures", "retries", "rescues", "seconds")


@dataclass(slots=True)
class Change:
    """What a transaction changes for one queue and type; the fields are those of a delta."""

    alive: int = 0  # waiting or running
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    failures: int = 0
    retries: int = 0
    rescues: int = 0
    seconds: float = 0.0
    rings: bool = False  # there may be something to claim

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


class CounterDeltas(defaultdict[tuple[str, str], Change]):
    """The changes of one transaction, by queue and type."""

    def __init__(self) -> None:
        super().__init__(Change)

    def add(self, other: CounterDeltas) -> None:
        for kind, change in other.items():
            mine = self[kind]
            for name in NUMBERS:
                setattr(mine, name, getattr(mine, name) + getattr(change, name))
            mine.rings |= change.rings

    def documents(self, now: datetime) -> list[Document]:
        return [
            {"at": now, "queue": queue, "type": type, **_told(change)}
            for (queue, type), change in self.items()
            if change
        ]

    async def write(self, scope: Scope, now: datetime) -> None:
        if documents := self.documents(now):
            await scope[DELTAS].insert_many(documents, session=scope.session)


async def ring(scope: Scope, queue: str) -> None:
    """Notify listeners that this queue may have work."""
    deltas = CounterDeltas()
    deltas[queue, ""].rings = True
    await deltas.write(scope, await scope.now())


def _told(change: Change) -> Document:
    return {name: value for name in change.__slots__ if (value := getattr(change, name))}
