"""Where a system stores its jobs: a database or an SQLite file of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bson import json_util

from benchmarks.mongod import Mongod
from benchmarks.server import Server
from benchmarks.systems import Store, System


@dataclass(frozen=True, slots=True)
class Counters:
    """The work of the store so far. `commits` is exact only when no client is connected."""

    wal_lsn: str = "0/0"
    wal_bytes: int = 0
    commits: int = 0
    log_bytes: int = 0


class Place(Protocol):
    url: str
    server_pid: int | None

    def reset(self) -> None:
        """Create or empty it."""

    def copy(self, other: Any) -> None:
        """Make it a copy of another place of its kind."""

    def remove(self) -> None:
        """Remove it completely, so that no autovacuum runs during the next system's turn."""

    def settle(self, vacuum: bool = False) -> None:
        """Update statistics as in a running system, and run a checkpoint, so that none runs during a drain."""

    def asking(self, query: str) -> contextlib.AbstractContextManager[Question]:
        """Open a connection that repeats this query."""

    def old_transaction(self) -> contextlib.AbstractContextManager[None]:
        """Keep a transaction of another client open until the context ends."""


class Question(Protocol):
    calls: int

    def ask(self) -> bool: ...


def place(system: System, purpose: str, server: Server | None, mongod: Mongod | None, directory: Path) -> Place:
    name = f"{system.name}_{purpose}".replace("-", "_")
    if system.store is Store.SQLITE:
        return SqlitePlace(directory / name)
    if system.store is Store.MONGODB:
        assert mongod is not None
        return MongoPlace(mongod, name)
    assert server is not None
    return PostgresPlace(server, name)


class _Question:
    def __init__(self, connection: Any, query: str) -> None:
        self.calls = 0
        self._connection, self._query = connection, query

    def ask(self) -> bool:
        self.calls += 1
        return bool(self._connection.execute(self._query).fetchone()[0])


class PostgresPlace:
    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name = server, name
        self.url = server.url(name)
        self.server_pid: int | None = server.pid

    def reset(self) -> None:
        with self.server.connect() as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {self.name}")

    def copy(self, other: PostgresPlace) -> None:
        with self.server.connect() as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {self.name} TEMPLATE {other.name} STRATEGY file_copy")

    def remove(self) -> None:
        with self.server.connect() as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")

    def settle(self, vacuum: bool = False) -> None:
        with self.server.connect(self.name) as connection:
            connection.execute("VACUUM ANALYZE" if vacuum else "ANALYZE")
            connection.execute("CHECKPOINT")

    @contextlib.contextmanager
    def asking(self, query: str) -> Iterator[Question]:
        with self.server.connect(self.name) as connection:
            yield _Question(connection, query)

    @contextlib.contextmanager
    def old_transaction(self) -> Iterator[None]:
        with self.server.connect(self.name) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT txid_current(), count(*) FROM pg_class")
            yield
            connection.execute("ROLLBACK")

    def log_statements(self) -> None:
        with self.server.connect(self.name) as connection:
            connection.execute(f"ALTER DATABASE {self.name} SET log_statement = 'all'")
            connection.execute(f"ALTER DATABASE {self.name} SET log_parameter_max_length = 0")

    def counters(self) -> Counters:
        with self.server.connect() as connection:
            row: Any = connection.execute(
                """SELECT lsn, lsn - '0/0', (SELECT xact_commit FROM pg_stat_database WHERE datname = %s)
                FROM pg_current_wal_insert_lsn() lsn""",
                (self.name,),
            ).fetchone()
        return Counters(row[0], int(row[1]), int(row[2]), self.server.log.stat().st_size)

    def statements(self, before: Counters, after: Counters) -> int:
        """Return how many statements clients sent between the two, from the server's log (see `log_statements`)."""
        with self.server.log.open("rb") as log:
            log.seek(before.log_bytes)
            logged = log.read(after.log_bytes - before.log_bytes)
        return len(re.findall(rb"^[^\t\n].* LOG:  (?:statement|execute [^:]*): ", logged, re.MULTILINE))

    def full_page_bytes(self, before: Counters, after: Counters) -> int | None:
        """Return how many bytes of the WAL between the two are full page images, caused by the checkpoint before."""
        span = ["--start", before.wal_lsn, "--end", after.wal_lsn, "--path", str(self.server.data / "pg_wal")]
        told = subprocess.run([str(self.server.bin / "pg_waldump"), "--stats", *span], capture_output=True, text=True)
        total = re.search(r"^Total\s+\d+\s+\d+ \[[^]]*\]\s+(\d+) ", told.stdout, re.MULTILINE)
        return int(total[1]) if total else None


class MongoPlace:
    def __init__(self, mongod: Mongod, name: str) -> None:
        self.mongod, self.name = mongod, name
        self.url = mongod.url(name)
        self.server_pid: int | None = mongod.pid

    def reset(self) -> None:
        self.mongod.client.drop_database(self.name)

    def copy(self, other: MongoPlace) -> None:
        self.reset()
        source, own = self.mongod.client[other.name], self.mongod.client[self.name]
        for found in source.list_collections(filter={"type": "collection"}):
            name = found["name"]
            own.create_collection(name)
            indexes = [dict(index) for index in source[name].list_indexes() if index["name"] != "_id_"]
            if indexes:
                own.command({"createIndexes": name, "indexes": indexes})
            source[name].aggregate([{"$out": {"db": self.name, "coll": name}}])

    def remove(self) -> None:
        self.reset()

    def settle(self, vacuum: bool = False) -> None:
        self.mongod.client.admin.command("fsync")

    @contextlib.contextmanager
    def asking(self, query: str) -> Iterator[Question]:
        yield _Filters(self.mongod.client[self.name]["jobs"], json_util.loads(query))

    @contextlib.contextmanager
    def old_transaction(self) -> Iterator[None]:
        with self.mongod.client.start_session() as session, session.start_transaction():
            self.mongod.client[self.name]["jobs"].find_one({}, session=session)
            yield


class _Filters:
    def __init__(self, jobs: Any, filters: list[Any]) -> None:
        self.calls = 0
        self._jobs, self._filters = jobs, filters

    def ask(self) -> bool:
        self.calls += 1
        return any(self._jobs.find_one(each, {"_id": 1}) is not None for each in self._filters)


class SqlitePlace:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = str(directory / "jobs.db")
        self.server_pid: int | None = None

    def reset(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)

    def copy(self, other: SqlitePlace) -> None:
        self.remove()
        shutil.copytree(other.directory, self.directory)
        with open(self.url, "rb") as file:
            os.fsync(file.fileno())

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def settle(self, vacuum: bool = False) -> None:
        with contextlib.closing(sqlite3.connect(self.url)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextlib.contextmanager
    def asking(self, query: str) -> Iterator[Question]:
        with contextlib.closing(sqlite3.connect(self.url, isolation_level=None)) as connection:
            yield _Question(connection, query)

    @contextlib.contextmanager
    def old_transaction(self) -> Iterator[None]:
        with contextlib.closing(sqlite3.connect(self.url, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            yield
