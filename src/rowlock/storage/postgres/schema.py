"""Migrations of the PostgreSQL schema."""

from __future__ import annotations

import asyncio
import contextlib
from typing import NamedTuple

import asyncpg

from rowlock.errors import StoreUnavailable
from rowlock.storage.migrate import Applied, finding, functions, migrations, pending, require_usable, state
from rowlock.storage.postgres.connection import READ_COMMITTED, SQL, Connections, translated_errors
from rowlock.storage.records import Finding, SchemaState

_LOCK = 0x726F776C6F636B  # "rowlock"; held for the transaction only, so it works behind a pooler
LOCK_MS = 500  # maximum wait for one lock; leases are longer
LOCK_TRIES = 60
LOCK_PAUSE_SECONDS = 0.5
_LEDGER = """
CREATE SCHEMA IF NOT EXISTS rowlock;
CREATE TABLE IF NOT EXISTS rowlock.migrations (
    number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, oldest integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS rowlock.function_sets (
    version integer PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());
"""

_VIEWS = {"job_failures": SQL["view_job_failures"], "job_idempotency_locks": SQL["view_job_idempotency_locks"]}


class _Ledger(NamedTuple):
    """What the store has recorded."""

    applied: dict[int, Applied]  # migrations
    installed: dict[int, str]  # checksums of function sets by version


class Schema:
    """The schema verbs of the contract."""

    _connections: Connections

    async def migrate(self, *, views: bool = False) -> list[str]:
        connection = await self._connections.direct()
        try:
            with translated_errors(self._connections.url):
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
        return state((await self._ledger()).applied, migrations("postgres"))

    async def check_schema(self) -> None:
        ledger = await self._ledger()
        require_usable(ledger.applied, migrations("postgres"))
        functions("postgres").require_installed(ledger.installed)

    async def _schema_finding(self) -> Finding:
        ledger = await self._ledger()
        return finding(
            ledger.applied,
            migrations("postgres"),
            lambda: functions("postgres").require_installed(ledger.installed),
        )

    async def _ledger(self) -> _Ledger:
        async with self._connections.connection() as connection:
            return await _read_ledger(connection)


async def _migrate(connection: asyncpg.Connection, views: bool) -> list[str]:
    """Applies missing migrations and newer functions in one transaction.

    A concurrent caller waits, then finds nothing left to do. Raises LockNotAvailableError rather than wait for long,
    because heartbeats and claims would wait behind it.
    """
    known, ours = migrations("postgres"), functions("postgres")
    async with connection.transaction(isolation=READ_COMMITTED):
        await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        await connection.execute(f"SET LOCAL lock_timeout = {LOCK_MS}")
        applied, installed = await _read_ledger(connection)
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
        labels = [migration.label for migration in todo]
        replaces = ours.replaces(installed)
        if replaces or (todo and ours.is_newest(installed)):  # a migration may have dropped functions, to change a view
            await connection.execute(ours.sql)
            await connection.execute(
                "INSERT INTO rowlock.function_sets (version, checksum) VALUES ($1, $2) "
                "ON CONFLICT (version) DO UPDATE SET checksum = excluded.checksum, applied_at = excluded.applied_at",
                ours.version,
                ours.checksum,
            )
        if replaces:
            labels.append(ours.label)
        if views and not state(applied, known).newer:
            await _add_views(connection)
    return labels


async def _add_views(connection: asyncpg.Connection) -> None:
    """Adds the documented views to the connection's default schema; keeps existing objects with these names."""
    for name, create in _VIEWS.items():
        if not await connection.fetchval(SQL["may_add_view"], name):
            continue
        with contextlib.suppress(asyncpg.PostgresError):  # nothing depends on a view: do not fail the migration
            async with connection.transaction():
                await connection.execute(create)


async def _read_ledger(connection: object) -> _Ledger:
    assert isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy)
    if await connection.fetchval("SELECT to_regclass('rowlock.migrations')") is None:
        return _Ledger({}, {})
    rows = await connection.fetch("SELECT number, checksum, oldest FROM rowlock.migrations")
    sets = await connection.fetch("SELECT version, checksum FROM rowlock.function_sets")
    applied = {number: Applied(checksum, oldest) for number, checksum, oldest in rows}
    return _Ledger(applied, dict(sets))
