"""Subscribers of the event stream: each has a filter and a bounded queue of unsent events."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from rowlock.storage.access import JobChange, TokenId
from rowlock.storage.imports import ImportRecord

_HELD_MAX = 256
_TOGETHER = 64
_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Wants:
    """The filter of a subscriber; a field of None matches everything."""

    company_id: str | None = None
    queue: str | None = None
    type: str | None = None
    job_id: str | None = None
    import_id: str | None = None

    def job(self, change: JobChange) -> bool:
        return (
            self.import_id is None
            and self.company_id in (None, change.company_id)
            and self.queue in (None, change.queue)
            and self._of_type(change.type)
            and self.job_id in (None, change.id)
        )

    def _of_type(self, type: str) -> bool:
        wanted = self.type
        return wanted in (None, type) or (wanted is not None and wanted.endswith(".*") and type.startswith(wanted[:-1]))

    def imported(self, record: ImportRecord) -> bool:
        """Return whether an import matches; a filter on a job, job type or queue matches no import."""
        return (
            self.company_id in (None, record.company_id)
            and self.import_id in (None, record.id)
            and self.job_id is self.type is self.queue is None
        )

    @property
    def queues(self) -> bool:
        """Whether queue counts match: not with a filter on company, job, job type or import."""
        return self.company_id is self.job_id is self.type is self.import_id is None


@dataclass(frozen=True, slots=True)
class Batch:
    """Events joined into one piece, shared by all subscribers with the same filter."""

    count: int
    data: bytes


def batches(events: Sequence[bytes]) -> list[Batch]:
    """Join events into batches of up to 64."""
    parts = (events[at : at + _TOGETHER] for at in range(0, len(events), _TOGETHER))
    return [Batch(len(part), b"".join(part)) for part in parts]


@dataclass(eq=False, slots=True)
class Subscriber:
    """One connected client, with its filter and unsent events."""

    token_id: TokenId
    wants: Wants
    held: int = 0  # number of unsent events
    news: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False
    _batches: deque[Batch] = field(default_factory=deque)

    def give(self, given: Sequence[Batch], gap: bytes) -> None:
        """Queue these batches; if that makes more than 256 events, replace all of them by a gap."""
        count = sum(batch.count for batch in given)
        if self.held + count > _HELD_MAX:
            self._batches.clear()  # the client is too slow: let it reload
            self.held, count, given = 0, 1, [Batch(1, gap)]
        self._batches.extend(given)
        self.held += count
        self.news.set()

    def take(self) -> bytes:
        """Remove and return the next batch; empty if there is none."""
        taken = self._batches.popleft() if self._batches else Batch(0, b"")
        self.held -= taken.count
        if not self._batches and not self.over:
            self.news.clear()
        return taken.data

    def end(self) -> None:
        self.over = True
        self.news.set()


class Listeners:
    """All subscribers, grouped by filter: an event is built once per group."""

    def __init__(self) -> None:
        self._groups: defaultdict[Wants, set[Subscriber]] = defaultdict(set)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Subscriber]:
        return (listener for group in self._groups.values() for listener in group)

    @property
    def wants(self) -> list[Wants]:
        """The distinct filters."""
        return list(self._groups)

    def add(self, listener: Subscriber) -> None:
        self._groups[listener.wants].add(listener)
        self._count += 1

    def discard(self, listener: Subscriber) -> None:
        group = self._groups.get(listener.wants, set())
        if listener in group:
            group.remove(listener)
            self._count -= 1
        if not group:
            self._groups.pop(listener.wants, None)

    async def give(self, wants: Wants, events: Sequence[bytes], gap: bytes) -> None:
        """Queue events for all subscribers with this filter; yields to the event loop after every 256 of them."""
        shared = batches(events) if len(events) <= _HELD_MAX else [Batch(1, gap)]
        left = iter(list(self._groups.get(wants, ())))
        while some := list(islice(left, _AT_ONCE)):
            for listener in some:
                listener.give(shared, gap)
            await asyncio.sleep(0)
