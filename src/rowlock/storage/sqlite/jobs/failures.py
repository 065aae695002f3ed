"""SQLite store: the records of failed attempts."""

from __future__ import annotations

from dataclasses import asdict

import apsw

from rowlock.ids import is_uuid
from rowlock.storage.reliability import (
    FailureFilter,
    FailureId,
    FailurePage,
    FailureRecord,
    failure_cursor,
    failure_page,
)
from rowlock.storage.sqlite.rows import Row, micros, moment, moment_or_none, storable
from rowlock.storage.sqlite.sql import SQL, run

_ANY_JOB = "(:job_id IS NULL OR job_id = :job_id)"  # replaced for one job, so that SQLite uses the index on job_id
_DAY_MICROS = 24 * 3600 * 1_000_000


def failures(connection: apsw.Connection, where: FailureFilter, limit: int, cursor: str | None) -> FailurePage:
    before, last = failure_cursor(cursor) if cursor is not None else (None, None)
    asked = {
        "company_id": where.company_id,
        "job_name": where.job_name,
        "job_id": where.job_id and where.job_id.lower(),
        "final": where.final,
        "unresolved": where.unresolved,
        "before": before and micros(before),
        "last": last,
        "limit": limit + 1,
    }
    found = SQL["failures"] if where.job_id is None else SQL["failures"].replace(_ANY_JOB, "job_id = :job_id")
    return failure_page([_record(row) for row in connection.execute(found, asked)], limit)


def failure(connection: apsw.Connection, failure_id: FailureId) -> FailureRecord | None:
    found = run(connection, "failure", {"id": failure_id.lower()}) if is_uuid(failure_id) else []
    return _record(found[0]) if found else None


def add_failure(connection: apsw.Connection, failure: FailureRecord) -> None:
    started_at = failure.started_at
    times = {
        "first_failed_at": micros(failure.first_failed_at),
        "started_at": None if started_at is None else micros(started_at),
    }
    texts = {"failed_reason": storable(failure.failed_reason), "stack_trace": storable(failure.stack_trace)}
    run(connection, "add_failure", asdict(failure) | texts | times)


def prune(connection: apsw.Connection, now: int, days: float, limit: int, count: int | None) -> int:
    removed = len(run(connection, "prune_failures", {"before": now - round(days * _DAY_MICROS), "limit": limit}))
    if count is None or removed >= limit:
        return removed
    return removed + len(run(connection, "prune_more_failures", {"count": count, "limit": limit - removed}))


def _record(row: Row) -> FailureRecord:
    *fields, final, reason, stack, failed_at, resolved_at, started_at, owner, occurrences, last_failed_at = row
    fields += [bool(final), reason, stack, moment(failed_at), moment_or_none(resolved_at)]
    fields += [moment_or_none(started_at), owner, occurrences, moment_or_none(last_failed_at)]
    return FailureRecord(*fields)
