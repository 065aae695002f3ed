"""What went wrong: the dead-letter queue, by filter, and failed attempts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import NamedTuple

from rowlock.desk.jobs import Jobs
from rowlock.errors import BadCursor, JobNotFound
from rowlock.shapes import Shape, failure_shape
from rowlock.storage.records import JobFilter, JobId, JobRecord, Status
from rowlock.storage.reliability import FailureFilter

MATCHED_MAX = 1_000_000  # how far matching jobs are counted
_BATCH = 100  # whole records are read for their ids: few at a time, they may be large
_BULK_SECONDS = 20.0  # then the caller goes on with the next call
_DATED_MAX = 1_000  # how many of the newest are looked at for those that died too late


class _Batch(NamedTuple):
    ids: list[JobId]
    cursor: str | None
    late: int = 0  # how many are not among these ids: they died too late


class Records(Jobs):
    """What may be asked about dead jobs and failures."""

    async def retry_dead(
        self,
        *,
        ids: Sequence[JobId] | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        limit: int = 10_000,
        cursor: str | None = None,
        died_before: datetime | None = None,
    ) -> Shape:
        """Queue up to `limit` failed jobs again, newest first; go on with `nextCursor` where there were more.

        Those that died after `died_before`, by the store's time, are left as they are.
        """
        where = self._where(Status.FAILED, type, queue, company_id, ids, reason)
        if dry_run:
            return await self._dry(where, died_before, {"retried": 0, "conflicts": []})
        done, retried, conflicts = _Batch([], cursor), 0, list[JobId]()
        matched = 0
        async for done in self._batches(where, limit, cursor, died_before):
            told = await self._app.store.retry(JobFilter(Status.FAILED, ids=done.ids), len(done.ids))
            matched, retried = matched + len(done.ids), retried + len(told.retried)
            conflicts += told.conflicts
        return {
            "dryRun": False,
            "matched": matched,
            "retried": retried,
            "conflicts": conflicts,
            "nextCursor": done.cursor,
        }

    async def discard_dead(
        self,
        *,
        ids: Sequence[JobId] | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        limit: int = 10_000,
        cursor: str | None = None,
        died_before: datetime | None = None,
    ) -> Shape:
        """Remove up to `limit` failed jobs for good, newest first; go on with `nextCursor` where there were more.

        Those that died after `died_before`, by the store's time, are left as they are.
        """
        where = self._where(Status.FAILED, type, queue, company_id, ids, reason)
        if dry_run:
            return await self._dry(where, died_before, {"discarded": 0})
        done, matched, discarded = _Batch([], cursor), 0, 0
        async for done in self._batches(where, limit, cursor, died_before):
            matched += len(done.ids)
            discarded += len(await self._app.store.discard(JobFilter(Status.FAILED, ids=done.ids), len(done.ids)))
        return {"dryRun": False, "matched": matched, "discarded": discarded, "nextCursor": done.cursor}

    async def count_dead(
        self,
        *,
        ids: Sequence[JobId] | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        reason: str | None = None,
        died_before: datetime | None = None,
        at_most: int = MATCHED_MAX,
    ) -> Shape:
        """How many failed jobs match, counted so far at most, and the store's time just before: {matched, at}."""
        where = self._where(Status.FAILED, type, queue, company_id, ids, reason)
        now = await self._app.store.now()
        return {"matched": await self._count(where, died_before, at_most), "at": now}

    async def failures(
        self,
        *,
        company_id: str | None = None,
        job_name: str | None = None,
        job_id: JobId | None = None,
        final: bool | None = None,
        unresolved: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Shape:
        """Failed attempts, newest first: {failures, nextCursor}."""
        company_id = self._own(company_id)
        where = FailureFilter(company_id, job_name, job_id, final, unresolved)
        try:
            page = await self._app.store.failures(where, limit, cursor)
        except ValueError as error:
            raise BadCursor(str(error)) from None
        shapes = [failure_shape(failure, self._app.redact) for failure in page.failures]
        return {"failures": shapes, "nextCursor": page.next_cursor}

    async def failure(self, failure_id: str) -> Shape:
        """One failed attempt, with its stack."""
        found = await self._app.store.failure(failure_id)
        if found is None or self._company_id not in (None, found.company_id):
            raise JobNotFound(f"no failure has the id {failure_id}; retention may have removed it")
        return failure_shape(found, self._app.redact)

    async def retry_failure(self, failure_id: str) -> Shape:
        """Queue the job of a failed attempt again, which resolves the failure."""
        job_id = (await self.failure(failure_id))["jobId"]
        await self.retry(job_id)
        return {"failureId": failure_id, "jobId": job_id}

    async def _dry(self, where: JobFilter, died_before: datetime | None, nothing: Shape) -> Shape:
        matched = await self._count(where, died_before, MATCHED_MAX)
        return {"dryRun": True, "matched": matched, **nothing, "nextCursor": None}

    async def _count(self, where: JobFilter, died_before: datetime | None, at_most: int) -> int:
        """How many match; what died too late is left out where it is among the newest, as it is most often."""
        matched = await self._app.store.count(where, at_most)
        if died_before is None or not matched:
            return matched
        late = 0
        async for batch in self._batches(where, _DATED_MAX, None, died_before):
            late += batch.late
        return max(0, matched - late)

    async def _batches(
        self, where: JobFilter, limit: int, cursor: str | None, died_before: datetime | None
    ) -> AsyncIterator[_Batch]:
        """The ids of up to `limit` jobs that match, some at a time, each time with where to go on; not for too long."""
        until = time.monotonic() + _BULK_SECONDS
        while limit > 0 and time.monotonic() < until:
            page = await self._page(where, min(_BATCH, limit), cursor)
            cursor = page.next_cursor
            ids = [job.id for job in page.jobs if died_before is None or _died_at(job) <= died_before]
            yield _Batch(ids, cursor, len(page.jobs) - len(ids))
            limit -= len(page.jobs)
            if cursor is None:
                return


def _died_at(job: JobRecord) -> datetime:
    return job.finished_at or job.updated_at
