"""Recent changes of jobs in the SQLite store."""

from __future__ import annotations

from bisect import bisect_left
from datetime import datetime

import apsw

from rowlock.storage.access import (
    Changes,
    JobChange,
)
from rowlock.storage.records import Status
from rowlock.storage.sqlite.errors import BUSY_SECONDS
from rowlock.storage.sqlite.rows import Row, duration_micros, micros, moment
from rowlock.storage.sqlite.sql import run, value
from rowlock.storage.sqlite.work import Worked

_DAY_SECONDS = 24 * 3600


class Changing(Worked):
    """Tells which jobs have changed."""

    async def changes(self, since: datetime, limit: int) -> Changes:
        return await self._read(lambda connection, now: _changes(connection, now, micros(since), limit))


def _changes(connection: apsw.Connection, now: int, since: int, limit: int) -> Changes:
    asked = {"since": since, "first": _first_since(connection, since), "limit": limit + 1}
    jobs = [_change(row) for row in run(connection, "changes", asked)]
    return Changes(jobs[:limit], len(jobs) > limit, moment(now))


def _first_since(connection: apsw.Connection, since: int) -> int:
    """Return a seq such that every job created at or after `since` has this seq or a higher one."""
    # Seqs follow the order of writes, and a job may be written up to BUSY_SECONDS after its created_at.
    written = since - duration_micros(BUSY_SECONDS)
    ((first, last),) = run(connection, "seq_ends")
    seqs = range(first or 0, (last or 0) + 1)
    return seqs.start + bisect_left(seqs, written, key=lambda seq: value(connection, "created_from", {"seq": seq}) or 0)


def _change(row: Row) -> JobChange:
    job_id, type_name, queue, status, *rest, changed_at = row
    rest.append(moment(changed_at))
    return JobChange(job_id, type_name, queue, Status(status), *rest)
