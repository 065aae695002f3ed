"""I15, for jobs: a full disk causes no false answer, and work continues when there is space again.

mongod exits on a full disk: test_mongo.py has its test.
"""

from __future__ import annotations

import os
import resource
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults import mutants
from faults.conftest import migrate
from faults.databases import Database, PostgresDatabase, SqliteDatabase
from faults.processes import Fleet
from faults.producer import Producer
from faults.until import until
from postgres_server import _identity
from rowlock.errors import StoreUnavailable

SPACE_MB = 6
LARGE = "x" * 100_000
TRIES = 500
REFUSALS = 5


class Disk(ABC):
    """The disk of a database, and a way to fill it."""

    database: Database

    @abstractmethod
    def fill(self) -> None: ...

    @abstractmethod
    def free(self) -> None: ...


class SmallMount(Disk):
    """A mounted file system of a few MB."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.database = database
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        with self._ballast.open("wb") as file:
            try:
                while True:
                    file.write(b"x" * 65_536)
                    file.flush()
            except OSError:
                return

    def free(self) -> None:
        self._ballast.unlink()


class SmallFiles(Disk):
    """A limit on the file size of this process, for users without the right to mount."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database

    def fill(self) -> None:
        size = max(path.stat().st_size for path in (self.database.path.parent).glob("*.db*"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def mounted(folder: Path, space_mb: int = SPACE_MB) -> bool:
    owner = _identity()
    options = f"size={space_mb}m,mode=700" + (f",uid={owner['user']},gid={owner['group']}" if owner else "")
    if os.geteuid() != 0:
        return False
    folder.mkdir(exist_ok=True)
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True).returncode == 0


@pytest.fixture
def sqlite_disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "small"
    if mounted(folder):
        database = SqliteDatabase(folder)
        migrate(database)
        yield SmallMount(folder, database)
        subprocess.run(["umount", "-l", folder], check=True)
        return
    database = SqliteDatabase(tmp_path)
    migrate(database)
    disk = SmallFiles(database)
    yield disk
    disk.free()


@pytest.fixture
def postgres_disk(postgres_database: PostgresDatabase) -> Iterator[Disk]:
    """The growing table with all payloads is on the small disk; the server's write-ahead log is not."""
    folder = postgres_database.server.folder / postgres_database.name
    if not mounted(folder):
        pytest.skip("a small disk for PostgreSQL has to be mounted, which only root may")
    try:
        postgres_database.run(f"CREATE TABLESPACE {postgres_database.name} LOCATION '{folder}'")
        postgres_database.run(f"ALTER TABLE rowlock.jobs SET TABLESPACE {postgres_database.name}")
        yield SmallMount(folder, postgres_database)
        postgres_database.run("ALTER TABLE rowlock.jobs SET TABLESPACE pg_default")
        postgres_database.run(f"DROP TABLESPACE {postgres_database.name}")
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(params=["sqlite", "postgres"])
def disk(request: pytest.FixtureRequest) -> Disk:
    found: Disk = request.getfixturevalue(f"{request.param}_disk")
    return found


def enqueue_on_a_full_disk(disk: Disk, producer: Producer) -> tuple[set[str], list[str]]:
    """Enqueue until it fails, and a few times more. Returns the acknowledged jobs and the refusals."""
    acknowledged, refusals = set(producer.put("tick", 3)), list[str]()
    disk.fill()
    for _ in range(TRIES):
        try:
            (job,) = producer.put("padded", text=LARGE)
            acknowledged.add(job)
        except StoreUnavailable as error:
            refusals.append(str(error))
            if len(refusals) == REFUSALS:
                break
    return acknowledged, refusals


def test_a_full_disk_gives_no_false_answer_and_work_goes_on_when_there_is_space(disk: Disk, fleet: Fleet) -> None:
    with Producer(disk.database) as producer:
        acknowledged, refusals = enqueue_on_a_full_disk(disk, producer)
        assert len(refusals) == REFUSALS
        assert all("space" in reason or "full" in reason for reason in refusals), refusals
        assert set(disk.database.records()) == acknowledged
        tree = fleet.worker(disk.database, ready=False)  # while the disk is full
        until(lambda: tree.events("worker.started") or not tree.alive, 60, tree.tail)
        disk.free()
        acknowledged |= set(producer.put("tick", 3))
        if not tree.alive:
            fleet.worker(disk.database, ready=False)
        until(lambda: disk.database.waiting() == 0, 60, lambda: f"{disk.database.statuses()} {tree.tail()}")
    assert set(disk.database.records("succeeded")) == acknowledged


def test_the_attack_notices_an_error_that_is_swallowed(sqlite_disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    mutants.swallow_errors(monkeypatch.setattr)
    with Producer(sqlite_disk.database) as producer:
        acknowledged, refusals = enqueue_on_a_full_disk(sqlite_disk, producer)
        sqlite_disk.free()
    assert refusals == []
    assert set(sqlite_disk.database.records()) < acknowledged
