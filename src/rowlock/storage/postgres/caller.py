"""Enqueues on the caller's own connection: one statement, through any supported driver.

Recognises a driver by the module of the connection's class, so that none of them needs to be installed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rowlock.errors import DuplicateJob
from rowlock.storage.postgres.connection import SQL
from rowlock.storage.postgres.rows import columns, may_reject, receipts
from rowlock.storage.records import NewJob, Receipt

_DOLLAR = re.compile(r"\$(\d+)")
_PSYCOPG = _DOLLAR.sub("%s", SQL["enqueue"])  # each parameter is used once, in order
_SQLALCHEMY = _DOLLAR.sub(r":p\1", SQL["enqueue"])
_ACCEPTED = (
    "an asyncpg connection, a psycopg 3 Connection or AsyncConnection, or an SQLAlchemy Connection, Session, "
    "AsyncConnection or AsyncSession"
)


def _driver(connection: Any) -> str:
    return type(connection).__module__.partition(".")[0]


def is_async(connection: Any) -> bool:
    """Returns whether this connection must be awaited."""
    return _driver(connection) == "asyncpg" or type(connection).__name__.startswith("Async")


async def enqueue_on(connection: Any, jobs: Sequence[NewJob], now: Any) -> list[Receipt]:
    """Enqueues in the caller's transaction; raises TypeError for a connection of an unsupported driver."""
    if not is_async(connection):
        return enqueue_on_blocking(connection, jobs, now)
    args = _lists(columns(jobs, True, now))
    match _driver(connection):
        case "asyncpg":
            if not may_reject(jobs):
                return receipts(jobs, await connection.fetch(SQL["enqueue"], *args))
            async with connection.transaction():
                return receipts(jobs, await connection.fetch(SQL["enqueue"], *args))
        case "psycopg":
            from psycopg.rows import tuple_row

            if may_reject(jobs) and _outside(connection):
                async with connection.transaction():
                    return await enqueue_on(connection, jobs, now)
            async with connection.cursor(row_factory=tuple_row) as cursor:
                guarded = may_reject(jobs)
                if guarded:
                    await cursor.execute("SAVEPOINT rowlock")
                await cursor.execute(_PSYCOPG, args)
                refused = await cursor.fetchall()
                try:
                    return receipts(jobs, refused)
                except DuplicateJob:
                    if guarded:
                        await cursor.execute("ROLLBACK TO SAVEPOINT rowlock")
                    raise
        case "sqlalchemy":
            from sqlalchemy import text

            async with connection.begin_nested():
                result = await connection.execute(text(_SQLALCHEMY), _named(args))
                return receipts(jobs, result.fetchall())
    raise _unknown(connection)


def enqueue_on_blocking(connection: Any, jobs: Sequence[NewJob], now: Any) -> list[Receipt]:
    """`enqueue_on` through a synchronous connection, in this thread."""
    args = _lists(columns(jobs, True, now))
    match _driver(connection):
        case "psycopg" if not is_async(connection):
            from psycopg.rows import tuple_row

            if may_reject(jobs) and _outside(connection):
                with connection.transaction():
                    return enqueue_on_blocking(connection, jobs, now)
            with connection.cursor(row_factory=tuple_row) as cursor:
                guarded = may_reject(jobs)
                if guarded:
                    cursor.execute("SAVEPOINT rowlock")
                refused = cursor.execute(_PSYCOPG, args).fetchall()
                try:
                    return receipts(jobs, refused)
                except DuplicateJob:
                    if guarded:
                        cursor.execute("ROLLBACK TO SAVEPOINT rowlock")
                    raise
        case "sqlalchemy" if not is_async(connection):
            from sqlalchemy import text

            with connection.begin_nested():
                return receipts(jobs, connection.execute(text(_SQLALCHEMY), _named(args)).fetchall())
    raise _unknown(connection)


def _outside(connection: Any) -> bool:
    """Returns whether a psycopg connection commits by itself now, so that its transaction() begins and ends one."""
    return bool(connection.autocommit and connection.info.transaction_status == 0)


def _lists(args: list[Any]) -> list[Any]:
    """Returns arrays as lists, because psycopg sends a tuple as a composite value."""
    return [list(value) if isinstance(value, tuple) else value for value in args]


def _named(args: list[Any]) -> dict[str, Any]:
    return {f"p{number}": value for number, value in enumerate(args, 1)}


def _unknown(connection: Any) -> TypeError:
    given = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return TypeError(f"enqueue(connection=...) takes {_ACCEPTED}; not {given}")
