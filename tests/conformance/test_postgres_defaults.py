"""Defaults set for the PostgreSQL role or database do not change Rowlock's behaviour."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from conformance.builders import ANN, BEN, end, put_many
from conformance.loads import UPSERT, counts, create, frame, held, put
from postgres_server import PostgresServer
from rowlock.clock import FakeClock
from rowlock.storage.postgres import PostgresStore
from rowlock.storage.postgres.connection import Connections

DEFAULTS = {
    "default_transaction_isolation": "serializable",
    "standard_conforming_strings": "off",
    "datestyle": "SQL, DMY",
    "timezone": "Asia/Kolkata",
    "transform_null_equals": "on",
}
JOBS = 40


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> str:
    """A database with unusual defaults."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE odd_defaults")
        for name, value in DEFAULTS.items():
            connection.execute(f"ALTER DATABASE odd_defaults SET {name} = '{value}'".encode())
    return postgres.url_of("odd_defaults")


@pytest.fixture(params=["direct", "pooled"])
async def store(
    request: pytest.FixtureRequest, url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PostgresStore]:
    """A store connected directly, or as through a pooler, which does not accept connection settings."""

    async def pooled(_: Any) -> bool:
        return bool(request.param == "pooled")

    monkeypatch.setattr(Connections, "_behind_pooler", pooled)
    store = PostgresStore(url, clock, connections=8)
    await store.open()
    await store.migrate()
    yield store
    await store.close()


async def test_statements_are_read_committed(store: PostgresStore) -> None:
    (alone,) = await store._connections.run("SELECT current_setting('transaction_isolation')")
    async with store.transaction() as transaction:
        ((within,),) = await transaction.fetch("SELECT current_setting('transaction_isolation')")
    async with store.reading() as transaction:
        ((looking,),) = await transaction.fetch("SELECT current_setting('transaction_isolation')")
    assert (alone[0], within, looking) == ("read committed",) * 3


async def test_a_handler_may_choose_a_higher_level(store: PostgresStore) -> None:
    async with store.transaction() as transaction:
        await transaction.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        ((level,),) = await transaction.fetch("SELECT current_setting('transaction_isolation')")
    assert level == "serializable"


async def test_claims_and_settlements_meet_without_an_error(store: PostgresStore) -> None:
    await put_many(store, JOBS)

    async def work(owner: str) -> int:
        done = 0
        while claims := await store.claim("default", owner, 2):
            done += len(claims) - len(await store.settle(owner, [end(claimed) for claimed in claims]))
        return done

    assert sum(await asyncio.gather(work(ANN), work(BEN), work(ANN), work(BEN))) == JOBS


async def test_a_transaction_may_write_what_another_has_written_meanwhile(store: PostgresStore) -> None:
    await create(store, UPSERT)
    await put(store, UPSERT, (1, "Ann", "Oslo"))
    async with store.transaction() as transaction:
        assert await transaction.fetch("SELECT count(*) FROM people") == [(1,)]
        assert counts(await put(store, UPSERT, (1, "Ann", "Rome"))) == (0, 1, 0, 0)
        assert counts(await transaction.load(UPSERT, frame(UPSERT.columns, [(1, "Ann", "Lima")]))) == (0, 1, 0, 0)
    assert await held(store, UPSERT) == [(1, "Ann", "Lima")]


async def test_rows_are_loaded_as_they_are(store: PostgresStore) -> None:
    await create(store, UPSERT)
    rows = [(1, "Ann", None), (2, "\\N", "N"), (3, "back\\slash", "O'Slo")]
    assert counts(await put(store, UPSERT, *rows)) == (3, 0, 0, 0)
    assert counts(await put(store, UPSERT, *rows)) == (0, 0, 3, 0)
    assert await held(store, UPSERT) == rows
