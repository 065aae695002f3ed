"""Later releases of the product: this one's files with additional migrations.

`python -m rowlock` with a release's `environment` runs that release. The next release expands the schema: a nullable
column in every table, a table and an index; on PostgreSQL it also replaces the functions. The release after it
contracts the schema, which then works with the next release and no longer with this one.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import rowlock
from faults.databases import Database, MongoDatabase
from faults.processes import TESTS, Fleet, Tree
from rowlock.storage.migrate import functions, migrations
from rowlock.storage.mongo.schema import MIGRATIONS as MONGO_MIGRATIONS

SOURCE = Path(rowlock.__file__).parent
SQL_STORES = {"sqlite": "", "postgres": "rowlock."}
_LEDGERS = {"sqlite": ("migrations",), "postgres": ("migrations", "function_sets")}
FIELD = "next_release"


class Release:
    """One release, in its own folder."""

    def __init__(self, folder: Path, changed: Mapping[Path, str]) -> None:
        overlay(SOURCE, folder / "rowlock", changed)
        self.environment = {"PYTHONPATH": f"{folder}:{TESTS}"}

    def run(self, fleet: Fleet, database: Database, *arguments: str) -> Tree:
        """Run a `rowlock` command until it ends."""
        tree = fleet.start("rowlock", *arguments, "--database", database.url, **self.environment)
        assert tree.wait(60) == 0, tree.tail()
        return tree

    def migrate(self, fleet: Fleet, database: Database) -> str:
        """Run `rowlock migrate` and return its output."""
        said = self.run(fleet, database, "migrate").tail()
        if isinstance(database, MongoDatabase):  # a new field only appears in a document with the first write
            for name in database.data.list_collection_names():
                if "migrations" not in name:
                    database.data[name].update_many({}, {"$set": {FIELD: "1"}})
        return said


def next_release(folder: Path) -> Release:
    """Create this release with an expanding migration."""
    return Release(folder, _migrations(1))


def contracting_release(folder: Path) -> Release:
    """Create the next release with a contracting migration."""
    return Release(folder, _migrations(2))


def overlay(source: Path, target: Path, changed: Mapping[Path, str]) -> None:
    """Copy a package with changed or added files. Unchanged files are links; compiled modules are copied."""
    target.mkdir(parents=True)
    inner = {path.parts[0]: {} for path in changed if len(path.parts) > 1}  # type: dict[str, dict[Path, str]]
    for path, text in changed.items():
        if len(path.parts) > 1:
            inner[path.parts[0]][Path(*path.parts[1:])] = text
        else:
            (target / path).write_text(text)
    for entry in source.iterdir():
        if entry.name in inner:
            overlay(entry, target / entry.name, inner[entry.name])
        elif entry.name == "__pycache__":
            shutil.copytree(entry, target / entry.name)  # not a link: Python recompiles the changed modules
        elif not (target / entry.name).exists():
            (target / entry.name).symlink_to(entry)


def _migrations(number: int) -> dict[Path, str]:
    """Return the first `number` later migrations of every store."""
    changed = {}
    for store, schema in SQL_STORES.items():
        newest = len(migrations(store))
        for later, sql in enumerate((_expansion(store, schema), f"DROP TABLE {schema}{FIELD};")[:number], newest + 1):
            text = f"-- oldest compatible schema: {later - 1}\n{sql}\n"
            changed[Path("storage", "sql", store, "migrations", f"{later:04d}_later.sql")] = text
    folder = Path("storage", "sql", "postgres", "functions")
    changed[folder / "version.sql"] = f"-- version: {functions('postgres').version + number}\n"
    changed[folder / "claim.sql"] = (SOURCE / folder / "claim.sql").read_text().replace("BEGIN", "BEGIN -- changed", 1)
    path = Path("storage", "mongo", "schema.py")
    newest = len(MONGO_MIGRATIONS)
    steps = (
        f'Step("later", (Index("{FIELD}"), Index("jobs", "{FIELD}", (("{FIELD}", 1),))), {newest})',
        f'Step("later", (), {newest + 1})',
    )
    added = f"STEPS = (*STEPS, {', '.join(steps[:number])})"
    text = (SOURCE / path).read_text()
    changed[path] = text.replace("\n\n\ndef _migration(", f"\n\n{added}\n\n\ndef _migration(", 1)
    assert changed[path] != text, "the place where migrations are put together was not found"
    return changed


_WIDER_VIEW = f"""
DO $$ BEGIN
    EXECUTE 'CREATE OR REPLACE VIEW rowlock.all_jobs AS SELECT v.*, NULL::text AS {FIELD} FROM ('
        || rtrim(pg_get_viewdef('rowlock.all_jobs'), ';') || ') v';
END $$;
"""


def _expansion(store: str, schema: str) -> str:
    """Return SQL that adds a column to every table, a table and an index, and on PostgreSQL a column to a view."""
    created = re.compile(rf"CREATE TABLE {re.escape(schema)}(\w+)")
    tables = [name for migration in migrations(store) for name in created.findall(migration.sql)]
    assert "jobs" in tables
    return "\n".join(
        (
            *(f"ALTER TABLE {schema}{table} ADD COLUMN {FIELD} text;" for table in (*tables, *_LEDGERS[store])),
            f"CREATE TABLE {schema}{FIELD} (id integer PRIMARY KEY);",
            f"CREATE INDEX {FIELD}_of_jobs ON {schema}jobs ({FIELD});",
            _WIDER_VIEW if store == "postgres" else "",
        )
    )
