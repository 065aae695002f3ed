"""Migrations: forward only, numbered, checksummed; which ones a store needs, and whether a release works with it.

Each migration declares the oldest schema whose release still works after it. An expanding migration (a new table, a
nullable column, an index) keeps the previous release working: `-- oldest compatible schema: 7` in the file of migration
8. A contracting migration, or one without that line, excludes every earlier release. The store records the number with
the migration, so that an older release, which does not have the file, can read it.

The functions of a store are not migrations: they are one set with a version, installed whole by `migrate`. A release
replaces the functions of an older version, and leaves those of a newer one, which keep its own calls working.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rowlock.errors import SchemaMissing, SchemaTampered, SchemaTooNew, StoreError
from rowlock.storage.records import Finding, SchemaState, Severity

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_VERSION = re.compile(r"^-- version: (\d+)$", re.MULTILINE)
_OLDEST = re.compile(r"^-- oldest compatible schema: (\d+)$", re.MULTILINE)
_ADVICE = {
    SchemaMissing: "run `rowlock migrate`",
    SchemaTooNew: "upgrade this installation",
    SchemaTampered: "install the release that migrated this store",
}


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str
    oldest: int  # the oldest schema whose release works with the store after this migration

    def __post_init__(self) -> None:
        assert 1 <= self.oldest <= self.number, f"{self.label}: schema {self.oldest} is not older than the migration"

    @property
    def label(self) -> str:
        return f"{self.number:04d}_{self.name}"

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Applied:
    """What a store has recorded of an applied migration."""

    checksum: str
    oldest: int


@dataclass(frozen=True, slots=True)
class FunctionSet:
    """The functions of a store, as one version."""

    version: int
    sql: str

    @property
    def label(self) -> str:
        return f"functions_{self.version:04d}"

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    def replaces(self, installed: Mapping[int, str]) -> bool:
        """Returns whether to install this set, given the checksums of those installed before, by version.

        The same version with other text is replaced as well: that of a release never changes.
        """
        return self.is_newest(installed) and installed.get(self.version) != self.checksum

    def is_newest(self, installed: Mapping[int, str]) -> bool:
        return self.version >= max(installed, default=0)

    def require_installed(self, installed: Mapping[int, str]) -> None:
        """Raises SchemaMissing unless the store has these functions or newer ones."""
        if self.replaces(installed):
            raise SchemaMissing(
                f"the store has version {max(installed, default=0)} of the functions, or one that differs; "
                f"this Rowlock needs version {self.version}: run `rowlock migrate`"
            )


@cache
def functions(store: str) -> FunctionSet:
    """Returns the functions of a store: `sql/<store>/functions/*.sql`; `version.sql` has the version."""
    folder = files("rowlock.storage") / "sql" / store / "functions"
    texts = {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".sql")}
    version = _VERSION.search(texts.pop("version.sql"))
    assert version, "functions/version.sql has no line `-- version: 1`"
    return FunctionSet(int(version[1]), "\n".join(texts[name] for name in sorted(texts)))


@cache
def migrations(store: str) -> tuple[Migration, ...]:
    """Returns the migrations of a store (`sql/<store>/migrations/NNNN_name.sql`), in order and without gaps."""
    found = []
    for entry in (files("rowlock.storage") / "sql" / store / "migrations").iterdir():
        if match := _FILE.fullmatch(entry.name):
            number, sql = int(match[1]), entry.read_text(encoding="utf-8")
            oldest = _OLDEST.search(sql)
            found.append(Migration(number, match[2], sql, int(oldest[1]) if oldest else number))
    found.sort(key=lambda migration: migration.number)
    assert [migration.number for migration in found] == list(range(1, len(found) + 1)), "migration numbers have gaps"
    return tuple(found)


def state(applied: Mapping[int, Applied], known: Sequence[Migration]) -> SchemaState:
    """Returns the versions that decide whether this release works with the store."""
    oldest = max((migration.oldest for migration in applied.values()), default=0)
    return SchemaState(max(applied, default=0), len(known), oldest)


def pending(applied: Mapping[int, Applied], known: Sequence[Migration]) -> list[Migration]:
    """Returns the migrations to run; raises SchemaTampered or SchemaTooNew if this release cannot use the schema.

    Ignores migrations of a newer release, which this one does not have.
    """
    now = state(applied, known)
    if now.oldest > now.wanted:
        raise SchemaTooNew(
            f"a newer release has migrated the store to schema {now.current}, which works with releases that have "
            f"schema {now.oldest} or later; this one has schema {now.wanted}: upgrade this installation"
        )
    for migration in known:
        recorded = applied.get(migration.number)
        if recorded is not None and recorded.checksum != migration.checksum:
            raise SchemaTampered(
                f"migration {migration.label} in the store has another checksum than in this release: "
                "install the release that migrated this store, or restore its schema from a backup"
            )
    return [migration for migration in known if migration.number not in applied]


def require_usable(applied: Mapping[int, Applied], known: Sequence[Migration]) -> None:
    """Raises SchemaMissing, SchemaTampered or SchemaTooNew unless this release works with the schema."""
    if missing := pending(applied, known):
        raise SchemaMissing(
            f"the store is at schema {max(applied, default=0)}, this Rowlock needs {len(known)} "
            f"({len(missing)} to apply): run `rowlock migrate`"
        )


def finding(
    applied: Mapping[int, Applied], known: Sequence[Migration], require_more: Callable[[], None] = lambda: None
) -> Finding:
    """Returns what `doctor` reports about the schema. `require_more` raises what else is wrong with it."""
    now = state(applied, known)
    try:
        require_usable(applied, known)
        require_more()
    except StoreError as error:
        return Finding("schema", Severity.ERROR, str(error), _ADVICE[type(error)])
    if now.newer:
        newer = f"the schema is at {now.current}, of a newer release; this one has {now.wanted} and works with it"
        return Finding("schema", Severity.WARNING, newer, f"{_ADVICE[SchemaTooNew]} before the next one")
    return Finding("schema", Severity.OK, f"the schema is at {now.current}, as this release wants")
