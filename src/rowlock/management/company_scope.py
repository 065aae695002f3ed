"""Company scope: a caller sees all jobs, or only those of one company."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from rowlock.app import Rowlock
from rowlock.errors import BadCursor
from rowlock.ids import uuid7
from rowlock.jobs.reader import Reader
from rowlock.management.parameters import no_job
from rowlock.management.schemas.jobs import JobSchema
from rowlock.notification_job import other_sides
from rowlock.observe.internals import without_inner
from rowlock.storage.records import JobFilter, JobId, JobRecord, Page, Status

J = TypeVar("J", bound=JobSchema)

GROUPS_MAX = 200
GROUPED_MAX = 50_000  # failed jobs that are grouped, the newest first
_FIRST_STEP = 50
_LARGE_BYTES = 65_536
_PAGE_BYTES = 1_048_576  # payloads and results in one page; a larger job has a page to itself


class CompanyScope:
    """Base of the management service: limits an application to one company, if `company_id` is given."""

    def __init__(self, app: Rowlock, company_id: str | None = None, reader: Reader | None = None) -> None:
        self._app = app
        self._company_id = company_id
        self._redact = app.redact if company_id is None else app.redact.company()
        self._reader = reader or Reader(app.store)

    def _own(self, company_id: str | None) -> str | None:
        """Return the company to filter by: a random one, which finds nothing, if a scoped caller asks for another."""
        if self._company_id is None:
            return company_id
        return self._company_id if company_id in (None, self._company_id) else uuid7()

    def _where(
        self,
        status: Status | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        ids: Sequence[JobId] | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> JobFilter:
        """Return a job filter; a type such as "hubspot.*" means all types that begin with "hubspot."."""
        begins = type is not None and type.endswith(".*")
        return JobFilter(
            status,
            None if begins else type,
            queue,
            self._own(company_id),
            None if ids is None else list(dict.fromkeys(ids)),
            type[:-1] if begins and type is not None else None,
            reason,
            since,
            until,
        )

    async def _kept_reason(self, reason: str | None) -> str | None:
        """Return the stored reason for one that was shown to this caller."""
        if reason is None or self._company_id is None:
            return reason
        found = await self._app.store.dead_groups(self._where(Status.FAILED), GROUPED_MAX, GROUPS_MAX + 1)
        return next((each.reason for each in found.groups if self._shown_reason(each.reason) == reason), reason)

    def _shown_reason(self, reason: str) -> str:
        """Return the stored reason, since jobs are filtered by it; for a company, without operator-only details."""
        return reason if self._company_id is None else without_inner(reason)

    async def _found(self, job_id: JobId) -> JobRecord:
        record = await self._reader.get(job_id)
        if record is None or self._company_id not in (None, record.company_id):
            raise no_job(job_id)
        return record

    async def _page(self, where: JobFilter, limit: int, cursor: str | None) -> Page:
        try:
            return await self._app.store.page(where, limit, cursor)
        except ValueError as error:
            raise BadCursor(str(error)) from None

    async def _bounded(self, where: JobFilter, limit: int, cursor: str | None) -> Page:
        """Return a page, which ends early if its jobs are large."""
        jobs, size, step = list[JobRecord](), 0, _FIRST_STEP
        while True:
            page = await self._page(where, min(step, limit - len(jobs)), cursor)
            for job in page.jobs:
                size += size_of(job)
                if jobs and size > _PAGE_BYTES:
                    return Page(jobs, jobs[-1].id)
                jobs.append(job)
            cursor = page.next_cursor
            if cursor is None or len(jobs) >= limit:
                return Page(jobs, cursor)
            step = max(1, min(limit, (_PAGE_BYTES - size) * len(jobs) // max(size, 1)))

    async def _schemas(self, jobs: Sequence[JobRecord]) -> list[JobSchema]:
        """Return the jobs; redacts large ones in a thread, as that would block the event loop."""
        others = other_sides(self._app)

        def schemas() -> list[JobSchema]:
            return [JobSchema.of(job, self._redact, others.get(job.type)) for job in jobs]

        return schemas() if sum(map(size_of, jobs)) < _LARGE_BYTES else await asyncio.to_thread(schemas)

    async def _schema(self, kind: type[J], job: JobRecord, **more: Any) -> J:
        """Return one job, redacted as in `_schemas`."""
        make = partial(kind.of, job, self._redact, other_sides(self._app).get(job.type), **more)
        return make() if size_of(job) < _LARGE_BYTES else await asyncio.to_thread(make)


def size_of(job: JobRecord) -> int:
    return len(job.payload) + len(job.result or "")
