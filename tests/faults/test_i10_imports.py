"""I9 to I12: rows are loaded once, the sums match at all times, the same file changes nothing, cancel is kept."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.databases import Database
from faults.importing import File, Importing, Watcher, generate
from faults.processes import Fleet, Tree
from faults.until import after, until
from rowlock.storage.imports import ImportStatus

APP = "faults.import_app:app"
SIZES = pytest.mark.parametrize(
    ("rows", "kills"),
    [
        pytest.param(30_000, 6, id="short"),
        pytest.param(1_000_000, 60, id="long", marks=[pytest.mark.long, pytest.mark.timeout(1_200)]),
    ],
)


def worker(fleet: Fleet, importing: Importing, processes: int = 2, mutant: str = "") -> Tree:
    return fleet.worker(
        importing.database,
        processes=processes,
        concurrency=2,
        app=APP,
        **importing.environment,
        FAULTS_MUTANT=mutant,
    )


def chunk_bytes(rows: int) -> int:
    return max(20_000, rows * 30 // 25)


def kill_until_over(importing: Importing, import_id: str, tree: Tree, rng: random.Random, kills: int) -> int:
    """Kill worker processes, and now and then those that read files, at random moments while the import runs."""
    killed = 0
    for _ in range(kills):
        until(after(rng.uniform(0.05, 0.8)), 2)
        if importing.get(import_id).status.final:
            break
        pids = tree.workers()
        if pids:
            tree.kill_worker(rng.choice(pids))
            killed += 1
    until(lambda: importing.get(import_id).status.final, 300, tree.tail)
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
        record = importing.get(import_id)
    figure(
        f"I9 {database.kind}: {rows:,} rows, {record.total_chunks} chunks, {killed} kills, {watcher.looks} looks, "
        f"{len(watcher.differences)} differences"
    )
    assert record.status is ImportStatus.SUCCEEDED, record
    assert watcher.differences == []
    assert watcher.looks > 3
    counts = record.counts
    assert (counts.rows, counts.inserted, counts.invalid) == (rows, file.added, file.invalid)
    assert len(database.table("log", "points")) == file.added


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


def test_the_attack_notices_a_ledger_that_has_its_own_transaction(
    postgres_database: Database, fleet: Fleet, rng: random.Random, tmp_path: Path
) -> None:
    file = generate(tmp_path / "log.csv", 20_000, rng)
    with Importing(postgres_database, tmp_path, chunk_bytes(20_000)) as importing:
        tree = worker(fleet, importing, mutant="ledger_apart")
        with Watcher(postgres_database) as watcher:
            import_id = importing.add(file, "log")
            kill_until_over(importing, import_id, tree, rng, 5)
    assert watcher.differences != []


@pytest.mark.timeout(200)
@pytest.mark.parametrize("rounds", [pytest.param(3, id="short"), pytest.param(30, id="long", marks=[pytest.mark.long])])
def test_a_cancelled_import_leaves_whole_chunks_and_can_go_on(
    database: Database, fleet: Fleet, rng: random.Random, tmp_path: Path, rounds: int, figure: Callable[[str], None]
) -> None:
    file = generate(tmp_path / "log.csv", 20_000, rng)
    stopped = []
    with Importing(database, tmp_path, chunk_bytes(20_000)) as importing:
        tree = worker(fleet, importing)
        for _ in range(rounds):
            stopped.append(cancel_and_resume(importing, file, database, rng, tree))
    figure(f"I12 {database.kind}: cancelled after {', '.join(f'{done} of {total}' for done, total in stopped)} chunks")
    assert len(database.table("log", "points")) == file.added * rounds


def cancel_and_resume(
    importing: Importing, file: File, database: Database, rng: random.Random, tree: Tree
) -> tuple[int, int | None]:
    import_id = importing.add(file, "log")
    wanted = rng.randrange(0, 12)
    until(lambda: (seen := importing.get(import_id)).completed_chunks >= wanted or seen.status.final, 60, tree.tail)
    before = importing.get(import_id)
    if before.status.final:
        return before.completed_chunks, before.total_chunks
    importing.cancel(import_id)
    cancelled = importing.get(import_id)
    # heartbeat (0.25 s) + 1 s: nothing of it runs any more, and nothing has changed since the cancel returned.
    until(lambda: not _runs(database, import_id), 1.25, tree.tail)
    later = importing.get(import_id)
    assert later.status is ImportStatus.CANCELLED
    assert later.counts == cancelled.counts
    assert later.counts.balanced
    table, _, inserted, *_ = database.ledger("log")
    assert table == inserted
    importing.resume(import_id)
    until(lambda: importing.get(import_id).status.final, 60, tree.tail)
    ended = importing.get(import_id)
    assert ended.status is ImportStatus.SUCCEEDED, ended
    assert (ended.counts.rows, ended.counts.inserted) == (file.rows, file.added)
    return later.completed_chunks, later.total_chunks


def _runs(database: Database, import_id: str) -> bool:
    """Whether a job of this import runs."""
    return any(import_id in str(job.payload) for job in database.records("processing").values())
