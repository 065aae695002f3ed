"""Fixtures of every attack: a seed, a database of each kind, a fleet of processes that ends with the test."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from faults.databases import Database, MongoDatabase, PostgresDatabase, SqliteDatabase
from faults.processes import Fleet
from faults.producer import Producer
from faults.syncing import CALLS, SEARCHES, SECONDS, prepare
from mongo_server import MongoServer
from one_store import on_one_store
from postgres_server import PostgresServer
from sync.standin import StandIn

SEED_VARIABLE = "FAULTS_SEED"


@pytest.fixture
def seed() -> int:
    """The seed of the run, printed; set FAULTS_SEED to repeat a run."""
    chosen = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(2**32))
    print(f"{SEED_VARIABLE}={chosen}")
    return chosen


@pytest.fixture
def rng(seed: int) -> random.Random:
    return random.Random(seed)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.clear_away()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run an attack on one store, or on every store if it is marked `every_store`; `make faults` always does."""
    on_one_store(metafunc, "database", ("sqlite", "postgres", "mongo"))
    on_one_store(metafunc, "remote", ("postgres", "mongo"))


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Database:
    """An empty, migrated database."""
    made: Database = request.getfixturevalue(f"{request.param}_database")
    return made


@pytest.fixture
def remote(request: pytest.FixtureRequest) -> PostgresDatabase | MongoDatabase:
    """An empty, migrated database that is reached over a network."""
    made: PostgresDatabase | MongoDatabase = request.getfixturevalue(f"{request.param}_database")
    return made


@pytest.fixture
def sqlite_database(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> SqliteDatabase:
    made = SqliteDatabase(tmp_path)
    if not _migrated_files:
        first = SqliteDatabase(tmp_path_factory.mktemp("migrated"))
        migrate(first)
        assert not first.path.with_name(f"{first.path.name}-wal").exists(), "the migration is not in the file"
        _migrated_files.append(first.path)
    shutil.copy(_migrated_files[0], made.path)
    return made


@pytest.fixture
def postgres_database(postgres: PostgresServer) -> Iterator[PostgresDatabase]:
    made = PostgresDatabase(postgres, _migrated_template(postgres))
    yield made
    if postgres.running:
        made.drop()


@pytest.fixture
def mongo_database(mongo: MongoServer) -> Iterator[MongoDatabase]:
    free = _free_databases(mongo)
    if free:
        made = free.pop()
        made.empty()  # now, not at the end of the previous test: its processes have ended by now
    else:
        made = MongoDatabase(mongo)
        migrate(made)
        made.migrated = set(made.data.list_collection_names())
    yield made
    free.append(made)


_migrated_files: list[Path] = []


# Migrated once per server, since a migration takes longer than a copy. MongoDB cannot copy a database, so there tests
# use the same databases one after the other.


@cache
def _migrated_template(server: PostgresServer) -> str:
    made = PostgresDatabase(server)
    migrate(made)
    return made.name


@cache
def _free_databases(server: MongoServer) -> list[MongoDatabase]:
    return []


def migrate(database: Database) -> None:
    with Producer(database) as producer:
        producer.app.blocking.migrate()


@pytest.fixture
def standin() -> Iterator[StandIn]:
    """A stand-in for HubSpot, with the properties that the operations write and the limits of `syncing`."""
    with StandIn() as made:
        made.limits(CALLS, SECONDS, searches=SEARCHES)
        prepare(made)
        yield made


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Record a measurement, shown at the end of the run."""

    def say(text: str) -> None:
        print(text)
        record_property("figure", text)

    return say
