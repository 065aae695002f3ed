"""The databases under attack, looked at and tampered with behind the store's back."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import apsw
import psutil
import psycopg

from postgres_server import PostgresServer

_numbers = count(1)
_COLUMNS = "id, type, status, attempts, deaths, lease, result, error, payload, message, unique_key"


class Record(NamedTuple):
    """A job as the store has it."""

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
    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a query finds; tables are named with `{}` before them for the schema."""

    @abstractmethod
    def opened_by(self, pid: int) -> bool:
        """Whether this process has a connection."""

    def writable(self) -> bool:
        """Whether nobody keeps all others from writing."""
        return True

    def records(self, where: str = "true") -> dict[str, Record]:
        rows = self.rows(f"SELECT {_COLUMNS} FROM {{}}all_jobs WHERE {where}")
        return {str(row[0]): Record(str(row[0]), *row[1:]) for row in rows}

    def statuses(self) -> dict[str, int]:
        return dict(self.rows("SELECT status, count(*) FROM {}all_jobs GROUP BY status"))

    def waiting(self) -> int:
        """How many jobs are not over."""
        ((queued, running),) = self.rows(
            "SELECT (SELECT count(*) FROM {}ready) + (SELECT count(*) FROM {}delayed), (SELECT count(*) FROM {}running)"
        )
        return int(queued + running)

    def running(self) -> int:
        return int(self.rows("SELECT count(*) FROM {}running")[0][0])


class SqliteDatabase(Database):
    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"jobs{next(_numbers)}.db"
        self.url = f"sqlite:///{self.path}"

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


class PostgresDatabase(Database):
    kind = "postgres"

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.name = f"faults_{next(_numbers)}"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self.name}")
        self.url = server.url_of(self.name)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query.replace("{}", "rowlock.").encode())
            return cursor.fetchall() if cursor.description else []

    def opened_by(self, pid: int) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            connections = psutil.Process(pid).net_connections("tcp")
            return any(found.raddr and found.raddr.port == self.server.port for found in connections)
        return False

    def run(self, statement: str) -> None:
        self.rows(statement)

    def change_function(self, name: str, change: Callable[[str], str]) -> None:
        """Replace a function of the schema by a changed copy; fails when the change changes nothing."""
        ((text,),) = self.rows(
            f"SELECT pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            f" WHERE n.nspname = 'rowlock' AND p.proname = '{name}'"
        )
        changed = change(text)
        assert changed != text, f"the guard of rowlock.{name} was not found: has it been rewritten?"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(changed.encode())

    def drop(self) -> None:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
