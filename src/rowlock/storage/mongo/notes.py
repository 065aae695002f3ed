"""Notes of changes: written with every change of how many jobs there are, folded into the counts later, and hints.

    {at, queue, type, alive: +3, …, rings: true}     "queue" may have work
    {at, queue, type, cancels: <job id>}                          its owner is to stop it

A note is only ever added, so that nobody waits for anybody; whoever listens sees it when its change is committed.
A job that is enqueued by itself is a note of its own, `isNew`, until it is folded: so it needs no transaction.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.documents import JOBS
from rowlock.storage.mongo.indexes import Index

NOTES = "rowlock_notes"
NEW = {"isNew": True}
# All that is asked of new jobs is in the index.
INDEXES = (Index(NOTES), Index(JOBS, "new", (("isNew", 1), ("seq", -1), ("queue", 1), ("type", 1)), where=NEW))
NUMBERS = ("alive", "succeeded", "failed", "cancelled", "failures", "retries", "rescues", "seconds")


@dataclass(slots=True)
class Change:
    """What a transaction changes for one queue and type; the fields are those of a note."""

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


class Tally(defaultdict[tuple[str, str], Change]):
    """The changes of one transaction, by queue and type."""

    def __init__(self) -> None:
        super().__init__(Change)

    def add(self, other: Tally) -> None:
        for kind, change in other.items():
            mine = self[kind]
            for name in NUMBERS:
                setattr(mine, name, getattr(mine, name) + getattr(change, name))
            mine.rings |= change.rings

    def notes(self, now: datetime) -> list[Document]:
        return [
            {"at": now, "queue": queue, "type": type, **_told(change)}
            for (queue, type), change in self.items()
            if change
        ]

    async def write(self, scope: Scope, now: datetime) -> None:
        if notes := self.notes(now):
            await scope[NOTES].insert_many(notes, session=scope.session)


async def ring(scope: Scope, queue: str) -> None:
    """Tell those who listen that this queue may have work."""
    tally = Tally()
    tally[queue, ""].rings = True
    await tally.write(scope, await scope.now())


def _told(change: Change) -> Document:
    return {name: value for name in change.__slots__ if (value := getattr(change, name))}
