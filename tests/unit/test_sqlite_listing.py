"""Jobs by time in SQLite: both access paths return the same jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rowlock.clock import FakeClock
from rowlock.ids import first_id, uuid7
from rowlock.storage.records import JobFilter, NewJob, Status
from rowlock.storage.sqlite import SqliteStore
from rowlock.storage.sqlite.jobs import operate

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("few", [0, 100])
@pytest.mark.parametrize(
    "where", [JobFilter(), JobFilter(Status.QUEUED), JobFilter(company_id="acme"), JobFilter(Status.FAILED)]
)
async def test_few_jobs_of_some_time_are_looked_up_and_of_many_each_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, where: JobFilter
) -> None:
    monkeypatch.setattr(operate, "_FEW", few)
    store = SqliteStore(f"sqlite:///{tmp_path / 'jobs.db'}", FakeClock())
    await store.migrate()
    ids = [first_id(NOON + number * SECOND)[:14] + uuid7()[14:] for number in range(6)]
    # Not in the order of their ids: another process may have been quicker.
    for place in (1, 0, 3, 2, 5, 4):
        await store.enqueue([NewJob(ids[place], "t", "{}", company_id="acme", delay_seconds=place % 2)])
    narrowed = JobFilter(where.status, company_id=where.company_id, since=NOON + SECOND, until=NOON + 5 * SECOND)
    expected = [] if where.status is Status.FAILED else [ids[place] for place in (4, 2, 3, 1)]
    assert [job.id for job in (await store.page(narrowed, 10)).jobs] == expected
    await store.close()
