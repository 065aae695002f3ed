"""Locks and failure records under attack: a paused holder, a missing table, many failures."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from faults.databases import Database, PostgresDatabase
from faults.processes import Fleet, Tree
from faults.producer import Producer
from faults.until import after, until, until_none_is_left

# A job keeps its lease while its worker is paused; its lock becomes stale.
STALE = {"QUEUE_VISIBILITY_MS": "60000", "QUEUE_HEARTBEAT_MS": "10000", "JOB_LOCK_STALE_MINUTES": "0.1"}


def results(database: Database, job_ids: list[str]) -> list[dict[str, object] | None]:
    found = database.records()
    return [json.loads(text) if isinstance(text := found[job_id].result, str) else text for job_id in job_ids]


def test_a_holder_that_stood_still_past_the_limit_cannot_say_that_its_work_is_done(
    database: Database, fleet: Fleet, figure: Callable[[str], None]
) -> None:
    trees = [fleet.worker(database, ready=False, **STALE) for _ in range(2)]
    for tree in trees:  # both are ready before a job takes the lock, which must not become stale while one starts
        fleet.await_workers(tree, database)
    with Producer(database, STALE) as producer:
        (first,) = producer.put("guarded", 1, seconds=5.0)
        (start,) = until(lambda: fleet.journal.all("start"), 30, trees[0].tail)
        sleeper, other = trees if start.pid in trees[0].workers() else trees[::-1]
        sleeper.pause()
        until(database.writable, 30, "nobody holds the write lock")
        (second,) = producer.put("guarded", 1)
        until(lambda: results(database, [second]) != [None], 30, other.tail)
        assert results(database, [second]) == [{"skipped": True, "reason": "already_running"}]
        taken: list[str] = []
        while not taken:  # until the lock is stale
            until(after(0.3), 1)
            (third,) = producer.put("guarded", 1)
            until(lambda: results(database, [third]) != [None], 30, other.tail)  # noqa: B023
            taken = [third] if results(database, [third]) == [{"done by": third}] else []
        ((token, status),) = database.locks()
        sleeper.resume()
        until(lambda: results(database, [first]) != [None], 30, sleeper.tail)
    until(lambda: sleeper.events("lock.lost"), 30, sleeper.tail)
    figure(f"guard {database.kind}: taken over with token {token}")
    assert status == "completed"
    assert database.locks() == [(token, "completed")]


def test_work_goes_on_when_the_table_of_locks_is_gone(postgres_database: PostgresDatabase, fleet: Fleet) -> None:
    postgres_database.run("ALTER TABLE rowlock.job_idempotency_locks RENAME TO elsewhere")
    tree = fleet.worker(postgres_database)
    with Producer(postgres_database) as producer:
        (job_id,) = producer.put("guarded", 1)
        until(lambda: results(postgres_database, [job_id]) != [None], 30, tree.tail)
    assert results(postgres_database, [job_id]) == [{"done by": job_id}]
    assert tree.events("lock.failed_open")


def pruned_by(trees: list[Tree]) -> int:
    return sum(event["failures"] for tree in trees for event in tree.events("records.pruned"))


@pytest.mark.parametrize(
    "failures",
    [
        pytest.param(400, id="short"),
        pytest.param(100_000, id="long", marks=[pytest.mark.long, pytest.mark.timeout(1_200)]),
    ],
)
def test_failures_are_pruned_while_jobs_run(
    database: Database, fleet: Fleet, failures: int, figure: Callable[[str], None]
) -> None:
    """Failure records are pruned at once, all the time, while each job fails once; neither side waits."""
    pruning = {
        "JOB_DLQ_RETENTION_DAYS": "0",
        "ROWLOCK_PRUNE_MINUTES": "0.002",
        "ROWLOCK_PRUNE_BATCH": str(min(500, failures // 6)),
    }
    trees = [fleet.worker(database, ready=False, **pruning) for _ in range(2)]
    with Producer(database) as producer:
        for _ in range(4):
            producer.put("fails", failures // 4)
        until_none_is_left(lambda: database.waiting() + database.running(), 60, trees[0].tail)
    until(lambda: not database.failures(), 60, trees[0].tail)
    assert database.statuses() == {"failed": failures}
    until(lambda: pruned_by(trees) >= failures, 30, trees[0].tail)
    pruned = pruned_by(trees)
    figure(f"{database.kind}: {failures:,} failures recorded and {pruned:,} pruned meanwhile")
    assert pruned == failures
