"""Callers' own connections, of every kind that enqueue accepts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import apsw
import asyncpg
import psycopg
from psycopg.rows import dict_row
from pymongo import AsyncMongoClient, MongoClient
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from rowlock.storage.contract import Store
from rowlock.storage.records import NewJob, Receipt


def _insert(line: str) -> str:
    return f"INSERT INTO ledger (line) VALUES ('{line}')"


@dataclass(frozen=True, slots=True)
class Caller:
    """A connection with an open transaction, and functions that end it."""

    connection: Any
    execute: Callable[[Any], Awaitable[Any]]
    commit: Callable[[], Awaitable[None]]
    rollback: Callable[[], Awaitable[None]]
    blocking: bool = False
    close: Callable[[], object] | None = None  # for offline callers
    insert: Callable[[str], Any] = _insert  # the statement that writes a line to the ledger

    async def enqueue(self, store: Store, jobs: Sequence[NewJob]) -> list[Receipt]:
        if self.blocking:
            return store.enqueue_blocking(jobs, self.connection)
        return await store.enqueue(jobs, self.connection)

    async def write(self, line: str) -> None:
        """Write a line to the ledger in the caller's transaction."""
        await self.execute(self.insert(line))


OpenCaller = Callable[[str], AbstractAsyncContextManager[Caller]]


def soon(call: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Wrap a synchronous call as an asynchronous one."""

    async def wrapped(*args: Any) -> Any:
        return call(*args)

    return wrapped


async def _nothing() -> None:
    """Do nothing: there is no transaction to end."""


def asyncpg_caller(*, codec: bool = False, transaction: bool = True) -> OpenCaller:
    @asynccontextmanager
    async def caller(url: str) -> AsyncIterator[Caller]:
        connection = await asyncpg.connect(url)
        try:
            if codec:
                for kind in ("json", "jsonb"):
                    await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
            if not transaction:
                yield Caller(connection, connection.execute, _nothing, _nothing)
                return
            begun = connection.transaction()
            await begun.start()
            yield Caller(connection, connection.execute, begun.commit, begun.rollback)
        finally:
            await connection.close()

    return caller


def psycopg_caller(**options: Any) -> OpenCaller:
    @asynccontextmanager
    async def caller(url: str) -> AsyncIterator[Caller]:
        connection = await psycopg.AsyncConnection.connect(url, **options)
        try:
            yield Caller(connection, connection.execute, connection.commit, connection.rollback)
        finally:
            await connection.close()

    return caller


def psycopg_blocking_caller(**options: Any) -> OpenCaller:
    @asynccontextmanager
    async def caller(url: str) -> AsyncIterator[Caller]:
        connection = psycopg.connect(url, **options)
        try:
            commit, rollback = soon(connection.commit), soon(connection.rollback)
            yield Caller(connection, soon(connection.execute), commit, rollback, True, connection.close)
        finally:
            connection.close()

    return caller


def sqlalchemy_caller(driver: str, *, session: bool = False) -> OpenCaller:
    @asynccontextmanager
    async def caller(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(url.replace("postgresql://", f"postgresql+{driver}://"))
        try:
            async with AsyncSession(engine) if session else engine.connect() as connection:

                async def execute(query: str) -> Any:
                    return await connection.execute(text(query))

                yield Caller(connection, execute, connection.commit, connection.rollback)
        finally:
            await engine.dispose()

    return caller


def sqlalchemy_blocking_caller(*, session: bool = False) -> OpenCaller:
    @asynccontextmanager
    async def caller(url: str) -> AsyncIterator[Caller]:
        engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        try:
            with Session(engine) if session else engine.connect() as connection:

                async def execute(query: str) -> Any:
                    return connection.execute(text(query))

                commit, rollback = soon(connection.commit), soon(connection.rollback)
                yield Caller(connection, execute, commit, rollback, True, connection.close)
        finally:
            engine.dispose()

    return caller


def apsw_caller(*, blocking: bool = False, transaction: bool = True, trace: bool = False) -> OpenCaller:
    @asynccontextmanager
    async def caller(url: str) -> AsyncIterator[Caller]:
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        try:
            if trace:
                connection.row_trace = lambda cursor, row: {"row": row}
            if not transaction:
                yield Caller(connection, soon(connection.execute), _nothing, _nothing, blocking)
                return
            connection.execute("BEGIN")
            commit, rollback = (soon(lambda word=word: connection.execute(word)) for word in ("COMMIT", "ROLLBACK"))
            yield Caller(connection, soon(connection.execute), commit, rollback, blocking, connection.close)
        finally:
            connection.close()

    return caller


def sqlite3_caller(*, rows: bool = False) -> OpenCaller:
    @asynccontextmanager
    async def caller(url: str) -> AsyncIterator[Caller]:
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        try:
            if rows:
                connection.row_factory = lambda cursor, row: {"row": row}
            execute, commit, rollback = map(soon, (connection.execute, connection.commit, connection.rollback))
            yield Caller(connection, execute, commit, rollback, True, connection.close)
        finally:
            connection.close()

    return caller


def mongo_caller(*, transaction: bool = True) -> OpenCaller:
    @asynccontextmanager
    async def caller(url: str) -> AsyncIterator[Caller]:
        async with AsyncMongoClient(url) as client, client.start_session() as session:

            async def execute(command: dict[str, Any]) -> Any:
                return await client.get_default_database().command(command, session=session)

            if not transaction:
                yield Caller(session, execute, _nothing, _nothing, insert=_document)
                return
            await session.start_transaction()
            yield Caller(session, execute, session.commit_transaction, session.abort_transaction, insert=_document)

    return caller


def mongo_blocking_caller(*, transaction: bool = True) -> OpenCaller:
    @asynccontextmanager
    async def caller(url: str) -> AsyncIterator[Caller]:
        with MongoClient(url) as client, client.start_session() as session:

            async def execute(command: dict[str, Any]) -> Any:
                return client.get_default_database().command(command, session=session)

            if not transaction:
                yield Caller(session, execute, _nothing, _nothing, True, session.end_session, _document)
                return
            session.start_transaction()
            commit, rollback = soon(session.commit_transaction), soon(session.abort_transaction)
            yield Caller(session, execute, commit, rollback, True, session.end_session, _document)

    return caller


def _document(line: str) -> dict[str, Any]:
    return {"insert": "ledger", "documents": [{"line": line}]}


POSTGRES_CALLERS: Mapping[str, OpenCaller] = {
    "asyncpg": asyncpg_caller(),
    "asyncpg-json-codec": asyncpg_caller(codec=True),
    "psycopg-async": psycopg_caller(),
    "psycopg-async-dict-rows": psycopg_caller(row_factory=dict_row),
    "psycopg-blocking": psycopg_blocking_caller(),
    "sqlalchemy-asyncpg": sqlalchemy_caller("asyncpg"),
    "sqlalchemy-psycopg": sqlalchemy_caller("psycopg"),
    "sqlalchemy-session": sqlalchemy_caller("asyncpg", session=True),
    "sqlalchemy-blocking": sqlalchemy_blocking_caller(),
    "sqlalchemy-blocking-session": sqlalchemy_blocking_caller(session=True),
}
POSTGRES_AUTOCOMMIT: Mapping[str, OpenCaller] = {
    "asyncpg": asyncpg_caller(transaction=False),
    "psycopg-async": psycopg_caller(autocommit=True),
    "psycopg-blocking": psycopg_blocking_caller(autocommit=True),
}
POSTGRES_OFFLINE: Mapping[str, OpenCaller] = {
    "psycopg-blocking": psycopg_blocking_caller(),
    "sqlalchemy-blocking": sqlalchemy_blocking_caller(),
}
SQLITE_CALLERS: Mapping[str, OpenCaller] = {
    "apsw": apsw_caller(),
    "apsw-blocking": apsw_caller(blocking=True),
    "apsw-row-trace": apsw_caller(trace=True),
}
SQLITE_AUTOCOMMIT: Mapping[str, OpenCaller] = {
    "apsw": apsw_caller(transaction=False),
    "apsw-blocking": apsw_caller(transaction=False, blocking=True),
}
# Two copies of SQLite in one process do not see each other's locks: the standard library's needs exclusive access.
SQLITE_OFFLINE: Mapping[str, OpenCaller] = {
    "apsw-blocking": apsw_caller(blocking=True),
    "sqlite3": sqlite3_caller(),
    "sqlite3-row-factory": sqlite3_caller(rows=True),
}
MONGO_CALLERS: Mapping[str, OpenCaller] = {"pymongo": mongo_caller(), "pymongo-blocking": mongo_blocking_caller()}
MONGO_AUTOCOMMIT: Mapping[str, OpenCaller] = {
    "pymongo": mongo_caller(transaction=False),
    "pymongo-blocking": mongo_blocking_caller(transaction=False),
}
MONGO_OFFLINE: Mapping[str, OpenCaller] = {"pymongo-blocking": mongo_blocking_caller()}
