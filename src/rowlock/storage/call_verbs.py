"""The verbs of a store for calls of other services, each with its guarantee; see `base` for those of jobs.

    take_call ─▶ the call counts ─end_call─▶ it counts for the seconds of its limits ─▶ gone
                        └─ its holder died: as if it had ended after hold_seconds ──────┘

A call may reach the other side at any time between `take_call` and `end_call`. Counted like this, no more than a limit
allows arrive there in any of its windows, whoever makes them, and wherever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rowlock.storage.calls import CallBudget, CallLimit, Marks, PermitId, SyncCounts
from rowlock.storage.records import JobRecord


class CallVerbs(Protocol):
    """What keeps calls of another service within its limits, and those about one subject apart and in order."""

    async def take_call(self, permit_id: PermitId, limits: Sequence[CallLimit], hold_seconds: float) -> float:
        """0.0: the call may be made, and counts against all these limits; else how long to wait, and nothing was taken.

        The wait is the shortest that may be enough, and more than 0: ask again then. A call that is not ended counts as
        if it had ended after `hold_seconds`: longer than it can take. Asked again with the same id before its end (an
        answer may be lost), it is the same call, held anew. Limits that cannot be kept, two of the same key among them,
        are a ValueError.
        """

    async def end_call(self, permit_id: PermitId, *, made: bool = True) -> None:
        """The call is over, and counts for the seconds of its limits from now on; one that was not made does not count.

        Only the first end of a call matters. One that nobody knows, or knows any more, is left alone.
        """

    async def rest_calls(self, key: str, seconds: float) -> None:
        """No call of this key begins for so long, a year at most, anywhere; a longer rest that is set already stays."""

    async def call_budget(self, keys: Sequence[str]) -> list[CallBudget]:
        """How each of these keys stands, in their order; one that was never used is not in use."""

    async def hold_subjects(self, kind: str, keys: Sequence[str], holder: str, seconds: float) -> dict[str, Marks]:
        """Those of these that nobody else holds, now held by `holder` for so long, with the marks on each.

        What the holder has already it holds anew. Of two who ask at once, one gets it.
        """

    async def mark_subjects(self, kind: str, holder: str, marks: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Note what wrote each property last (of two marks the greater stays) and let these subjects go; tell which.

        Nothing happens to one that the holder has lost or let go. A hold whose time is over is lost only when another
        has taken it.
        """

    async def free_subjects(self, kind: str, holder: str, keys: Sequence[str]) -> None:
        """Let these subjects go, as they are; nothing happens to one that the holder has lost."""

    async def prune_calls(self, days: float, limit: int) -> int:
        """Remove up to `limit` calls that do not count any more, and subjects not touched for so long; count both."""

    async def sync_counts(self, queues: Sequence[str], company_id: str | None = None) -> SyncCounts:
        """How the work of these queues stands, known without counting; that of one company by looking at its jobs."""

    async def failing(self, queues: Sequence[str], limit: int, company_id: str | None = None) -> list[JobRecord]:
        """Jobs that wait for another attempt after a failed one, or are dead; the latest failure first.

        They are looked for among the last thousand failed attempts of each queue, or of the company.
        """
