"""I9, I10, I12 on a mongod with a small cache: a chunk that does not fit one transaction is loaded in several.

Open transactions get a fifth of the cache. With 256 MB, the minimum to start mongod, that is 45,000 short rows;
the short attacks shrink it to 12 MB, where a chunk does not fit one transaction either.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import orjson
import pytest
from pymongo import InsertOne

from faults.conftest import migrate
from faults.databases import MongoDatabase
from faults.importing import PAUSE_SECONDS, File, Importing
from faults.processes import Fleet
from faults.test_i10_imports import kill_until_over, worker
from faults.until import until
from mongo_server import MongoServer
from rowlock.storage.imports import ImportStatus

SMALL = "cache_size=12MB"
SIZES = pytest.mark.parametrize(
    ("cache", "old", "rows", "kills"),
    [
        pytest.param(SMALL, 500, 4_500, 1, id="short"),
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


def parts_of(importing: Importing, import_id: str) -> int:
    return sum(chunk.index < -1 for chunk in importing.chunks(import_id))


class Fewest(threading.Thread):
    """Repeatedly counts the documents of a collection and keeps the minimum."""

    def __init__(self, database: MongoDatabase, table: str) -> None:
        super().__init__(daemon=True)
        self._collection = database.data[table]
        self._over = threading.Event()
        self.count = self._collection.count_documents({})

    def run(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            self.count = min(self.count, self._collection.count_documents({}))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(10)


@pytest.mark.timeout(900)
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
        tree = worker(fleet, importing)
        with Fewest(small, "replaced") as fewest:
            import_id = importing.add(file, "replaced")
            killed = kill_until_over(importing, import_id, tree, rng, kills)
        record, parts = importing.get(import_id), parts_of(importing, import_id)
    figure(
        f"I10 mongo: {rows:,} rows replace {old:,} in {record.total_chunks} chunks, {parts} parts, {killed} kills; "
        f"never fewer than {fewest.count:,}"
    )
    assert record.status is ImportStatus.SUCCEEDED, record
    assert (record.counts.rows, record.counts.inserted) == (rows, rows)
    assert parts or cache != SMALL
    assert fewest.count == old
    assert {one["email"] for one in table.find({}, {"email": 1})} == {f"user{n}@x.org" for n in range(rows)}


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
