"""The schema: which migrations ran, and running the rest."""

from __future__ import annotations

import apsw

from rowlock.storage.migrate import Migration, migrations, pending, require_current
from rowlock.storage.records import SchemaState
from rowlock.storage.sqlite.sql import run, value


def known() -> tuple[Migration, ...]:
    return migrations("sqlite")


def applied(connection: apsw.Connection) -> dict[int, str]:
    """The checksums of the migrations that ran, by number; none in an empty file."""
    if not value(connection, "has_migrations"):
        return {}
    return dict(run(connection, "applied"))


def migrate(connection: apsw.Connection, now: int) -> list[str]:
    """Run what is missing. The write lock that the caller holds keeps other processes out meanwhile."""
    done = applied(connection)
    missing = pending(done, known())
    if missing and not value(connection, "has_migrations"):
        run(connection, "create_migrations")
    for migration in missing:
        connection.execute(migration.sql).fetchall()
        run(
            connection,
            "record_migration",
            {"number": migration.number, "name": migration.name, "checksum": migration.checksum, "now": now},
        )
    return [migration.label for migration in missing]


def state(connection: apsw.Connection) -> SchemaState:
    return SchemaState(current=max(applied(connection), default=0), wanted=len(known()))


def check(connection: apsw.Connection) -> None:
    require_current(applied(connection), known())
