"""The store's verbs for outbound calls, each with its guarantee; `contract` has those for jobs.

    take_call ─▶ the call counts ─end_call─▶ it counts for the seconds of its limits ─▶ gone
                        └─ its holder died: as if it had ended after hold_seconds ──────┘

A call may reach the other service at any time between `take_call` and `end_call`. Counted like this, no window of a
limit ever has more calls than the limit allows, from all processes together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rowlock.storage.calls import CallBudget, CallLimit, Marks, PermitId, SyncCounts
from rowlock.storage.records import JobRecord


class CallVerbs(Protocol):
    """Rate limits of outbound calls, and locks on their subjects."""

    async def take_call(self, permit_id: PermitId, limits: Sequence[CallLimit], hold_seconds: float) -> float:
        """Returns 0.0 if the call may be made, and counts it against all these limits; else the seconds to wait.

        A wait is more than 0, the shortest that may be enough, and nothing was taken: call again then. A call that is
        never ended counts as if it had ended after `hold_seconds`, which must be longer than it can take. Repeating the
        verb with the same id before the end (after a lost answer) renews the same call. Raises ValueError for invalid
        limits, and for two limits with the same key.
        """

    async def end_call(self, permit_id: PermitId, *, made: bool = True) -> None:
        """Ends a call: it counts for the seconds of its limits from now on, or not at all if it was not made.

        Only the first end of a call matters. Does nothing for an unknown call.
        """

    async def rest_calls(self, key: str, seconds: float) -> None:
        """Blocks calls of this key in all processes for `seconds`, at most a year; a longer block already set stays."""

    async def call_budget(self, keys: Sequence[str]) -> list[CallBudget]:
        """Returns the state of these keys, in their order; a key that was never used has 0 calls in use."""

    async def hold_subjects(self, kind: str, keys: Sequence[str], holder: str, seconds: float) -> dict[str, Marks]:
        """Locks the subjects that no one else holds for `seconds`; returns the marks of those that `holder` now has.

        Renews the locks that the holder has already. Of two concurrent callers, one gets the subject.
        """

    async def mark_subjects(self, kind: str, holder: str, marks: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Records the last writer of each property and frees these subjects; returns those that `holder` still held.

        Of two marks of a property the greater stays. Skips subjects that the holder has lost or freed. An expired lock
        is lost only when another holder has taken it.
        """

    async def free_subjects(self, kind: str, holder: str, keys: Sequence[str]) -> None:
        """Frees these subjects without marks; skips those that the holder has lost."""

    async def prune_calls(self, days: float, limit: int) -> int:
        """Removes up to `limit` calls that no longer count, and subjects unused for `days`; returns how many."""

    async def sync_counts(self, queues: Sequence[str], company_id: str | None = None) -> SyncCounts:
        """Returns the state of these queues without counting jobs; for one company, by reading its jobs."""

    async def failing(self, queues: Sequence[str], limit: int, company_id: str | None = None) -> list[JobRecord]:
        """Returns jobs that wait for a retry or are dead letters, the latest failure first.

        Searches the last thousand failed attempts of each queue, or of the company.
        """
