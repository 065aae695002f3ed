"""A hold on subjects: while it lasts, no other job calls the service about them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rowlock.errors import Snooze, StoreError, StoreUnavailable
from rowlock.storage.call_verbs import CallVerbs
from rowlock.storage.calls import Marks

_MARK_AGAIN_SECONDS = (0.1, 0.3, 1.0, 2.0)
_LOST_SECONDS = 1.0


class Hold:
    """What one attempt holds, with the marks that were on it: which job wrote each property last."""

    def __init__(self, store: CallVerbs, kind: str, holder: str, call_seconds: float) -> None:
        self._store = store
        self._kind = kind
        self._holder = holder
        self._needed_seconds = call_seconds + 1.0  # or a call would outlive the hold
        self._seconds = 2 * call_seconds + 2.0
        self._until = 0.0
        self.marks: dict[str, Marks] = {}
        self.doubtful = False  # a call about them may still be under way

    async def take(self, subjects: Sequence[str]) -> set[str]:
        """Hold those of these that no other holds; which they are."""
        self.marks = await self._ask(subjects)
        return set(self.marks)

    async def last(self) -> None:
        """Make sure that it lasts for one more call; raises Snooze where it was lost."""
        if not self.marks or self._until - time.monotonic() >= self._needed_seconds:
            return
        # Whoever had them in between has left other marks, or has them still.
        if await self._ask(list(self.marks)) != self.marks:
            raise Snooze(_LOST_SECONDS, "another job took over what this one is about")

    async def end(self, written: Mapping[str, Marks]) -> list[str]:
        """Mark what was written and let all go; those whose marks came too late, another having taken them.

        Where a call may still be under way, what was not written stays held until its time is over.
        """
        marked = await self._mark(written) if written else []
        lost = [subject for subject in written if subject not in marked]
        rest = [subject for subject in self.marks if subject not in written]
        self.marks = {}
        if rest and not self.doubtful:
            with suppress(StoreError):  # then their time runs out
                await self._store.free_subjects(self._kind, self._holder, rest)
        return lost

    async def _ask(self, subjects: Sequence[str]) -> dict[str, Marks]:
        asked_at = time.monotonic()
        held = await self._store.hold_subjects(self._kind, subjects, self._holder, self._seconds)
        self._until = asked_at + self._seconds
        return held

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
