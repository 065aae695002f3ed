"""The stores under test: each one a rig in STORES, which is all that the suite knows of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import apsw
import psycopg
from psycopg import sql
from pymongo.database import Database

from conformance.callers import (
    MONGO_AUTOCOMMIT,
    MONGO_CALLERS,
    MONGO_OFFLINE,
    POSTGRES_AUTOCOMMIT,
    POSTGRES_CALLERS,
    POSTGRES_OFFLINE,
    SQLITE_AUTOCOMMIT,
    SQLITE_CALLERS,
    SQLITE_OFFLINE,
    OpenCaller,
)
from rowlock.clock import Clock
from rowlock.storage.base import Store, StoreTransaction
from rowlock.storage.migrate import migrations

PASSWORD = "hunter2"
"""Part of every address that can have one, so that a test can look for it where it must not be."""

_numbers = count(1)


class Rig(ABC):
    """One kind of store, set up for a test and cleared away after it."""

    name: ClassVar[str]
    resource: ClassVar[str | None] = None  # the session fixture that it needs
    relational: ClassVar[bool] = True  # whether it speaks SQL
    callers: ClassVar[Mapping[str, OpenCaller]]  # each begins a transaction of the caller's
    autocommit_callers: ClassVar[Mapping[str, OpenCaller]]  # each has none
    offline_callers: ClassVar[Mapping[str, OpenCaller]]  # synchronous, for a process that never opens its store

    def __init__(self, folder: Path, resource: Any = None) -> None:
        self.folder = folder
        self.resource_given = resource
        self.url = ""
        self._stores: list[Store] = []

    @abstractmethod
    def store_at(self, url: str, clock: Clock) -> Store:
        """A store object that is not open."""

    @abstractmethod
    async def new_place(self) -> str:
        """The URL of an empty database without a schema."""

    @abstractmethod
    def nowhere(self, clock: Clock) -> Store:
        """A store whose database cannot be reached."""

    @abstractmethod
    async def record_migration(self, number: int, checksum: str) -> None:
        """Write into the record of applied migrations behind the store's back."""

    def migrations(self) -> list[str]:
        """The migrations that there are, by name and in order."""
        return [migration.label for migration in migrations(self.name)]

    async def make(self, clock: Clock) -> Store:
        """An open store, migrated and empty."""
        store = await self.make_bare(clock)
        await store.migrate()
        return store

    async def empty(self, store: Store) -> Store:
        """An open, empty store again, after the test is done with this one."""
        await self.dispose()
        return await self.make(store.clock)

    async def make_bare(self, clock: Clock) -> Store:
        """An open store without a schema."""
        self.url = await self.new_place()
        return await self.another(clock)

    async def another(self, clock: Clock) -> Store:
        """One more open store object on the same data."""
        return await self._open(self.store_at(self.url, clock))

    # What a handler of the user's might write in its transaction.

    placeholder: ClassVar[str] = "?"
    bad_query: ClassVar[Any] = "INSERT INTO no_such_table VALUES (1)"

    async def make_ledger(self, store: Store) -> None:
        async with store.transaction() as transaction:
            await transaction.execute("CREATE TABLE IF NOT EXISTS ledger (line TEXT)")

    async def write_ledger(self, transaction: StoreTransaction, line: str) -> None:
        await transaction.execute(*self.write_line(line))

    async def read_ledger(self, transaction: StoreTransaction) -> list[str]:
        return self.lines(await transaction.fetch(*self.read_lines()))

    def write_line(self, line: str) -> tuple[Any, ...]:
        """What to execute."""
        return f"INSERT INTO ledger (line) VALUES ({self.placeholder})", line

    def read_lines(self) -> tuple[Any, ...]:
        """What to fetch."""
        return ("SELECT line FROM ledger ORDER BY line",)

    def read_all(self, table: str) -> tuple[Any, ...]:
        """What to fetch to have every row of a table."""
        return (f"SELECT * FROM {table}",)

    def lines(self, rows: Sequence[Any]) -> list[str]:
        """What was fetched."""
        return [line for (line,) in rows]

    async def dispose(self) -> None:
        for store in reversed(self._stores):
            await store.close()
        self._stores.clear()

    async def _open(self, store: Store) -> Store:
        await store.open()
        self._stores.append(store)
        return store


class SqliteRig(Rig):
    name = "sqlite"
    callers = SQLITE_CALLERS
    autocommit_callers = SQLITE_AUTOCOMMIT
    offline_callers = SQLITE_OFFLINE

    def store_at(self, url: str, clock: Clock) -> Store:
        from rowlock.storage.sqlite import SqliteStore

        return SqliteStore(url, clock)

    async def new_place(self) -> str:
        return f"sqlite:///{self.folder / f'{next(_numbers)}.db'}"

    def nowhere(self, clock: Clock) -> Store:
        return self.store_at(f"sqlite:///{self.folder}/no/such/folder/jobs.db", clock)

    async def record_migration(self, number: int, checksum: str) -> None:
        connection = apsw.Connection(self.url.removeprefix("sqlite:///"))
        connection.execute(
            "INSERT INTO migrations (number, name, checksum, applied_at) VALUES (?, 'forged', ?, 0)"
            " ON CONFLICT (number) DO UPDATE SET checksum = excluded.checksum",
            (number, checksum),
        )
        connection.close()


class PostgresRig(Rig):
    name = "postgres"
    resource = "postgres"
    callers = POSTGRES_CALLERS
    autocommit_callers = POSTGRES_AUTOCOMMIT
    offline_callers = POSTGRES_OFFLINE
    placeholder = "$1"

    # Deleting a handful of rows takes 1 ms; TRUNCATE 10-40, a database from a template 50-290.
    _CLEAN = """
        DO $$ DECLARE place regclass; BEGIN
            SET LOCAL lock_timeout = '10s';
            FOR place IN SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE c.relkind = 'r' AND n.nspname IN ('rowlock', 'public') AND c.relname NOT LIKE '%migrations'
            LOOP EXECUTE 'DELETE FROM ' || place; END LOOP;
        END $$
    """
    _migrated: ClassVar[dict[str, str]] = {}  # by server, the one database that is cleaned and used again

    def store_at(self, url: str, clock: Clock) -> Store:
        from rowlock.storage.postgres import PostgresStore

        return PostgresStore(url, clock)

    async def new_place(self) -> str:
        database = f"rowlock_{next(_numbers)}"
        with psycopg.connect(self.resource_given.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        return str(self.resource_given.url_of(database, password=PASSWORD))

    async def make(self, clock: Clock) -> Store:
        server = self.resource_given.url
        if server not in self._migrated:
            store = await super().make(clock)
            self._migrated[server] = self.url
            return store
        self.url = self._migrated[server]
        return await self.empty(await self.another(clock))

    async def empty(self, store: Store) -> Store:
        async with store.transaction() as transaction:
            await transaction.execute(self._CLEAN)
        return store

    def nowhere(self, clock: Clock) -> Store:
        return self.store_at(f"postgresql://postgres:{PASSWORD}@127.0.0.1:1/nowhere", clock)

    async def record_migration(self, number: int, checksum: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO rowlock.migrations (number, name, checksum) VALUES (%s, 'forged', %s)"
                " ON CONFLICT (number) DO UPDATE SET checksum = excluded.checksum",
                (number, checksum),
            )


class MongoRig(Rig):
    name = "mongo"
    resource = "mongo"
    relational = False
    callers = MONGO_CALLERS
    autocommit_callers = MONGO_AUTOCOMMIT
    offline_callers = MONGO_OFFLINE
    bad_query: ClassVar[Any] = {"no_such_table": 1}

    _migrated: ClassVar[dict[str, str]] = {}  # by server, the one database that is cleaned and used again

    def store_at(self, url: str, clock: Clock) -> Store:
        from rowlock.storage.mongo import MongoStore

        return MongoStore(url, clock)

    def migrations(self) -> list[str]:
        from rowlock.storage.mongo.schema import MIGRATIONS

        return [migration.label for migration in MIGRATIONS]

    async def new_place(self) -> str:
        return str(self.resource_given.url_of(f"rowlock_{next(_numbers)}"))

    async def make(self, clock: Clock) -> Store:
        server = self.resource_given.url
        if server not in self._migrated:
            store = await super().make(clock)
            self._migrated[server] = self.url
            return store
        self.url = self._migrated[server]
        return await self.empty(await self.another(clock))

    async def empty(self, store: Store) -> Store:
        """Delete what there is: takes 10 ms, to drop the database and make it anew 400."""
        found = self.database.list_collection_names(filter={"type": "collection"})
        names = [name for name in found if name != _RECORD and not name.startswith("system.")]
        for name in _filled(self.database, names):
            self.database[name].delete_many({}, comment="between tests")
        return store

    @property
    def database(self) -> Database[dict[str, Any]]:
        """What the store has, behind its back."""
        found: Database[dict[str, Any]] = self.resource_given.client[urlsplit(self.url).path.removeprefix("/")]
        return found

    def nowhere(self, clock: Clock) -> Store:
        url = f"mongodb://rowlock:{PASSWORD}@127.0.0.1:1/nowhere?serverSelectionTimeoutMS=500"
        return self.store_at(url, clock)

    async def record_migration(self, number: int, checksum: str) -> None:
        forged = {"$set": {"checksum": checksum}, "$setOnInsert": {"name": "forged"}}
        self.database[_RECORD].update_one({"_id": number}, forged, upsert=True)

    async def make_ledger(self, store: Store) -> None:
        if "ledger" not in self.database.list_collection_names():
            self.database.create_collection("ledger")

    def write_line(self, line: str) -> tuple[Any, ...]:
        return ({"insert": "ledger", "documents": [{"line": line}]},)

    def read_lines(self) -> tuple[Any, ...]:
        return ({"find": "ledger", "sort": {"line": 1}},)

    def read_all(self, table: str) -> tuple[Any, ...]:
        return ({"find": table},)

    def lines(self, rows: Sequence[Any]) -> list[str]:
        return [document["line"] for document in rows]


_RECORD = "rowlock_migrations"


def _filled(database: Database[dict[str, Any]], names: Sequence[str]) -> list[str]:
    """Those collections that hold anything, asked for at once."""
    if not names:
        return []
    first, *others = [(name, [{"$limit": 1}, {"$project": {"_id": 0, "name": {"$literal": name}}}]) for name in names]
    also = [{"$unionWith": {"coll": name, "pipeline": pipeline}} for name, pipeline in others]
    return [found["name"] for found in database[first[0]].aggregate([*first[1], *also])]


STORES: tuple[type[Rig], ...] = (SqliteRig, PostgresRig, MongoRig)
