"""SQLite store: job counts and failing jobs of some queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import apsw

from rowlock.storage import watching
from rowlock.storage.calls import SyncCounts
from rowlock.storage.records import JobRecord
from rowlock.storage.sqlite.rows import duration_micros, job_record, json_text
from rowlock.storage.sqlite.sql import run, value
from rowlock.storage.sqlite.work import Worked
from rowlock.storage.watching import DAY_SECONDS, FAILURES_LOOKED_AT, is_failing


class Watching(watching.Watching, Worked):
    """Store methods for monitoring outbound sync."""

    async def failing(self, queues: Sequence[str], limit: int, company_id: str | None = None) -> list[JobRecord]:
        return await self._read(
            lambda connection, now: list(islice(_failing(connection, queues, company_id), max(limit, 0)))
        )

    async def _retrying(self, queues: Sequence[str]) -> int:
        return await self._read(
            lambda connection, now: int(value(connection, "retrying", {"queues": json_text(list(queues))}))
        )

    async def _mean_completed(self, queues: Sequence[str]) -> float | None:
        def mean(connection: apsw.Connection, now: int) -> float | None:
            asked = {"queues": json_text(list(queues)), "since": now - duration_micros(DAY_SECONDS)}
            found: float | None = value(connection, "mean_completed", asked)
            return found

        return await self._read(mean)

    async def _counts_of_company(self, queues: Sequence[str], company_id: str) -> SyncCounts:
        asked = {"queues": json_text(list(queues)), "company_id": company_id}
        (row,) = await self._read(
            lambda connection, now: run(
                connection, "counts_of_company", {**asked, "now": now, "since": now - duration_micros(DAY_SECONDS)}
            )
        )
        return SyncCounts(*row)


def _failing(connection: apsw.Connection, queues: Sequence[str], company_id: str | None) -> Iterator[JobRecord]:
    if company_id is None:
        asked = [{"queue": queue, "looked_at": FAILURES_LOOKED_AT} for queue in queues]
        rows = [row for each in asked for row in run(connection, "failed_lately", each)]
    else:
        of_company = {"company_id": company_id, "queues": json_text(list(queues)), "looked_at": FAILURES_LOOKED_AT}
        rows = run(connection, "failed_lately_of_company", of_company)
    rows.sort(key=lambda row: (row[1], row[0]), reverse=True)
    for job_id in dict.fromkeys(job_id for job_id, _ in rows):
        for job in map(job_record, run(connection, "get", {"job_id": job_id})):
            if is_failing(job):
                yield job
