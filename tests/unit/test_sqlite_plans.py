"""The plans of SQLite's statements: frequent statements never scan a table that can be long."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from rowlock.storage.sqlite import schema
from rowlock.storage.sqlite.connection import connect
from rowlock.storage.sqlite.sql import SQL

LONG = ("jobs", "ready", "delayed", "finished", "unique_keys", "j", "r", "d", "f", "u")
READS_THROUGH = {
    "ended_runs": "reads the runs that are under way",
    "runs": "reads the latest runs",
    "pick_queued": "sorts the waiting jobs, newest first",
    "pick_any": "filters the newest jobs",
    "dead_groups": "looks at the newest jobs that failed, a bounded number of them",
}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[apsw.Connection]:
    connection = connect(tmp_path / "jobs.db")
    schema.migrate(connection, 0)
    yield connection
    connection.close()


def plan(connection: apsw.Connection, name: str) -> str:
    text = re.sub(r"--.*", "", SQL[name])
    names = set(re.findall(r":(\w+)", re.sub(r"'[^']*'", "", text)))
    bindings = dict.fromkeys(names) if names else (None,) * text.count("?")
    return "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", bindings))


@pytest.mark.parametrize("name", sorted(SQL.keys() - READS_THROUGH.keys() - {"create_migrations"}))
def test_no_statement_reads_through_a_long_table(database: apsw.Connection, name: str) -> None:
    assert not re.search(rf"^SCAN ({'|'.join(LONG)})\b", plan(database, name), re.MULTILINE), plan(database, name)


@pytest.mark.parametrize(
    "name", ["first_unkeyed", "start_unkeyed", "remove_unkeyed", "waiting_of_key", "keys_with_room"]
)
def test_the_claim_follows_the_order_of_ready(database: apsw.Connection, name: str) -> None:
    found = plan(database, name)
    assert re.search(r"SEARCH (ready|r) USING PRIMARY KEY \(queue=\? AND limit_key", found)
    assert "TEMP B-TREE" not in found


@pytest.mark.parametrize("name", ["pick_any", "pick_of_company", "pick_succeeded", "pick_dead", "oldest_finished"])
def test_pages_come_in_order_without_sorting(database: apsw.Connection, name: str) -> None:
    assert "TEMP B-TREE" not in plan(database, name)


def test_the_longest_wait_of_a_queue_is_read_from_an_index(database: apsw.Connection) -> None:
    assert "SEARCH r USING COVERING INDEX ready_since (queue=?)" in plan(database, "queues")


def test_a_claim_does_not_notice_depth(database: apsw.Connection) -> None:
    """The claim steps through as much of SQLite's program with 20,000 jobs waiting as with 500."""
    steps = []
    for waiting in (500, 20_000):
        database.execute("DELETE FROM jobs; DELETE FROM ready")
        database.execute(
            """WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
            INSERT INTO jobs
            SELECT i, i || '', 't', 'q', 1, 5, 30000, 0, NULL, NULL, '', NULL, 0, NULL, NULL, '{}' FROM n""",
            (waiting,),
        )
        database.execute("INSERT INTO ready SELECT queue, '', priority, seq, 0, 0, 0, 0, NULL, NULL FROM jobs")
        counted = 0

        def count() -> bool:
            nonlocal counted
            counted += 1
            return False

        database.set_progress_handler(count, 1)
        assert len(database.execute(SQL["first_unkeyed"], ("q", 100)).fetchall()) == 100
        database.set_progress_handler(None)
        steps.append(counted)
    assert steps[1] <= steps[0] * 1.1
