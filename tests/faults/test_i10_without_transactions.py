"""I9, I10 on MongoDB without a replica set: a worker is killed between two writes of a chunk, another one finishes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.conftest import migrate
from faults.databases import MongoDatabase
from faults.importing import File, Importing, generate
from faults.processes import Fleet
from faults.until import until
from mongo_server import MongoServer
from rowlock.storage.imports import Counts, ImportRecord, ImportStatus

APP = "faults.import_app:app"
ROWS = 400
CHUNK_BYTES = 8_000


@pytest.fixture
def alone(standalone_mongo: MongoServer) -> Iterator[MongoDatabase]:
    """A database on a server without a replica set."""
    made = MongoDatabase(standalone_mongo)
    migrate(made)
    yield made
    standalone_mongo.client.drop_database(made.name)


def kill_in_the_middle(
    alone: MongoDatabase, fleet: Fleet, tmp_path: Path, mutant: str, *files: tuple[File, str]
) -> list[ImportRecord]:
    """Import these files concurrently; each loses the worker that loads its first chunk. Returns their records."""
    with Importing(alone, tmp_path, CHUNK_BYTES) as importing:
        environment = {**importing.environment, "FAULTS_MUTANT": mutant}
        tree = fleet.worker(alone, concurrency=4, app=APP, **environment)
        ids = [importing.add(file, name) for file, name in files]
        for _, name in files:
            stalled = fleet.folder / f"stalled-{name}"
            pid = int(until(lambda: stalled.exists() and stalled.read_text().strip(), 60, tree.tail))  # noqa: B023
            assert len(alone.table(name, "points")) > 0
            tree.kill_worker(pid)
        until(lambda: all(importing.get(each).status.final for each in ids), 60, tree.tail)
        return [importing.get(each) for each in ids]


def fill(alone: MongoDatabase, file: File) -> Counts:
    """Insert half of a file's rows, some with other values. Returns the counts that its import must have."""
    present = dict(list(file.valid.items())[: len(file.valid) // 2])
    old = {email: (name, points + n % 2) for n, (email, (name, points)) in enumerate(present.items())}
    people = alone.data["people"]
    people.create_index("email", unique=True)
    people.insert_many({"email": email, "name": name, "points": points} for email, (name, points) in old.items())
    updated = sum(old[email] != file.valid[email] for email in old)
    inserted, doubled = len(file.valid) - len(old), file.added - len(file.valid)
    return Counts(file.rows, inserted, updated, len(old) - updated, doubled, file.invalid)


@pytest.mark.timeout(200)
def test_rows_are_there_once_and_counted_right(
    alone: MongoDatabase, fleet: Fleet, rng: random.Random, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    people, log = generate(tmp_path / "people.csv", ROWS, rng), generate(tmp_path / "log.csv", ROWS, rng)
    wanted = fill(alone, people)
    first, second = kill_in_the_middle(alone, fleet, tmp_path, "stall_in_chunk", (people, "people"), (log, "log"))
    figure(f"I10 alone: {first.total_chunks} and {second.total_chunks} chunks; {first.counts}")

    assert [first.status, second.status] == [ImportStatus.SUCCEEDED] * 2, (first, second)
    table = alone.table("people", "email", "name", "points")
    assert len(table) == len(people.valid)
    assert {email: (name, points) for email, name, points in table} == people.valid
    assert first.counts == wanted
    assert len(alone.table("log", "points")) == log.added
    assert second.counts == Counts(log.rows, log.added, 0, 0, 0, log.invalid)


@pytest.mark.timeout(200)
def test_the_attack_notices_that_nobody_looks_at_intents(
    alone: MongoDatabase, fleet: Fleet, rng: random.Random, tmp_path: Path
) -> None:
    file = generate(tmp_path / "people.csv", ROWS, rng)
    wanted = fill(alone, file)
    (record,) = kill_in_the_middle(alone, fleet, tmp_path, "no_intents", (file, "people"))

    assert record.status is ImportStatus.SUCCEEDED
    assert record.counts != wanted
    assert os.path.exists(fleet.folder / "stalled-people")
