"""The stores under test: each is a Rig in STORES, the only interface that the suite uses."""

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
from conformance.idle_pools import IdlePools
from rowlock.clock import Clock
from rowlock.storage.contract import Store, StoreTransaction
from rowlock.storage.migrate import functions, migrations

PASSWORD = "hunter2"
"""The password in every store URL that can have one, so that tests can search for leaks of it."""

_numbers = count(1)


class Rig(ABC):
    """One kind of store, set up for a test and removed after it."""

    name: ClassVar[str]
    resource: ClassVar[str | None] = None  # the session fixture that it needs
    relational: ClassVar[bool] = True  # whether it is an SQL database
    callers: ClassVar[Mapping[str, OpenCaller]]  # each begins a caller's transaction
    autocommit_callers: ClassVar[Mapping[str, OpenCaller]]  # each without a transaction
    offline_callers: ClassVar[Mapping[str, OpenCaller]]  # synchronous, for a process that never opens its store

    def __init__(self, folder: Path, resource: Any = None) -> None:
        self.folder = folder
        self.resource_given = resource
        self.url = ""
        self._stores: list[Store] = []

    @abstractmethod
    def store_at(self, url: str, clock: Clock) -> Store:
        """Return a store object that is not open."""

    @abstractmethod
    async def new_place(self) -> str:
        """Create an empty database without a schema and return its URL."""

    @abstractmethod
    def nowhere(self, clock: Clock) -> Store:
        """Return a store whose database is unreachable."""

    @abstractmethod
    async def record_migration(self, number: int, checksum: str, oldest: int) -> None:
        """Add to the record of applied migrations behind the store's back."""

    def migrations(self) -> list[str]:
        """Return what `migrate` applies to an empty store, in order."""
        return [migration.label for migration in migrations(self.name)]

    async def make(self, clock: Clock) -> Store:
        """Return an open store, migrated and empty."""
        store = await self.make_bare(clock)
        await store.migrate()
        return store

    async def empty(self, store: Store) -> Store:
        """Return an open, empty store for the next test, possibly this one."""
        await self.dispose()
        return await self.make(store.clock)

    async def make_bare(self, clock: Clock) -> Store:
        """Return an open store without a schema."""
        self.url = await self.new_place()
        return await self.another(clock)

    async def another(self, clock: Clock) -> Store:
        """Return another open store object on the same data."""
        return await self._open(self.store_at(self.url, clock))

    # Statements that a user's handler might run in its transaction.

    placeholder: ClassVar[str] = "?"
    schema: ClassVar[str] = ""
    bad_query: ClassVar[Any] = "INSERT INTO no_such_table VALUES (1)"

    async def make_ledger(self, store: Store) -> None:
        async with store.transaction() as transaction:
            await transaction.execute("CREATE TABLE IF NOT EXISTS ledger (line TEXT)")

    async def write_ledger(self, transaction: StoreTransaction, line: str) -> None:
        await transaction.execute(*self.write_line(line))

    async def read_ledger(self, transaction: StoreTransaction) -> list[str]:
        return self.lines(await transaction.fetch(*self.read_lines()))

    def write_line(self, line: str) -> tuple[Any, ...]:
        """Return the arguments of `execute` that write a line."""
        return f"INSERT INTO ledger (line) VALUES ({self.placeholder})", line

    def read_lines(self) -> tuple[Any, ...]:
        """Return the arguments of `fetch` that read the lines."""
        return ("SELECT line FROM ledger ORDER BY line",)

    def read_all(self, table: str) -> tuple[Any, ...]:
        """Return the arguments of `fetch` that read every row of a table."""
        return (f"SELECT * FROM {table}",)

    def add_index(self, table: str, name: str) -> tuple[Any, ...]:
        """Return the arguments of `execute` that add an index to a table of the store."""
        return (f"CREATE INDEX {name} ON {self.schema}{table} (id)",)

    def lines(self, rows: Sequence[Any]) -> list[str]:
        """Return the lines in fetched rows."""
        return [line for (line,) in rows]

    async def dispose(self) -> None:
        for store in reversed(self._stores):
            await self.put_away(store)
        self._stores.clear()

    async def connect(self, store: Store) -> None:
        """Open a store."""
        await store.open()

    async def put_away(self, store: Store) -> None:
        """Close a store that the test has opened."""
        await store.close()

    async def _open(self, store: Store) -> Store:
        self._stores.append(store)  # first: a store that fails to open may have connections too
        await self.connect(store)
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

    async def record_migration(self, number: int, checksum: str, oldest: int) -> None:
        connection = apsw.Connection(self.url.removeprefix("sqlite:///"))
        connection.execute(
            "INSERT INTO migrations (number, name, checksum, oldest, applied_at) VALUES (?, 'forged', ?, ?, 0)"
            " ON CONFLICT (number) DO UPDATE SET checksum = excluded.checksum",
            (number, checksum, oldest),
        )
        connection.close()


class PostgresRig(Rig):
    name = "postgres"
    resource = "postgres"
    callers = POSTGRES_CALLERS
    autocommit_callers = POSTGRES_AUTOCOMMIT
    offline_callers = POSTGRES_OFFLINE
    placeholder = "$1"
    schema = "rowlock."

    # Deleting a handful of rows takes 1 ms; TRUNCATE 10-40, a database from a template 50-290.
    _CLEAN = """
        DO $$ DECLARE place regclass; BEGIN
            SET LOCAL lock_timeout = '10s';
            FOR place IN SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE c.relkind = 'r' AND n.nspname IN ('rowlock', 'public')
                AND c.relname NOT IN ('migrations', 'function_sets')
            LOOP EXECUTE 'DELETE FROM ' || place; END LOOP;
        END $$
    """
    _migrated: ClassVar[dict[str, str]] = {}  # by server, the one database that is cleaned and used again

    pools = IdlePools(lambda pool: pool.close())

    def store_at(self, url: str, clock: Clock) -> Store:
        from rowlock.storage.postgres import PostgresStore

        return PostgresStore(url, clock)

    async def connect(self, store: Any) -> None:
        store._connections._pool = await self.pools.take(store._connections.dsn)
        await store.open()

    async def put_away(self, store: Any) -> None:
        connections = store._connections
        pool = connections._pool
        unused = pool is not None and pool.get_size() == pool.get_idle_size()
        again = unused and connections.dsn in self._migrated.values()
        if again and self.pools.keep(connections.dsn, pool):
            connections._pool = None
        await store.close()

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

    def migrations(self) -> list[str]:
        return [*super().migrations(), functions(self.name).label]

    async def record_migration(self, number: int, checksum: str, oldest: int) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO rowlock.migrations (number, name, checksum, oldest) VALUES (%s, 'forged', %s, %s)"
                " ON CONFLICT (number) DO UPDATE SET checksum = excluded.checksum",
                (number, checksum, oldest),
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

    pools = IdlePools(lambda pool: pool.client.close())

    def store_at(self, url: str, clock: Clock) -> Store:
        from rowlock.storage.mongo import MongoStore

        return MongoStore(url, clock)

    async def connect(self, store: Any) -> None:
        store._link._pool = await self.pools.take(store._link.dsn)
        await store.open()

    async def put_away(self, store: Any) -> None:
        link = store._link
        pool = link._pool
        unused = pool is not None and pool.users == 0 and not pool.given_up
        again = unused and link.dsn in self._migrated.values()
        if again and self.pools.keep(link.dsn, pool):
            link._pool = None
        await store.close()

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
        """Delete all documents: takes a few ms, while dropping and recreating the database takes 400 ms."""
        found = self.database.list_collection_names(filter={"type": "collection"})
        names = [name for name in found if name != _RECORD and not name.startswith("system.")]
        for name in _filled(self.database, names):
            self.database[name].delete_many({}, comment="between tests")
        return store

    @property
    def database(self) -> Database[dict[str, Any]]:
        """The store's database, read behind its back."""
        found: Database[dict[str, Any]] = self.resource_given.client[urlsplit(self.url).path.removeprefix("/")]
        return found

    def nowhere(self, clock: Clock) -> Store:
        url = f"mongodb://rowlock:{PASSWORD}@127.0.0.1:1/nowhere?serverSelectionTimeoutMS=500"
        return self.store_at(url, clock)

    async def record_migration(self, number: int, checksum: str, oldest: int) -> None:
        forged = {"$set": {"checksum": checksum}, "$setOnInsert": {"name": "forged", "oldest": oldest}}
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

    def add_index(self, table: str, name: str) -> tuple[Any, ...]:
        return ({"createIndexes": table, "indexes": [{"name": name, "key": {"id": 1}}]},)

    def lines(self, rows: Sequence[Any]) -> list[str]:
        return [document["line"] for document in rows]


_RECORD = "rowlock_migrations"


def _filled(database: Database[dict[str, Any]], names: Sequence[str]) -> list[str]:
    """Return the collections that are not empty, in one query."""
    if not names:
        return []
    first, *others = [(name, [{"$limit": 1}, {"$project": {"_id": 0, "name": {"$literal": name}}}]) for name in names]
    also = [{"$unionWith": {"coll": name, "pipeline": pipeline}} for name, pipeline in others]
    return [found["name"] for found in database[first[0]].aggregate([*first[1], *also])]


class StandaloneRig(MongoRig):
    """A server without a replica set. Its clients are closed with their stores, before the server stops."""

    async def connect(self, store: Any) -> None:
        await store.open()

    async def put_away(self, store: Any) -> None:
        await store.close()


STORES: tuple[type[Rig], ...] = (SqliteRig, PostgresRig, MongoRig)
