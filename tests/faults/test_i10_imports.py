"""I9 to I12: rows are loaded once, sums match at all times, the same file changes nothing, a cancel lasts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import psycopg
import pytest

from faults.databases import Database
from faults.importing import File, Importing, Watcher, generate
from faults.processes import Fleet, Tree
from faults.until import after, until
from rowlock.errors import ImportIsOver
from rowlock.storage.imports import ImportStatus

APP = "faults.import_app:app"
HEARTBEAT_SECONDS = 0.25
SIZES = pytest.mark.parametrize(
    ("rows", "kills"),
    [
        pytest.param(6_000, 3, id="short"),
        pytest.param(1_000_000, 60, id="long", marks=[pytest.mark.long, pytest.mark.timeout(1_200)]),
    ],
)


def worker(fleet: Fleet, importing: Importing, processes: int = 2, mutant: str = "", **changes: str) -> Tree:
    return fleet.worker(
        importing.database,
        processes=processes,
        concurrency=2,
        app=APP,
        **importing.environment,
        FAULTS_MUTANT=mutant,
        **changes,
    )


def chunk_bytes(rows: int) -> int:
    return max(20_000, rows * 30 // 25)


def kill_until_over(
    importing: Importing,
    import_id: str,
    tree: Tree,
    rng: random.Random,
    kills: int,
    *,
    pause_seconds_max: float = 0.8,
    seconds: float = 300,
) -> int:
    """Kill random worker processes at random moments while the import runs. Returns how many were killed."""
    killed = 0
    for _ in range(kills):
        until(after(rng.uniform(0.05, pause_seconds_max)), 2 * pause_seconds_max + 2)
        if importing.get(import_id).status.final:
            break
        pids = tree.workers()
        if pids:
            tree.kill_worker(rng.choice(pids))
            killed += 1
    until(lambda: importing.get(import_id).status.final, seconds, tree.tail)
    return killed


@pytest.mark.timeout(300)
@SIZES
def test_rows_are_added_once_and_the_ledger_agrees_at_all_times(
    database: Database,
    fleet: Fleet,
    rng: random.Random,
    tmp_path: Path,
    rows: int,
    kills: int,
    figure: Callable[[str], None],
) -> None:
    file = generate(tmp_path / "log.csv", rows, rng)
    with Importing(database, tmp_path, chunk_bytes(rows)) as importing:
        tree = worker(fleet, importing)
        with Watcher(database) as watcher:
            import_id = importing.add(file, "log")
            killed = kill_until_over(importing, import_id, tree, rng, kills)
            until(lambda: watcher.looks > 3, 60, "the watcher sees nothing")
        record = importing.get(import_id)
    figure(
        f"I9 {database.kind}: {rows:,} rows, {record.total_chunks} chunks, {killed} kills, {watcher.looks} looks, "
        f"{len(watcher.differences)} differences"
    )
    assert record.status is ImportStatus.SUCCEEDED, record
    assert watcher.differences == []
    counts = record.counts
    assert (counts.rows, counts.inserted, counts.invalid) == (rows, file.added, file.invalid)
    assert len(database.table("log", "points")) == file.added


@pytest.mark.every_store
@pytest.mark.timeout(300)
@SIZES
def test_the_table_is_what_one_process_would_have_made_of_the_file(
    database: Database,
    fleet: Fleet,
    rng: random.Random,
    tmp_path: Path,
    rows: int,
    kills: int,
    figure: Callable[[str], None],
) -> None:
    file = generate(tmp_path / "people.csv", rows, rng)
    with Importing(database, tmp_path, chunk_bytes(rows)) as importing:
        tree = worker(fleet, importing)
        import_id = importing.add(file, "people")
        killed = kill_until_over(importing, import_id, tree, rng, kills)
        first = importing.get(import_id)
        again_id = importing.add(file, "people")
        killed += kill_until_over(importing, again_id, tree, rng, kills // 2)
        again = importing.get(again_id)
    figure(f"I10 {database.kind}: {rows:,} rows, {first.total_chunks} chunks, {killed} kills; again: {again.message}")
    assert first.status is ImportStatus.SUCCEEDED, first
    table = {email: (name, points) for email, name, points in database.table("people", "email", "name", "points")}
    assert table == file.valid
    counts = first.counts
    assert (counts.rows, counts.inserted, counts.updated) == (rows, len(file.valid), 0)
    assert (counts.duplicate, counts.invalid) == (file.added - len(file.valid), file.invalid)
    assert (again.counts.inserted, again.counts.updated) == (0, 0)
    assert again.counts.unchanged == len(file.valid)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.timeout(300)
def test_rows_that_refer_to_each_other_are_loaded_once_whatever_is_killed(
    request: pytest.FixtureRequest, kind: str, fleet: Fleet, rng: random.Random, tmp_path: Path
) -> None:
    database: Database = request.getfixturevalue(f"{kind}_database")
    keys = list(range(1, 2_001))
    rng.shuffle(keys)
    parents = dict(zip(keys, [None, *keys], strict=False))
    path = tmp_path / "tree.csv"
    rows = "".join(f"{key},{parents[key] or ''}\n" for key in sorted(keys))
    path.write_text(f"k,parent\n{rows}")
    with Importing(database, tmp_path, 2_000) as importing:
        create(database, "CREATE TABLE tree (k INTEGER PRIMARY KEY, parent INTEGER REFERENCES tree (k))")
        tree = worker(fleet, importing)
        import_id = importing.add(File(path, 2_000, {}, 2_000, 0), "tree")
        kill_until_over(importing, import_id, tree, rng, 3)
        record = importing.get(import_id)
    assert record.status is ImportStatus.SUCCEEDED, record
    assert (record.counts.rows, record.counts.inserted) == (2_000, 2_000)
    assert dict(database.table("tree", "k", "parent")) == parents


def create(database: Database, statement: str) -> None:
    """Create a user's table."""
    if database.kind == "postgres":
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute(statement.encode())
    else:
        apsw.Connection(database.url.removeprefix("sqlite:///")).execute(statement)


def test_the_attack_notices_a_ledger_that_has_its_own_transaction(
    postgres_database: Database, fleet: Fleet, rng: random.Random, tmp_path: Path
) -> None:
    file = generate(tmp_path / "log.csv", 10_000, rng)
    with Importing(postgres_database, tmp_path, chunk_bytes(10_000)) as importing:
        tree = worker(fleet, importing, mutant="ledger_apart")
        with Watcher(postgres_database) as watcher:
            importing.add(file, "log")
            until(lambda: watcher.differences, 60, tree.tail)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("rounds", [pytest.param(1, id="short"), pytest.param(30, id="long", marks=[pytest.mark.long])])
def test_a_cancelled_import_leaves_whole_chunks_and_can_go_on(
    database: Database, fleet: Fleet, rng: random.Random, tmp_path: Path, rounds: int, figure: Callable[[str], None]
) -> None:
    file = generate(tmp_path / "log.csv", 10_000, rng)
    stopped = []
    with Importing(database, tmp_path, chunk_bytes(10_000)) as importing:
        tree = worker(fleet, importing)
        for _ in range(rounds):
            stopped.append(cancel_and_resume(importing, file, database, rng, tree))
    chunks = ", ".join(f"{done} of {total}" for done, total, _ in stopped)
    took = [seconds for *_, seconds in stopped]
    figure(f"I12 {database.kind}: cancelled after {chunks} chunks, nothing ran {max(took):.2f} s later")
    if rounds > 1:
        assert min(took) <= HEARTBEAT_SECONDS + 1.0
    assert len(database.table("log", "points")) == file.added * rounds


def cancel_and_resume(
    importing: Importing, file: File, database: Database, rng: random.Random, tree: Tree
) -> tuple[int, int | None, float]:
    """Cancel an import and resume it. Returns chunks done at the cancel, all chunks, seconds until its jobs ended."""
    import_id = importing.add(file, "log")
    wanted = rng.randrange(0, 12)
    until(lambda: (seen := importing.get(import_id)).completed_chunks >= wanted or seen.status.final, 60, tree.tail)
    before = importing.get(import_id)
    if before.status.final:
        return before.completed_chunks, before.total_chunks, 0.0
    try:
        importing.cancel(import_id)
    except ImportIsOver:  # it ended before the cancel
        ended = importing.get(import_id)
        assert ended.status is ImportStatus.SUCCEEDED
        return ended.completed_chunks, ended.total_chunks, 0.0
    began = time.monotonic()
    cancelled = importing.get(import_id)
    # Nothing has changed since the cancel returned, although running jobs only learn of it at the next heartbeat.
    until(lambda: not runs(database, import_id), 30, tree.tail)
    took = time.monotonic() - began
    later = importing.get(import_id)
    assert later.status is ImportStatus.CANCELLED
    assert later.counts == cancelled.counts
    assert later.counts.balanced
    table, _, inserted, *_ = _ledger(database, later.completed_chunks)
    assert table == inserted
    importing.resume(import_id)
    until(lambda: importing.get(import_id).status.final, 60, tree.tail)
    ended = importing.get(import_id)
    assert ended.status is ImportStatus.SUCCEEDED, ended
    assert (ended.counts.rows, ended.counts.inserted) == (file.rows, file.added)
    return later.completed_chunks, later.total_chunks, took


def _ledger(database: Database, done: int) -> tuple[int, ...]:
    """Return `Database.ledger`, or zeros before the first plan has created the table."""
    try:
        return database.ledger("log")
    except (apsw.SQLError, psycopg.errors.UndefinedTable):
        assert done == 0
        return (0, 0, 0)


def runs(database: Database, import_id: str) -> bool:
    """Whether a job of this import runs."""
    return any(import_id in str(job.payload) for job in database.records("processing").values())
