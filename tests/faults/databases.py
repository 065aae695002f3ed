"""The databases under attack: tests read and change them behind the store's back."""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import apsw
import psutil
import psycopg
import pymongo

from mongo_server import PASSWORD, USER, MongoServer
from postgres_server import PostgresServer

_numbers = count(1)
MIGRATIONS = "rowlock_migrations"
COUNTS = ("rows", "inserted", "updated", "unchanged", "duplicate", "invalid")
_COLUMNS = "id, type, status, attempts, deaths, lease, result, error, payload, message, unique_key"


class Record(NamedTuple):
    """A job as stored."""

    id: str
    type: str
    status: str
    attempts: int
    deaths: int
    lease: int
    result: str | None
    error: str | None
    payload: str
    message: str | None
    unique_key: str | None


class Database(ABC):
    """One empty, migrated database."""

    kind: ClassVar[str]
    url: str

    @abstractmethod
    def opened_by(self, pid: int) -> bool:
        """Whether this process has a connection to it."""

    def writable(self) -> bool:
        """Whether writes are possible: no process holds a lock on the whole database."""
        return True

    @abstractmethod
    def beside(self) -> Database:
        """Return another empty database of the same kind, not migrated."""

    @abstractmethod
    def records(self, status: str | None = None) -> dict[str, Record]:
        """Return every job, or those of this status, by id."""

    @abstractmethod
    def statuses(self) -> dict[str, int]:
        """Return the number of jobs by status."""

    @abstractmethod
    def ready(self) -> int:
        """Return the number of claimable jobs."""

    @abstractmethod
    def waiting(self) -> int:
        """Return the number of unfinished jobs."""

    @abstractmethod
    def running(self) -> int: ...

    @abstractmethod
    def finished(self) -> int: ...

    @abstractmethod
    def keys(self) -> list[str]:
        """Return the unique keys in use."""

    @abstractmethod
    def ticks(self) -> list[Any]:
        """Return the tick of every schedule run."""

    @abstractmethod
    def locks(self) -> list[tuple[int, str]]:
        """Return token and status of every lock."""

    @abstractmethod
    def failures(self) -> list[tuple[Any, ...]]:
        """Return payload, reason and stack of every failure."""

    @abstractmethod
    def mentions(self, text: str) -> list[str]:
        """Return the tables of jobs and failures that contain this text."""

    @abstractmethod
    def table(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return the rows of a user's table."""

    @abstractmethod
    def ledger(self, table: str) -> tuple[int, ...]:
        """Read in one statement the row count of a table, and COUNTS summed over the completed chunks."""


class SqlDatabase(Database):
    """An SQL database."""

    @abstractmethod
    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query. `{}` before a table name stands for the schema."""

    def records(self, status: str | None = None) -> dict[str, Record]:
        where = "true" if status is None else f"status = '{status}'"
        rows = self.rows(f"SELECT {_COLUMNS} FROM {{}}all_jobs WHERE {where}")
        return {str(row[0]): Record(str(row[0]), *row[1:]) for row in rows}

    def statuses(self) -> dict[str, int]:
        return dict(self.rows("SELECT status, count(*) FROM {}all_jobs GROUP BY status"))

    def ready(self) -> int:
        return int(self.rows("SELECT count(*) FROM {}ready")[0][0])

    def waiting(self) -> int:
        ((queued, running),) = self.rows(
            "SELECT (SELECT count(*) FROM {}ready) + (SELECT count(*) FROM {}delayed), (SELECT count(*) FROM {}running)"
        )
        return int(queued + running)

    def running(self) -> int:
        return int(self.rows("SELECT count(*) FROM {}running")[0][0])

    def finished(self) -> int:
        return int(self.rows("SELECT count(*) FROM {}finished")[0][0])

    def keys(self) -> list[str]:
        return [key for (key,) in self.rows("SELECT key FROM {}unique_keys")]

    def ticks(self) -> list[Any]:
        return [tick for (tick,) in self.rows("SELECT tick FROM {}schedule_runs")]

    def locks(self) -> list[tuple[int, str]]:
        return [(token, status) for token, status in self.rows("SELECT token, status FROM {}job_idempotency_locks")]

    def failures(self) -> list[tuple[Any, ...]]:
        return self.rows("SELECT payload, failed_reason, stack_trace FROM {}job_failures")

    def mentions(self, text: str) -> list[str]:
        tables = ("all_jobs", "job_failures")
        return [name for name in tables for row in self.rows(f"SELECT * FROM {{}}{name}") if text in str(row)]

    def table(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        return self.rows(f"SELECT {', '.join(columns)} FROM {name}")

    def ledger(self, table: str) -> tuple[int, ...]:
        chunks = "FROM {}import_chunks WHERE status = 'done'"
        sums = ", ".join(f"(SELECT coalesce(sum({count}), 0) {chunks})" for count in COUNTS)
        (found,) = self.rows(f"SELECT (SELECT count(*) FROM {table}), {sums}")
        return tuple(map(int, found))


class SqliteDatabase(SqlDatabase):
    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"jobs{next(_numbers)}.db"
        self.url = f"sqlite:///{self.path}"

    def beside(self) -> SqliteDatabase:
        return SqliteDatabase(self.path.parent)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        connection = apsw.Connection(str(self.path))
        try:
            connection.set_busy_timeout(10_000)
            return connection.execute(query.replace("{}", "")).fetchall()
        finally:
            connection.close()

    def opened_by(self, pid: int) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return any(file.path == str(self.path) for file in psutil.Process(pid).open_files())
        return False

    def writable(self) -> bool:
        connection = apsw.Connection(str(self.path))
        try:
            connection.set_busy_timeout(200)
            connection.execute("BEGIN IMMEDIATE; ROLLBACK")
        except apsw.BusyError:
            return False
        finally:
            connection.close()
        return True


class PostgresDatabase(SqlDatabase):
    kind = "postgres"

    def __init__(self, server: PostgresServer, template: str = "template1") -> None:
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self.server = server
        self.name = f"faults_{next(_numbers)}"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self.name} TEMPLATE {template}")
        self.url = server.url_of(self.name)

    def beside(self) -> PostgresDatabase:
        return PostgresDatabase(self.server)

    @property
    def port(self) -> int:
        return self.server.port

    def through(self, port: int) -> str:
        """Return the URL that goes through a proxy."""
        return self.url.replace(f":{self.port}/", f":{port}/")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Read on one shared connection, because tests read many times a second. Reconnects after a server restart."""
        found = query.replace("{}", "rowlock.").encode()
        if self._connection is not None:
            with contextlib.suppress(psycopg.OperationalError):
                return self._connection.execute(found).fetchall()
        self.close()
        self._connection = psycopg.connect(self.url, autocommit=True)
        return self._connection.execute(found).fetchall()

    def opened_by(self, pid: int) -> bool:
        return _connected(pid, {self.server.port})

    def run(self, statement: str) -> None:
        """Execute a statement on a separate connection."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def change_function(self, name: str, change: Callable[[str], str]) -> None:
        """Replace a function of the schema by a changed copy. Fails if the change changes nothing."""
        ((text,),) = self.rows(
            f"SELECT pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            f" WHERE n.nspname = 'rowlock' AND p.proname = '{name}'"
        )
        changed = change(text)
        assert changed != text, f"the guard of rowlock.{name} was not found: has it been rewritten?"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(changed.encode())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    __del__ = close

    def drop(self) -> None:
        self.close()
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")


class MongoDatabase(Database):
    kind = "mongo"

    def __init__(self, server: MongoServer) -> None:
        self.server = server
        self.name = f"faults_{next(_numbers)}"
        self.url = server.url_of(self.name)
        self.migrated = set[str]()  # the collections that a migration creates

    def beside(self) -> MongoDatabase:
        return MongoDatabase(self.server)

    @property
    def port(self) -> int:
        return self.server.node.port

    def through(self, port: int) -> str:
        """Return the URL that goes through a proxy; the driver must not discover the members behind it."""
        direct = self.server.url_of(self.name, directConnection="true")
        return direct.replace(f":{self.port}/", f":{port}/")

    @property
    def data(self) -> pymongo.database.Database[dict[str, Any]]:
        return self.server.client[self.name]

    @property
    def jobs(self) -> pymongo.collection.Collection[dict[str, Any]]:
        return self.data["jobs"].with_options(read_concern=pymongo.read_concern.ReadConcern("majority"))

    def opened_by(self, pid: int) -> bool:
        return _connected(pid, {node.port for node in self.server.nodes})

    def records(self, status: str | None = None) -> dict[str, Record]:
        where = {} if status is None else {"status": status}
        reports = {(found["_id"], found["lease"]): found["message"] for found in self.data["rowlock_progress"].find()}
        return {
            found["_id"]: self._record(found, reports.get((found["_id"], found["lease"])))
            for found in self.jobs.find(where)
        }

    def _record(self, found: dict[str, Any], message: str | None) -> Record:
        result, payload = (found.get(f"{name}Text", found.get(name)) for name in ("result", "payload"))
        return Record(
            *(found[name] for name in ("_id", "type", "status", "attempts", "deaths", "lease")),
            result=result,
            error=found.get("error"),
            payload=payload if isinstance(payload, str) else json.dumps(payload),
            message=message,
            unique_key=found.get("uniqueKey"),
        )

    def statuses(self) -> dict[str, int]:
        found = self.jobs.aggregate([{"$group": {"_id": "$status", "number": {"$sum": 1}}}])
        return {group["_id"]: group["number"] for group in found}

    def ready(self) -> int:
        return self.jobs.count_documents({"state": "ready"})

    def waiting(self) -> int:
        return self.jobs.count_documents({"status": {"$in": ["queued", "processing"]}})

    def running(self) -> int:
        return self.jobs.count_documents({"status": "processing"})

    def finished(self) -> int:
        return self.jobs.count_documents({"status": {"$in": ["succeeded", "failed", "cancelled"]}})

    def keys(self) -> list[str]:
        return [found["_id"] for found in self.data["rowlock_keys"].find()]

    def ticks(self) -> list[Any]:
        return [found["_id"]["tick"] for found in self.data["rowlock_runs"].find()]

    def locks(self) -> list[tuple[int, str]]:
        return [(found["token"], found["status"]) for found in self.data["job_idempotency_locks"].find()]

    def failures(self) -> list[tuple[Any, ...]]:
        return [tuple(found.values()) for found in self.data["job_failures"].find()]

    def mentions(self, text: str) -> list[str]:
        names = self.data.list_collection_names()
        return [name for name in names for found in self.data[name].find() if text in str(found)]

    def table(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        return [tuple(found[column] for column in columns) for found in self.data[name].find()]

    def ledger(self, table: str) -> tuple[int, ...]:
        sums = {count: {"$sum": f"${count}"} for count in COUNTS}
        done = [{"$match": {"status": "done"}}, {"$group": {"_id": None, **sums}}]
        with self.server.client.start_session(snapshot=True) as session:
            found = list(self.data[table].aggregate([{"$count": "rows"}], session=session))
            summed = list(self.data["rowlock_chunks"].aggregate(done, session=session))
        table_rows = found[0]["rows"] if found else 0
        return (table_rows, *(summed[0][count] if summed else 0 for count in COUNTS))

    def fail(self, point: str, mode: Any, **data: Any) -> None:
        """Set a fail point of the primary."""
        self.server.primary.command({"configureFailPoint": point, "mode": mode, "data": data})

    def url_with(self, password: str) -> str:
        """Create a user with this password and return its URL."""
        user = f"user{next(_numbers)}"
        self.server.client.admin.command("createUser", user, pwd=password, roles=["root"])
        return self.server.url_of(self.name).replace(f"{USER}:{PASSWORD}@", f"{user}:{password}@")

    def end_failing(self, point: str) -> int:
        """Switch a fail point off. Returns how often it was hit."""
        return int(self.server.primary.command({"configureFailPoint": point, "mode": "off"})["count"])

    def empty(self) -> None:
        """Reset it: remove the documents of the collections that a migration creates, and drop all others."""
        # The transaction of a killed process stays open for a minute and keeps its locks.
        self.server.client.admin.command("killAllSessions", [])
        for name in self.data.list_collection_names():
            if name not in self.migrated:
                self.data.drop_collection(name)
            elif name != MIGRATIONS:
                self.data[name].delete_many({})


def _connected(pid: int, ports: set[int]) -> bool:
    """Whether a process has a connection to one of these ports."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return any(found.raddr and found.raddr.port in ports for found in psutil.Process(pid).net_connections("tcp"))
    return False
