"""Migrations of the PostgreSQL schema."""

from __future__ import annotations

import asyncio
import contextlib

import asyncpg

from rowlock.errors import StoreUnavailable
from rowlock.storage.migrate import Applied, migrations, pending, require_usable, state
from rowlock.storage.postgres.connection import READ_COMMITTED, SQL, Connections, own_words
from rowlock.storage.records import SchemaState

_LOCK = 0x726F776C6F636B  # "rowlock"; held for the transaction only, so it works behind a pooler
LOCK_MS = 500  # maximum wait for one lock; leases are longer
LOCK_TRIES = 60
LOCK_PAUSE_SECONDS = 0.5
_LEDGER = """
CREATE SCHEMA IF NOT EXISTS rowlock;
CREATE TABLE IF NOT EXISTS rowlock.migrations (
    number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, oldest integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now());
"""


_VIEWS = {"job_failures": SQL["view_job_failures"], "job_idempotency_locks": SQL["view_job_idempotency_locks"]}


class Schema:
    """The schema verbs of the contract."""

    _connections: Connections

    async def migrate(self, *, views: bool = False) -> list[str]:
        connection = await self._connections.direct()
        try:
            with own_words(self._connections.url):
                for _ in range(LOCK_TRIES):
                    with contextlib.suppress(asyncpg.LockNotAvailableError):
                        return await _migrate(connection, views)
                    await asyncio.sleep(LOCK_PAUSE_SECONDS)
        finally:
            await connection.close()
        raise StoreUnavailable(
            f"PostgreSQL at {self._connections.url}: the migration changed nothing: other transactions have used its "
            "tables and stay open; end them (`rowlock doctor` names the oldest) and run `rowlock migrate` again"
        )

    async def schema(self) -> SchemaState:
        return state(await self._applied(), migrations("postgres"))

    async def check_schema(self) -> None:
        require_usable(await self._applied(), migrations("postgres"))

    async def _applied(self) -> dict[int, Applied]:
        async with self._connections.connection() as connection:
            return await _applied(connection)


async def _migrate(connection: asyncpg.Connection, views: bool) -> list[str]:
    """Applies missing migrations in one transaction: a concurrent caller waits, then finds nothing left to do.

    Raises LockNotAvailableError rather than wait for long, because heartbeats and claims would wait behind it.
    """
    known = migrations("postgres")
    async with connection.transaction(isolation=READ_COMMITTED):
        await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        await connection.execute(f"SET LOCAL lock_timeout = {LOCK_MS}")
        applied = await _applied(connection)
        todo = pending(applied, known)
        if todo:
            await connection.execute(_LEDGER)
        for migration in todo:
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO rowlock.migrations (number, name, checksum, oldest) VALUES ($1, $2, $3, $4)",
                migration.number,
                migration.name,
                migration.checksum,
                migration.oldest,
            )
        if views and not state(applied, known).newer:
            await _add_views(connection)
    return [migration.label for migration in todo]


async def _add_views(connection: asyncpg.Connection) -> None:
    """Adds the documented views to the connection's default schema; keeps existing objects with these names."""
    for name, create in _VIEWS.items():
        if not await connection.fetchval(SQL["may_add_view"], name):
            continue
        with contextlib.suppress(asyncpg.PostgresError):  # nothing depends on a view: do not fail the migration
            async with connection.transaction():
                await connection.execute(create)


async def _applied(connection: object) -> dict[int, Applied]:
    assert isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy)
    if await connection.fetchval("SELECT to_regclass('rowlock.migrations')") is None:
        return {}
    rows = await connection.fetch("SELECT number, checksum, oldest FROM rowlock.migrations")
    return {number: Applied(checksum, oldest) for number, checksum, oldest in rows}
