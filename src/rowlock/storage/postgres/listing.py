"""Finds jobs in the PostgreSQL store: pages and counts of those that match a filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rowlock.ids import first_id, is_uuid
from rowlock.storage.postgres.connection import SQL, Connections
from rowlock.storage.postgres.rows import clean, record
from rowlock.storage.records import JobFilter, JobId, JobRecord, Page, Status

# Ids are UUIDv7, so their order is that of time.
_NEWEST = "SELECT id FROM (\n{}\n) matching {} ORDER BY id DESC LIMIT $5"
_COUNT = "SELECT count(*) FROM (SELECT FROM (\n{}\n) matching {} LIMIT $5) counted"
# The same as overview.reason_of.
_REASON = r"left(split_part(split_part(coalesce({}.error, ''), E'\n', 1), ' (attempt ', 1), 200) = ${}"
_LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class Listing:
    """The verbs that read jobs."""

    _connections: Connections

    async def get(self, job_id: JobId) -> JobRecord | None:
        rows = await self._connections.fetch("get", job_id) if is_uuid(job_id) else []
        return record(rows[0]) if rows else None

    async def page(self, where: JobFilter, limit: int, cursor: str | None = None) -> Page:
        if cursor is not None and not is_uuid(cursor):
            raise ValueError(f"{cursor[:40]!r} is not a cursor that a page of jobs came with")
        if where == JobFilter(ids=where.ids) and where.ids is not None and cursor is None:
            # A filter of ids alone skips the search: this frequent call reads many jobs.
            found = await self._records(_known(where.ids))
            return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)
        ids = await self._ids(where, limit + 1, cursor)
        records = await self._records(ids[:limit])
        more = len(ids) > limit and records
        return Page(records, ids[limit - 1] if more else None)

    async def count(self, where: JobFilter, at_most: int) -> int:
        rows = await self._connections.run(*_question(_COUNT, where, at_most))
        return int(rows[0][0])

    async def _ids(self, where: JobFilter, limit: int, cursor: str | None = None) -> list[JobId]:
        """Returns the newest matching ids before the cursor."""
        rows = await self._connections.run(*_question(_NEWEST, where, limit, cursor))
        return [str(row[0]) for row in rows]

    async def _records(self, ids: list[JobId]) -> list[JobRecord]:
        if not ids:
            return []
        rows = await self._connections.fetch("records", ids)
        return sorted(map(record, rows), key=lambda job: job.id, reverse=True)


def _question(form: str, where: JobFilter, limit: int, cursor: str | None = None) -> list[Any]:
    """Returns the most selective statement for this filter, and its arguments."""
    found, bound = SQL[_way(where)], ""
    asked = _asked(where, limit, cursor)
    if where.type_prefix is not None:
        found = found.replace("j.type = $1", "starts_with(j.type, $1)")
    if where.reason is not None:
        asked.append(clean(where.reason))
        for place, status in (("f", "f.status = 2"), ("j", "j.status = $7")):
            found = found.replace(status, f"{status} AND {_REASON.format(place, len(asked))}")
    if where.since is not None:
        asked.append(first_id(where.since))
        bound = f"WHERE id >= ${len(asked)}::uuid"
    return [form.format(found, bound), *asked]


def _way(where: JobFilter) -> str:
    if where.ids is not None:
        return "matching_ids"
    narrow = where.company_id is not None and where.status is not Status.PROCESSING  # few jobs run, over all companies
    return f"matching_{where.status or 'any'}{'_of_company' if narrow else ''}"


def _asked(where: JobFilter, limit: int, cursor: str | None = None) -> list[Any]:
    if where.until is not None:
        cursor = min(first_id(where.until), (cursor or _LAST_ID).lower())
    asked: list[Any] = [where.type or where.type_prefix, where.queue, where.company_id, cursor, limit]
    if where.ids is not None:
        asked += [_known(where.ids), where.status]
    return asked


def _known(ids: Sequence[JobId]) -> list[JobId]:
    """Returns the well-formed ids, each once."""
    return [job_id for job_id in dict.fromkeys(ids) if is_uuid(job_id)]
