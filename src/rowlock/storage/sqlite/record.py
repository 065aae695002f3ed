"""The record of failed attempts."""

from __future__ import annotations

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
from rowlock.storage.sqlite.rows import Row, micros, moment, moment_or_none
from rowlock.storage.sqlite.sql import SQL, run

_ANY_JOB = "(:job_id IS NULL OR job_id = :job_id)"  # of one job they are found by its index
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


def prune(connection: apsw.Connection, now: int, days: float, limit: int) -> int:
    return len(run(connection, "prune_failures", {"before": now - round(days * _DAY_MICROS), "limit": limit}))


def _record(row: Row) -> FailureRecord:
    *fields, final, reason, stack, failed_at, resolved_at, started_at, owner = row
    fields += [bool(final), reason, stack, moment(failed_at), moment_or_none(resolved_at)]
    fields += [moment_or_none(started_at), owner]
    return FailureRecord(*fields)
