"""Migrations of the PostgreSQL schema."""

from __future__ import annotations

import asyncpg

from rowlock.storage.migrate import migrations, pending, require_current
from rowlock.storage.postgres.connection import Connections, own_words
from rowlock.storage.records import SchemaState

_LOCK = 0x726F776C6F636B  # "rowlock"; held for the transaction only, so a pooler does no harm
_LEDGER = """
CREATE SCHEMA IF NOT EXISTS rowlock;
CREATE TABLE IF NOT EXISTS rowlock.migrations (
    number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now());
"""


class Schema:
    """The schema verbs of the contract."""

    _connections: Connections

    async def migrate(self) -> list[str]:
        known = migrations("postgres")
        connection = await self._connections.direct()
        try:
            with own_words(self._connections.url):
                # One transaction: whoever comes second waits, then finds nothing left to do.
                async with connection.transaction():
                    await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
                    applied = await _applied(connection)
                    todo = pending(applied, known)
                    if not todo:
                        return []
                    await connection.execute(_LEDGER)
                    for migration in todo:
                        await connection.execute(migration.sql)
                        await connection.execute(
                            "INSERT INTO rowlock.migrations (number, name, checksum) VALUES ($1, $2, $3)",
                            migration.number,
                            migration.name,
                            migration.checksum,
                        )
                return [migration.label for migration in todo]
        finally:
            await connection.close()

    async def schema(self) -> SchemaState:
        async with self._connections.connection() as connection:
            applied = await _applied(connection)
        return SchemaState(max(applied, default=0), len(migrations("postgres")))

    async def check_schema(self) -> None:
        async with self._connections.connection() as connection:
            applied = await _applied(connection)
        require_current(applied, migrations("postgres"))


async def _applied(connection: object) -> dict[int, str]:
    assert isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy)
    if await connection.fetchval("SELECT to_regclass('rowlock.migrations')") is None:
        return {}
    return {row[0]: row[1] for row in await connection.fetch("SELECT number, checksum FROM rowlock.migrations")}
