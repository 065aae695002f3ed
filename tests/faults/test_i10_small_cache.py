"""I9, I10, I12 on a mongod with a small cache: a chunk that does not fit one transaction is loaded in several.

Open transactions get a fifth of the cache. With 256 MB, the minimum to start mongod, that is 45,000 short rows;
the short attacks shrink it to 12 MB, where a chunk does not fit one transaction either.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import orjson
import pytest
from pymongo import InsertOne

from faults.conftest import migrate
from faults.databases import MongoDatabase
from faults.importing import PAUSE_SECONDS, File, Importing, Watcher, generate
from faults.processes import Fleet, Tree
from faults.test_i10_imports import kill_until_over, runs, worker
from faults.until import until
from mongo_server import MongoServer
from rowlock.storage.imports import ChunkRecord, Counts, ImportRecord, ImportStatus

SMALL = "cache_size=12MB"
PARTED_ROWS = 4_500  # one chunk
LONG_SECONDS = 1_200
LONG_PAUSE_SECONDS_MAX = 6.0  # between two kills, which last until the cache has become full
PAUSES = 10  # the length of a pause, in counts
SLOW = {"QUEUE_VISIBILITY_MS": "5000", "QUEUE_HEARTBEAT_MS": "1000"}
"""Settings for a server with a full cache, which answers a heartbeat late."""
SIZES = pytest.mark.parametrize(
    ("cache", "old", "rows", "kills"),
    [
        pytest.param(SMALL, 500, 4_500, 1, id="short"),
        # 400,000 rows, of which the first 110,000 filled the cache with four chunks at once, and 230,000 with one.
        pytest.param("cache_size=256MB", 100_000, 400_000, 30, id="long", marks=pytest.mark.long),
    ],
)


@pytest.fixture
def small() -> Iterator[MongoDatabase]:
    """A database on a separate server, because writes of other tests would fill its cache too."""
    with MongoServer() as server:
        made = MongoDatabase(server)
        migrate(made)
        yield made


def shrink(database: MongoDatabase, cache: str) -> None:
    database.server.node.command("setParameter", wiredTigerEngineRuntimeConfig=cache)


def written(path: Path, rows: int) -> File:
    with path.open("w", encoding="utf-8") as file:
        file.write("email,name,points\n")
        for number in range(rows):
            file.write(f"user{number}@x.org,N{number},{number}\n")
    return File(path, rows, {}, rows, 0)


def parts_of(importing: Importing, import_id: str) -> list[ChunkRecord]:
    """Return the parts of chunks, in the order of their indexes: of one chunk, the first part comes last."""
    return [chunk for chunk in importing.chunks(import_id) if chunk.index < -1]


class Fewest(threading.Thread):
    """Repeatedly counts the documents of a collection and keeps the minimum.

    A count reads the whole collection, so it pauses for longer than a count takes.
    """

    def __init__(self, database: MongoDatabase, table: str) -> None:
        super().__init__(daemon=True)
        self._collection = database.data[table]
        self._over = threading.Event()
        self.count = self._collection.count_documents({})

    def run(self) -> None:
        pause = PAUSE_SECONDS
        while not self._over.wait(pause):
            began = time.monotonic()
            self.count = min(self.count, self._collection.count_documents({}))
            pause = max(PAUSE_SECONDS, PAUSES * (time.monotonic() - began))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(10)


@pytest.mark.timeout(LONG_SECONDS + 120)
@SIZES
def test_a_collection_is_replaced_by_more_rows_than_a_transaction_takes(
    small: MongoDatabase,
    fleet: Fleet,
    rng: random.Random,
    tmp_path: Path,
    cache: str,
    old: int,
    rows: int,
    kills: int,
    figure: Callable[[str], None],
) -> None:
    """Workers are killed meanwhile; every old row stays until a new one replaces it."""
    table = small.data["replaced"]
    there = ({"email": f"{'old' if n % 2 else 'user'}{n}@x.org", "name": "Old", "points": n} for n in range(old))
    table.bulk_write([InsertOne(document) for document in there])
    table.create_index("email", unique=True)
    shrink(small, cache)
    file = written(tmp_path / "new.csv", rows)
    with Importing(small, tmp_path, 7 << 20) as importing:
        tree = worker(fleet, importing, **({} if cache == SMALL else SLOW))
        with Fewest(small, "replaced") as fewest:
            began = time.monotonic()
            import_id = importing.add(file, "replaced")
            if cache != SMALL:  # every kill is one of a worker that loads
                until(lambda: importing.get(import_id).completed_chunks, 120, tree.tail)
            pause = 0.8 if cache == SMALL else LONG_PAUSE_SECONDS_MAX
            killed = kill_until_over(
                importing, import_id, tree, rng, kills, pause_seconds_max=pause, seconds=LONG_SECONDS
            )
            took = time.monotonic() - began
        record, parts = importing.get(import_id), len(parts_of(importing, import_id))
    figure(
        f"I10 mongo: {rows:,} rows replace {old:,} in {record.total_chunks} chunks, {parts} parts, {killed} kills, "
        f"{took:.0f} s; never fewer than {fewest.count:,}"
    )
    assert record.status is ImportStatus.SUCCEEDED, record
    assert (record.counts.rows, record.counts.inserted) == (rows, rows)
    assert parts or cache != SMALL
    assert fewest.count == old
    assert {one["email"] for one in table.find({}, {"email": 1})} == {f"user{n}@x.org" for n in range(rows)}


def stalled_between_parts(fleet: Fleet, import_id: str, tree: Tree) -> int:
    """Wait until a worker has recorded a part of a chunk and not begun the next; returns its process id."""
    stalled = fleet.folder / f"stalled-{import_id}"
    return int(until(lambda: stalled.exists() and stalled.read_text().strip(), 60, tree.tail))


def test_a_worker_killed_between_two_parts_is_continued_after_the_first(
    small: MongoDatabase, fleet: Fleet, rng: random.Random, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    shrink(small, SMALL)
    log, people = (generate(tmp_path / f"{name}.csv", PARTED_ROWS, rng) for name in ("log", "people"))
    with Importing(small, tmp_path, 7 << 20) as importing:
        tree = worker(fleet, importing, mutant="stall_between_parts")
        with Watcher(small) as watcher:
            first, others = killed_between_parts(importing, log, "log", fleet, tree)
        second, more = killed_between_parts(importing, people, "people", fleet, tree)
    figure(f"I10 mongo: killed after the first of {others} and of {more} parts; {watcher.looks} looks")
    assert watcher.differences == []
    assert [first.status, second.status] == [ImportStatus.SUCCEEDED] * 2, (first, second)
    points = [each for (each,) in small.table("log", "points")]
    assert len(points) == len(set(points)) == log.added  # in this file, the points are the number of the row
    assert (first.counts.rows, first.counts.inserted, first.counts.invalid) == (log.rows, log.added, log.invalid)
    rows = small.table("people", "email", "name", "points")
    assert len(rows) == len(people.valid)
    assert {email: (name, points) for email, name, points in rows} == people.valid
    doubled = people.added - len(people.valid)
    assert second.counts == Counts(people.rows, len(people.valid), 0, 0, doubled, people.invalid)


def killed_between_parts(
    importing: Importing, file: File, type_name: str, fleet: Fleet, tree: Tree
) -> tuple[ImportRecord, int]:
    """Import a file, and kill the worker between two parts. Returns the ended import and the number of its parts."""
    import_id = importing.add(file, type_name)
    tree.kill_worker(stalled_between_parts(fleet, import_id, tree))
    (recorded,) = parts_of(importing, import_id)
    assert 0 < recorded.counts.rows < file.rows
    until(lambda: importing.get(import_id).status.final, 60, tree.tail)
    ended = parts_of(importing, import_id)
    assert ended[-1] == recorded  # not loaded again
    return importing.get(import_id), len(ended)


def test_a_cancel_between_two_parts_leaves_whole_parts_and_can_go_on(
    small: MongoDatabase, fleet: Fleet, rng: random.Random, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    shrink(small, SMALL)
    file = generate(tmp_path / "log.csv", PARTED_ROWS, rng)
    with Importing(small, tmp_path, 7 << 20) as importing:
        tree = worker(fleet, importing, mutant="stall_between_parts")
        with Watcher(small) as watcher:
            import_id = importing.add(file, "log")
            stalled_between_parts(fleet, import_id, tree)
            importing.cancel(import_id)
            until(lambda: not runs(small, import_id), 30, tree.tail)
            cancelled, (part,) = importing.get(import_id), parts_of(importing, import_id)
            rows = len(small.table("log", "points"))
            importing.resume(import_id)
            until(lambda: importing.get(import_id).status.final, 60, tree.tail)
        ended, parts = importing.get(import_id), parts_of(importing, import_id)
    figure(f"I12 mongo: cancelled after a part of {part.counts.rows:,} rows, then {len(parts)} parts")
    assert watcher.differences == []
    assert cancelled.status is ImportStatus.CANCELLED
    assert cancelled.completed_chunks == 0
    assert cancelled.counts.balanced  # with rows that were refused when the file was read
    assert part.counts.balanced
    assert rows == cancelled.counts.inserted == part.counts.inserted > 0
    assert ended.status is ImportStatus.SUCCEEDED, ended
    assert parts[-1] == part  # not loaded again
    assert (ended.counts.rows, ended.counts.inserted, ended.counts.invalid) == (file.rows, file.added, file.invalid)
    points = [each for (each,) in small.table("log", "points")]
    assert len(points) == len(set(points)) == file.added


@pytest.mark.parametrize("way", ["kill", "cancel"])
def test_the_attack_notices_parts_that_are_not_in_the_ledger(
    small: MongoDatabase, fleet: Fleet, rng: random.Random, tmp_path: Path, way: str
) -> None:
    shrink(small, SMALL)
    file = generate(tmp_path / "log.csv", PARTED_ROWS, rng)
    with Importing(small, tmp_path, 7 << 20) as importing:
        tree = worker(fleet, importing, mutant="no_part_lines")
        with Watcher(small) as watcher:
            import_id = importing.add(file, "log")
            pid = stalled_between_parts(fleet, import_id, tree)
            until(lambda: watcher.differences, 30, tree.tail)
            if way == "kill":
                tree.kill_worker(pid)
            else:
                importing.cancel(import_id)
                until(lambda: not runs(small, import_id), 30, tree.tail)
                importing.resume(import_id)
            until(lambda: importing.get(import_id).status.final, 60, tree.tail)
        record = importing.get(import_id)
    assert record.status is not ImportStatus.SUCCEEDED
    assert len(small.table("log", "points")) > file.added


def test_all_or_nothing_says_before_it_loads_how_many_rows_it_takes(
    small: MongoDatabase, fleet: Fleet, tmp_path: Path
) -> None:
    shrink(small, SMALL)
    file = written(tmp_path / "new.csv", 3_000)
    with Importing(small, tmp_path, 7 << 20) as importing:
        tree = worker(fleet, importing)
        import_id = importing.add(file, "whole")
        until(lambda: importing.get(import_id).status.final, 60, tree.tail)
        record = importing.get(import_id)
    assert record.status is ImportStatus.FAILED
    assert record.total_chunks is None
    assert "3,000 rows" in (record.message or "")
    assert orjson.loads(record.error or "{}")["code"] == "too_large_for_one_transaction"
