"""A PostgreSQL primary that stays up but becomes read-only: work continues at the new primary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import asyncpg
import psycopg
import pytest

from faults.app import make_app
from faults.processes import Fleet
from faults.producer import Producer
from faults.until import until
from postgres_server import PostgresServer
from rowlock import StoreUnavailable
from rowlock.settings import load

PATIENCE_SECONDS = 60.0


class Pair:
    """Two servers behind one URL; one of them accepts writes."""

    def __init__(self, first: PostgresServer, second: PostgresServer) -> None:
        self.primary, self.standby = first, second
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (first, second))
        self.url = f"postgresql://postgres@{hosts}/postgres"
        for server in (first, second):
            with Producer(server.url) as producer:
                producer.app.blocking.migrate()
        set_read_only(second, True)

    def switch(self) -> None:
        """Make the primary read-only with its connections open; the other server takes over."""
        set_read_only(self.primary, True)
        set_read_only(self.standby, False)
        self.primary, self.standby = self.standby, self.primary

    def jobs(self, server: PostgresServer) -> dict[str, str]:
        with psycopg.connect(server.url) as connection:
            return dict(connection.execute("SELECT id::text, status FROM rowlock.all_jobs").fetchall())


def set_read_only(server: PostgresServer, on: bool) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if on else 'off'}".encode())
        connection.execute("SELECT pg_reload_conf()")

        def applied() -> bool:
            found = connection.execute("SHOW default_transaction_read_only").fetchone()
            return found == ("on" if on else "off",)

        until(applied, PATIENCE_SECONDS)
    psycopg.connect(server.url).close()  # the postmaster accepts this only after it has signalled all of its processes


def hint_connections(server: PostgresServer) -> int:
    """Return how many connections send or await notifications."""
    with psycopg.connect(server.url) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND (query ILIKE 'LISTEN%' OR query LIKE '%pg_notify%')"
        ).fetchone()
    assert found is not None
    return int(found[0])


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(*(stack.enter_context(PostgresServer(fsync=False)) for _ in range(2)))


async def test_producers_and_workers_find_the_new_primary(
    pair: Pair, fleet: Fleet, figure: Callable[[str], None]
) -> None:
    tree = await asyncio.to_thread(partial(fleet.worker, pair.url, QUEUE_POLL_MS="500"))  # idle during the switch
    app = make_app(load(database_url=pair.url))
    async with app:
        for _ in range(2):  # there and back
            old = pair.primary
            before = [(await app.enqueue("tick")).job_id for _ in range(3)]
            # Several connections to the server that is about to become read-only.
            before += [receipt.job_id for receipt in await asyncio.gather(*(app.enqueue("tick") for _ in range(8)))]
            done = lambda: set(before) <= fleet.journal.jobs("end")  # noqa: E731, B023
            await asyncio.to_thread(until, done, PATIENCE_SECONDS, tree.tail)
            await asyncio.to_thread(pair.switch)
            refused = 0
            while True:
                try:
                    first = (await app.enqueue("tick")).job_id
                    break
                except StoreUnavailable:
                    refused += 1
                    assert refused <= 2, "it does not look for the new primary"
            after = [first, *[(await app.enqueue("tick")).job_id for _ in range(10)]]
            done = lambda: set(after) <= fleet.journal.jobs("end")  # noqa: E731, B023
            await asyncio.to_thread(until, done, PATIENCE_SECONDS, tree.tail)
            assert set(after) <= set(pair.jobs(pair.primary))
            assert not set(after) & set(pair.jobs(old))
            # Hints are sent and received at the new primary too.
            await asyncio.to_thread(until, lambda: hint_connections(pair.primary) >= 2, PATIENCE_SECONDS, tree.tail)
            await asyncio.to_thread(until, lambda: hint_connections(old) == 0, PATIENCE_SECONDS, tree.tail)  # noqa: B023
            figure(f"I35 read-only primary: {refused} enqueues refused before the new primary was found")


async def test_a_transaction_of_a_handler_finds_the_new_primary(pair: Pair) -> None:
    app = make_app(load(database_url=pair.url))
    async with app:
        await app.enqueue("tick")
        pair.switch()
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):  # the driver's own error, as on any caller connection
            async with app.store.transaction() as transaction:
                await transaction.execute("CREATE TABLE mine (id integer)")
        async with app.store.transaction() as transaction:
            await transaction.execute("CREATE TABLE mine (id integer)")


async def test_an_idle_worker_that_only_looks_finds_the_new_primary(pair: Pair) -> None:
    app = make_app(load(database_url=pair.url))
    async with app:
        await app.store.peek(["default"])
        pair.switch()
        with pytest.raises(StoreUnavailable, match="accepts no writes"):
            await app.store.peek(["default"])
        assert [look.queue for look in await app.store.peek(["default"])] == ["default"]


async def test_where_no_server_accepts_writes_reading_goes_on(pair: Pair) -> None:
    app = make_app(load(database_url=pair.url))
    async with app:
        job_id = (await app.enqueue("tick")).job_id
        set_read_only(pair.primary, True)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="read-only"):
                await app.enqueue("tick")
            assert await app.get(job_id) is not None
        set_read_only(pair.primary, False)
        for _ in range(2):  # the first refusal drops the connections to the read-only server
            try:
                await app.enqueue("tick")
            except StoreUnavailable:
                continue
            break
        else:
            pytest.fail("it does not come back")
