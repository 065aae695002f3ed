"""Migrations: forward only, numbered, checksummed; which ones a store still needs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rowlock.errors import SchemaMissing, SchemaTampered, SchemaTooNew

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str

    @property
    def label(self) -> str:
        return f"{self.number:04d}_{self.name}"

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@cache
def migrations(store: str) -> tuple[Migration, ...]:
    """The migrations of a store (`sql/<store>/NNNN_name.sql`), in order and without gaps."""
    found = []
    for entry in (files("rowlock.storage") / "sql" / store).iterdir():
        if match := _FILE.fullmatch(entry.name):
            found.append(Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8")))
    found.sort(key=lambda migration: migration.number)
    assert [migration.number for migration in found] == list(range(1, len(found) + 1)), "migrations leave a gap"
    return tuple(found)


def pending(applied: Mapping[int, str], known: Sequence[Migration]) -> list[Migration]:
    """The migrations to run, given the checksums of those that ran; refuses a schema that is newer or was altered."""
    newest = len(known)
    if any(number > newest for number in applied):
        raise SchemaTooNew(
            f"the store is at schema {max(applied)}, this Rowlock knows {newest}: "
            "a newer release has migrated it; upgrade this installation"
        )
    for migration in known:
        recorded = applied.get(migration.number)
        if recorded is not None and recorded != migration.checksum:
            raise SchemaTampered(
                f"migration {migration.label} in the store has another checksum than in this release: "
                "install the release that migrated this store, or restore its schema from a backup"
            )
    return [migration for migration in known if migration.number not in applied]


def require_current(applied: Mapping[int, str], known: Sequence[Migration]) -> None:
    """Raise unless the schema is exactly what this release wants."""
    if missing := pending(applied, known):
        raise SchemaMissing(
            f"the store is at schema {max(applied, default=0)}, this Rowlock needs {len(known)} "
            f"({len(missing)} to apply): run `rowlock migrate`"
        )
