"""Read jobs by id; concurrent calls share a statement."""

from __future__ import annotations

import asyncio

from rowlock.storage.contract import Store
from rowlock.storage.records import JobFilter, JobId, JobRecord

_TOGETHER_MAX = 500


class Reader:
    """Reads records, one statement at a time; calls that arrive meanwhile share the next one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[JobId, asyncio.Future[JobRecord | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def get(self, job_id: JobId) -> JobRecord | None:
        """Return the job's record, read after this call began, or None if no job has this id."""
        job_id = job_id.lower()
        future = self._waiting.get(job_id)
        if future is None:
            future = self._waiting[job_id] = asyncio.get_running_loop().create_future()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read())
        return await asyncio.shield(future)

    async def _read(self) -> None:
        while self._waiting:
            ids = list(self._waiting)[:_TOGETHER_MAX]
            asked = {job_id: self._waiting.pop(job_id) for job_id in ids}
            try:
                page = await self._store.page(JobFilter(ids=ids), len(ids))
            except Exception as error:
                for future in asked.values():
                    future.set_exception(error)
                    future.exception()  # marks it as retrieved: the caller may be gone
                continue
            found = {job.id: job for job in page.jobs}
            for job_id, future in asked.items():
                future.set_result(found.get(job_id))
