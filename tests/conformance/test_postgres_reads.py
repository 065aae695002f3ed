"""PostgreSQL queries never read all jobs (SQLite's plans: test_sqlite_plans.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from conformance.builders import ANN, end, new_jobs, put_many, settle, take
from conformance.stores import PostgresRig
from postgres_server import PostgresServer
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.postgres.listing import _COUNT, _NEWEST, _question
from rowlock.storage.records import JobFilter, Limit, Outcome, Status
from rowlock.storage.statements import statements

MANY = 6_000
FEW = 20
FETCHED_MAX = 4_000  # the page range without a BRIN summary yet, and some more
_READ = """
SELECT relname::text, seq_scan, coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
WHERE schemaname = 'rowlock' AND relname IN ('jobs', 'finished', 'ready', 'running', 'key_starts')
"""


@pytest.fixture
async def store(postgres: PostgresServer, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    """A store with many other jobs, finished and waiting, and a few old jobs of one company."""
    rig = PostgresRig(tmp_path, postgres)
    store = await rig.make_bare(clock)  # a new one: leftovers of other tests would have widened the page summaries
    await store.migrate()
    await put_many(store, MANY, company_id="other")
    while claims := await store.claim("default", ANN, 1_000):
        await store.settle(ANN, [end(claimed) for claimed in claims])
    await put_many(store, FEW, company_id="acme", priority=1)
    for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED):
        await settle(store, await take(store), outcome)
    await put_many(store, MANY, company_id="other")
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE rowlock.jobs, rowlock.finished")  # as autovacuum does within its minute
    clock.advance(days=1)
    yield store
    await rig.dispose()


async def read(store: Store, statement: str, *asked: object) -> dict[str, tuple[int, int]]:
    """Run a statement. Returns its (full scans, rows fetched by index) of the tables jobs and finished."""
    async with store.transaction() as transaction:
        before = {name: counts for name, *counts in await transaction.fetch(_READ)}  # of earlier statements
        await transaction.fetch(statement, *asked)
        after = {name: counts for name, *counts in await transaction.fetch(_READ)}
    return {name: (after[name][0] - before[name][0], after[name][1] - before[name][1]) for name in after}


async def test_a_look_for_changes_reads_what_is_new(store: Store, clock: FakeClock) -> None:
    since = clock.now() - timedelta(seconds=10)
    await put_many(store, FEW)
    for _ in range(8):  # with any cached plan
        found = await read(store, statements("postgres")["changes"], since, 100, clock.now())
        for table in ("jobs", "finished"):
            walks, fetched = found[table]
            assert walks == 0, found
            assert fetched <= FETCHED_MAX, found
    assert len((await store.changes(since, 100)).jobs) == FEW


async def test_a_companys_jobs_are_found_without_reading_all_others(store: Store) -> None:
    for status in (None, *Status):
        where = JobFilter(status=status, company_id="acme")
        for form in (_NEWEST, _COUNT) * 4:
            found = await read(store, *_question(form, where, 1_000))
            for table in ("jobs", "finished"):
                walks, fetched = found[table]
                assert walks == 0, (status, found)
                assert fetched <= 5 * FEW, (status, found)


async def test_how_a_companys_work_stands_is_told_without_reading_all_others(store: Store, clock: FakeClock) -> None:
    for _ in range(8):
        found = await read(store, statements("postgres")["counts_of_company"], ["default"], "acme", clock.now())
        for table in ("jobs", "finished"):
            walks, fetched = found[table]
            assert walks == 0, found
            assert fetched <= 5 * FEW, found


async def test_jobs_of_some_time_are_found_without_reading_all_others(store: Store) -> None:
    soon = datetime.now(UTC) + timedelta(minutes=1)  # ids carry the time of the process that created them
    for status in (None, *Status):
        for where in (JobFilter(status, since=soon), JobFilter(status, until=soon - timedelta(days=1))):
            for form in (_NEWEST, _COUNT) * 4:
                found = await read(store, *_question(form, where, 1_000))
                for table in ("jobs", "finished"):
                    walks, fetched = found[table]
                    assert walks == 0, (where, found)
                    assert fetched <= 5 * FEW, (where, found)


async def test_a_companys_dead_jobs_are_grouped_without_reading_all_others(store: Store) -> None:
    for _ in range(8):
        found = await read(store, statements("postgres")["dead_groups_of_company"], None, None, "acme", 1_000, 100)
        for table in ("jobs", "finished"):
            walks, fetched = found[table]
            assert walks == 0, found
            assert fetched <= 5 * FEW, found


async def test_the_longest_wait_of_a_queue_is_known_without_reading_what_waits(store: Store, clock: FakeClock) -> None:
    claims = await store.claim("default", ANN, MANY // 2)
    await store.settle(ANN, [end(claimed, Outcome.RETRY) for claimed in claims])
    for _ in range(8):
        found = await read(store, statements("postgres")["queues"], clock.now())
        for table in ("jobs", "ready"):
            walks, fetched = found[table]
            assert walks == 0, found
            assert fetched <= FEW, found


async def test_a_claim_behind_full_limit_keys_reads_their_first_jobs_only(store: Store, clock: FakeClock) -> None:
    keys = 1_500
    await store.define_limits([Limit("api", concurrency=1)])
    await store.enqueue([job for part in range(keys) for job in new_jobs(4, queue="limited", limit_key=f"api:{part}")])
    while await store.claim("limited", ANN, 1_000):
        pass
    for _ in range(8):
        found = await read(store, statements("postgres")["claim"], "limited", ANN, 100, -32_769, 0, "", clock.now())
        for table in ("ready", "running"):
            walks, fetched = found[table]
            assert walks == 0, found
            assert fetched <= keys + 100, found
