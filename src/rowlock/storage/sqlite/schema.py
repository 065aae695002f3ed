"""SQLite store: run migrations and check the schema."""

from __future__ import annotations

import apsw

from rowlock.storage import migrate as rules
from rowlock.storage.migrate import Applied, Migration, migrations
from rowlock.storage.records import Finding, SchemaState
from rowlock.storage.sqlite.sql import run, value


def known() -> tuple[Migration, ...]:
    return migrations("sqlite")


def applied(connection: apsw.Connection) -> dict[int, Applied]:
    """Return the migrations that ran, by number; none in an empty file."""
    if not value(connection, "has_migrations"):
        return {}
    return {number: Applied(checksum, oldest) for number, checksum, oldest in run(connection, "applied")}


def migrate(connection: apsw.Connection, now: int) -> list[str]:
    """Run the missing migrations; return their labels. The caller's write lock keeps other processes out meanwhile."""
    missing = rules.pending(applied(connection), known())
    if missing and not value(connection, "has_migrations"):
        run(connection, "create_migrations")
    for migration in missing:
        connection.execute(migration.sql).fetchall()
        record = {"number": migration.number, "name": migration.name, "checksum": migration.checksum}
        run(connection, "record_migration", {**record, "oldest": migration.oldest, "now": now})
    return [migration.label for migration in missing]


def state(connection: apsw.Connection) -> SchemaState:
    return rules.state(applied(connection), known())


def check(connection: apsw.Connection) -> None:
    rules.require_usable(applied(connection), known())


def finding(connection: apsw.Connection) -> Finding:
    return rules.finding(applied(connection), known())
