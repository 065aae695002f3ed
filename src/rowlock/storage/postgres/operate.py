"""The operators' verbs of the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from rowlock.clock import Clock
from rowlock.ids import is_uuid
from rowlock.storage.postgres.listing import Listing
from rowlock.storage.postgres.rows import clean
from rowlock.storage.records import (
    CancelResult,
    JobFilter,
    JobId,
    KeepPolicy,
    QueueRecord,
    Retried,
    Status,
    WorkerRecord,
)
from rowlock.storage.reliability import (
    Activity,
    FailureFilter,
    FailureId,
    FailurePage,
    FailureRecord,
    Total,
    failure_cursor,
    failure_page,
)

_STATUS_NUMBER = {Status.SUCCEEDED: 1, Status.FAILED: 2, Status.CANCELLED: 3}
_DEAD = (Status.FAILED, Status.CANCELLED)


class Operators(Listing):
    """The verbs for operators and retention."""

    clock: Clock

    @property
    def _now(self) -> datetime | None:
        return self.clock.now()

    async def cancel(self, job_id: JobId) -> CancelResult:
        if not is_uuid(job_id):
            return CancelResult.NOT_FOUND
        return CancelResult(await self._connections.value("cancel", job_id, self._now))

    async def retry(self, where: JobFilter, limit: int) -> Retried:
        ids = await self._dead(where, limit)
        rows = await self._connections.fetch("retry", ids, self._now) if ids else []
        done = {row["id"]: row["retried"] for row in rows}
        return Retried([i for i in ids if done.get(i) is True], [i for i in ids if done.get(i) is False])

    async def discard(self, where: JobFilter, limit: int) -> list[JobId]:
        ids = await self._dead(where, limit)
        return [row[0] for row in await self._connections.fetch("discard", ids, self._now)] if ids else []

    async def _dead(self, where: JobFilter, limit: int) -> list[JobId]:
        """Returns the failed and cancelled jobs that match, oldest first."""
        statuses = _DEAD if where.status is None else (where.status,)
        ids: list[JobId] = []
        for status in statuses:
            if status in _DEAD:
                ids += await self._ids(replace(where, status=status), limit - len(ids)) if len(ids) < limit else []
        return sorted(ids)

    async def pause(self, queue: str) -> None:
        await self._connections.fetch("pause", queue, self._now)

    async def resume(self, queue: str) -> None:
        await self._connections.fetch("resume", queue)
        await self._connections.fetch("wake", [queue])

    async def queues(self) -> list[QueueRecord]:
        return [QueueRecord(*row) for row in await self._connections.fetch("queues", self._now)]

    async def counts(self) -> dict[Status, int]:
        (row,) = await self._connections.fetch("counts")
        return dict(zip(Status, row, strict=True))

    async def totals(self) -> list[Total]:
        return [Total._make(row) for row in await self._connections.fetch("totals")]

    async def activity(self, seconds: float) -> list[Activity]:
        return [Activity._make(row) for row in await self._connections.fetch("activity", seconds, self._now)]

    async def compact(self, limit: int) -> int:
        compacted = await self._connections.value("compact", limit)
        await self._connections.fetch("forget_minutes", self._now)
        return int(compacted)

    async def failures(self, where: FailureFilter, limit: int, cursor: str | None = None) -> FailurePage:
        before, last = failure_cursor(cursor) if cursor is not None else (None, None)
        if where.job_id is not None and not is_uuid(where.job_id):
            return FailurePage([], None)
        rows = await self._connections.fetch(
            "failures",
            where.company_id,
            where.job_name,
            where.job_id,
            where.final,
            where.unresolved,
            before,
            last,
            limit + 1,
        )
        return failure_page([FailureRecord(*row) for row in rows], limit)

    async def failure(self, failure_id: FailureId) -> FailureRecord | None:
        rows = await self._connections.fetch("failure", failure_id) if is_uuid(failure_id) else []
        return FailureRecord(*rows[0]) if rows else None

    async def add_failure(self, failure: FailureRecord) -> None:
        f = failure
        await self._connections.fetch(
            "add_failure",
            *(f.id, f.job_id, f.job_name, f.queue_name, f.company_id, f.payload, f.attempts, f.max_attempts),
            *(f.is_final_attempt, clean(f.failed_reason), clean(f.stack_trace), f.first_failed_at, f.started_at),
            f.owner,
        )

    async def prune_failures(self, days: float, limit: int, *, count: int | None = None) -> int:
        removed = int(await self._connections.value("prune_failures", days, limit, self._now))
        if count is None or removed >= limit:
            return removed
        return removed + int(await self._connections.value("prune_more_failures", count, limit - removed))

    async def workers(self) -> list[WorkerRecord]:
        rows = await self._connections.fetch("workers")
        return [WorkerRecord(row[0], row[1], tuple(row[2]), tuple(row[3]), row[4], row[5]) for row in rows]

    async def prune(self, policies: Mapping[Status, KeepPolicy], limit: int) -> dict[Status, int]:
        removed = dict.fromkeys((status for status in policies if status.final), 0)
        for status in removed:
            policy, number = policies[status], _STATUS_NUMBER[status]
            if policy.days is not None:
                removed[status] += await self._connections.value("prune_old", number, policy.days, limit, self._now)
            if policy.count is not None and removed[status] < limit:
                left = limit - removed[status]
                removed[status] += await self._connections.value("prune_beyond", number, policy.count, left, self._now)
        await self._connections.fetch("prune_keys", limit, self._now)
        for leftover in ("forget_workers", "forget_pauses", "forget_starts"):
            await self._connections.fetch(leftover, self._now)
        return removed
