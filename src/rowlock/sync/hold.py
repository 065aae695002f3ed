"""A hold on subjects: while it lasts, no other job calls the service about them."""

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


class Hold:
    """What one attempt holds, with the marks that were on it: which job wrote each property last.

    It is renewed as long as the attempt runs. What could not be renewed in time is lost, even where nobody has taken
    it yet: no call is made with it, and nothing marked.
    """

    def __init__(self, store: CallVerbs, kind: str, holder: str, call_seconds: float) -> None:
        self._store = store
        self._kind = kind
        self._holder = holder
        self._needed_seconds = call_seconds + 1.0  # or a call would outlive the hold
        self._seconds = 2 * call_seconds + 2.0
        self._until = 0.0  # this process's monotonic clock; the store's hold ends later
        self._lost = False
        self._renewing: asyncio.Task[None] | None = None
        self.marks: dict[str, Marks] = {}
        self.doubtful = False  # a call about them may still be under way

    async def take(self, subjects: Sequence[str]) -> set[str]:
        """Hold those of these that no other holds; which they are."""
        asked_at = time.monotonic()
        self.marks = await self._store.hold_subjects(self._kind, subjects, self._holder, self._seconds)
        self._until = asked_at + self._seconds
        if self.marks:
            self._renewing = asyncio.create_task(self._renew_always())
        return set(self.marks)

    async def more(self, subject: str) -> bool:
        """Hold one more; False when another does."""
        asked_at = time.monotonic()
        held = await self._store.hold_subjects(self._kind, [subject], self._holder, self._seconds)
        self.marks |= held
        self._until = min(self._until, asked_at + self._seconds)
        return bool(held)

    async def last(self) -> None:
        """Make sure that it lasts for one more call; raises Snooze where it was lost."""
        if not self.marks:
            return
        if self._until - time.monotonic() < self._needed_seconds:
            await self._renew()
        if self._lost:
            raise Snooze(_LOST_SECONDS, "another job may have taken over what this one is about")

    async def end(self, written: Mapping[str, Marks]) -> list[str]:
        """Mark what was written and let all go; those whose marks came too late, another having taken them.

        Where a call may still be under way, what was not written stays held until its time is over.
        """
        if self._renewing is not None:
            self._renewing.cancel()
            # One that is on its way to the store would hold anew what is let go.
            await asyncio.wait([self._renewing], timeout=_RENEWAL_SECONDS_MAX)
        marked = await self._mark(written) if written and not self._lost else []
        rest = [subject for subject in self.marks if subject not in marked]
        self.marks = {}
        if rest and not self.doubtful:
            with suppress(StoreError):  # then their time runs out
                await self._store.free_subjects(self._kind, self._holder, rest)
        return [subject for subject in written if subject not in marked]

    async def _renew_always(self) -> None:
        while not self._lost:
            await asyncio.sleep(self._seconds / 4)
            with suppress(StoreError):
                await self._renew()

    async def _renew(self) -> None:
        """In time, or not at all: later, another may have had them in between."""
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


def outdated(mark: str | None, job_id: str) -> bool:
    """Whether what this job would write was written by a newer one: ids grow with time."""
    return mark is not None and mark > job_id
