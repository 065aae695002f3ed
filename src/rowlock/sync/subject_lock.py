"""SubjectLock: while it lasts, no other job calls the service about the locked subjects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from rowlock.errors import Snooze, StoreError, StoreUnavailable
from rowlock.storage.call_verbs import CallVerbs
from rowlock.storage.calls import Marks

_MARK_AGAIN_SECONDS = (0.1, 0.3, 1.0, 2.0)
_LOST_SECONDS = 1.0
_RENEWAL_SECONDS_MAX = 2.0
_RENEWALS = 4  # per duration of a hold


class SubjectLock:
    """The subjects that one attempt holds, with their marks: which job wrote each property last.

    The lock is renewed while the attempt runs. If it is not renewed in time it counts as lost, even if no other job
    has taken it yet: no call is made under it and nothing is marked.
    """

    def __init__(self, store: CallVerbs, kind: str, holder: str, call_seconds: float) -> None:
        self._store = store
        self._kind = kind
        self._holder = holder
        self._needed_seconds = call_seconds + 1.0  # with less time left, a call could outlive the hold
        self._seconds = 2 * call_seconds + 2.0
        self._until = 0.0  # on this process's monotonic clock; the hold in the store ends later
        self._lost = False
        self._renewing: asyncio.Task[None] | None = None
        self.marks: dict[str, Marks] = {}
        self.doubtful = False  # a call about these subjects may still be in progress

    async def take(self, subjects: Sequence[str]) -> set[str]:
        """Lock the subjects that no other attempt holds. Returns those."""
        asked_at = time.monotonic()
        self.marks = await self._store.hold_subjects(self._kind, subjects, self._holder, self._seconds)
        self._until = asked_at + self._seconds
        if self.marks:
            self._renewing = asyncio.create_task(self._renew_always())
        return set(self.marks)

    async def more(self, subject: str) -> bool:
        """Lock one more subject. Returns False if another attempt holds it."""
        asked_at = time.monotonic()
        held = await self._store.hold_subjects(self._kind, [subject], self._holder, self._seconds)
        self.marks |= held
        self._until = min(self._until, asked_at + self._seconds)
        return bool(held)

    async def last(self) -> None:
        """Renew the lock if it does not last for one more call. Raises Snooze if it was lost."""
        if not self.marks:
            return
        if self._until - time.monotonic() < self._needed_seconds:
            await self._renew()
        if self._lost:
            raise Snooze(_LOST_SECONDS, "another job may have taken over what this one is about")

    async def end(self, written: Mapping[str, Marks]) -> list[str]:
        """Mark the written properties and release all subjects. Returns the written subjects that could not be marked.

        If a call may still be in progress, subjects without a mark stay locked until the hold expires.
        """
        if self._renewing is not None:
            self._renewing.cancel()
            # A renewal that reaches the store later would lock the released subjects again.
            await asyncio.wait([self._renewing], timeout=_RENEWAL_SECONDS_MAX)
        marked = await self._mark(written) if written and not self._lost else []
        rest = [subject for subject in self.marks if subject not in marked]
        self.marks = {}
        if rest and not self.doubtful:
            with suppress(StoreError):  # then the hold expires
                await self._store.free_subjects(self._kind, self._holder, rest)
        return [subject for subject in written if subject not in marked]

    async def _renew_always(self) -> None:
        while not self._lost:
            await asyncio.sleep(self._seconds / _RENEWALS)
            with suppress(StoreError):
                await self._renew()

    async def _renew(self) -> None:
        """Renew in time, or count as lost: later, another attempt may have held the subjects in between."""
        asked_at, subjects = time.monotonic(), list(self.marks)
        held: Collection[str] = ()
        if asked_at < self._until:
            held = await self._store.hold_subjects(self._kind, subjects, self._holder, self._seconds)
        if time.monotonic() >= self._until or len(held) < len(subjects):
            self._lost = True
        else:
            self._until = asked_at + self._seconds

    async def _mark(self, written: Mapping[str, Marks]) -> list[str]:
        for delay in _MARK_AGAIN_SECONDS:
            try:
                return await self._store.mark_subjects(self._kind, self._holder, written)
            except StoreUnavailable:
                await asyncio.sleep(delay)
        return await self._store.mark_subjects(self._kind, self._holder, written)


def outdated(mark: str | None, order: str) -> bool:
    """Whether a job newer than `order` left the mark: ids grow with time."""
    return mark is not None and mark > order
