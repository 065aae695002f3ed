"""What every attack uses: a seed, a database of each kind, a fleet of processes that is gone afterwards."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.databases import Database, MongoDatabase, PostgresDatabase, SqliteDatabase
from faults.processes import Fleet
from faults.producer import Producer
from faults.syncing import CALLS, SEARCHES, SECONDS, prepare
from mongo_server import MongoServer
from postgres_server import PostgresServer
from sync.standin import StandIn

SEED_VARIABLE = "FAULTS_SEED"


@pytest.fixture
def seed() -> int:
    """Printed, and given back by FAULTS_SEED to repeat a run."""
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


@pytest.fixture(params=["sqlite", "postgres", "mongo"])
def database(request: pytest.FixtureRequest) -> Database:
    """An empty, migrated database of each kind."""
    made: Database = request.getfixturevalue(f"{request.param}_database")
    return made


@pytest.fixture(params=["postgres", "mongo"])
def remote(request: pytest.FixtureRequest) -> PostgresDatabase | MongoDatabase:
    """One of each kind that is reached by a network."""
    made: PostgresDatabase | MongoDatabase = request.getfixturevalue(f"{request.param}_database")
    return made


@pytest.fixture
def sqlite_database(tmp_path: Path) -> SqliteDatabase:
    made = SqliteDatabase(tmp_path)
    migrate(made)
    return made


@pytest.fixture
def postgres_database(postgres: PostgresServer) -> Iterator[PostgresDatabase]:
    yield from _on_postgres(postgres)


def _on_postgres(server: PostgresServer) -> Iterator[PostgresDatabase]:
    made = PostgresDatabase(server)
    migrate(made)
    yield made
    if server.running:
        made.drop()


@pytest.fixture
def mongo_database(mongo: MongoServer) -> Iterator[MongoDatabase]:
    made = MongoDatabase(mongo)
    migrate(made)
    yield made
    if mongo.running:
        made.drop()


def migrate(database: Database) -> None:
    with Producer(database) as producer:
        producer.app.blocking.migrate()


@pytest.fixture
def standin() -> Iterator[StandIn]:
    """HubSpot, with the properties that the operations write; its limits are those of `syncing`."""
    with StandIn() as made:
        made.limits(CALLS, SECONDS, searches=SEARCHES)
        prepare(made)
        yield made


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Say what was measured; shown at the end of the run."""

    def say(text: str) -> None:
        print(text)
        record_property("figure", text)

    return say
