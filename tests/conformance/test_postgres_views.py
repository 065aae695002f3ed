"""PostgreSQL: the views of the documented tables, in the default schema."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from conformance.stores import PostgresRig
from postgres_server import PostgresServer
from rowlock.clock import FakeClock

VIEWS = "SELECT table_name FROM information_schema.views WHERE table_schema = 'public' ORDER BY 1"


@pytest.fixture
def place(postgres: PostgresServer, tmp_path: Path) -> PostgresRig:
    return PostgresRig(tmp_path, postgres)


async def test_a_name_that_is_taken_is_left_alone(place: PostgresRig, clock: FakeClock) -> None:
    store = await place.make_bare(clock)
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE job_failures (mine integer)")
        connection.execute("INSERT INTO job_failures VALUES (7)")
        await store.migrate(views=True)
        assert connection.execute("SELECT * FROM job_failures").fetchall() == [(7,)]
        assert connection.execute(VIEWS).fetchall() == [("job_idempotency_locks",)]
    await place.dispose()


async def test_a_role_that_may_not_create_there_migrates_all_the_same(place: PostgresRig, clock: FakeClock) -> None:
    store = await place.make_bare(clock)
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        assert await store.migrate(views=True) == place.migrations()
        await store.check_schema()
    await place.dispose()


async def test_without_the_setting_there_are_none(place: PostgresRig, clock: FakeClock) -> None:
    store = await place.make_bare(clock)
    await store.migrate()
    with psycopg.connect(place.url, autocommit=True) as connection:
        assert connection.execute(VIEWS).fetchall() == []
    await place.dispose()
