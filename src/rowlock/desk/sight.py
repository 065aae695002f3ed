"""What whoever asks may see: all jobs, or those of one company."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from rowlock.app import Rowlock
from rowlock.errors import BadCursor, JobNotFound
from rowlock.ids import uuid7
from rowlock.jobs.reader import Reader
from rowlock.notice import other_sides
from rowlock.shapes import Shape, job_shape
from rowlock.storage.records import JobFilter, JobId, JobRecord, Page, Status

_FIRST_STEP = 50
_LARGE_BYTES = 65_536
_PAGE_BYTES = 1_048_576  # of payloads and results in one page; one that is larger comes alone


class Sight:
    """An application as one caller sees it."""

    def __init__(self, app: Rowlock, company_id: str | None = None, reader: Reader | None = None) -> None:
        self._app = app
        self._company_id = company_id
        self._reader = reader or Reader(app.store)

    def _own(self, company_id: str | None) -> str | None:
        """The company to filter by: a scoped desk that is asked for another one finds nothing."""
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
        """What to look for; a type such as "hubspot.*" means all types that begin with "hubspot."."""
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
        """A page that ends early where its jobs are large."""
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

    async def _shaped(self, jobs: Sequence[JobRecord]) -> list[Shape]:
        """Their shapes; large ones in a thread: to look for secrets takes long, and others wait for this one."""

        others = other_sides(self._app)

        def shapes() -> list[Shape]:
            return [job_shape(job, self._app.redact, others.get(job.type)) for job in jobs]

        return shapes() if sum(map(size_of, jobs)) < _LARGE_BYTES else await asyncio.to_thread(shapes)


def size_of(job: JobRecord) -> int:
    return len(job.payload) + len(job.result or "")


def no_job(job_id: JobId) -> JobNotFound:
    return JobNotFound(f"no job has the id {job_id}; retention may have removed it")
