"""Databases that fail as real ones do: timeouts, locks, cancelled statements and refused values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import patch

import apsw
import psycopg

from conformance.stores import MongoRig, Rig
from engine.watched import WatchedStore

POISON = "poison"
"""A text that the store refuses in a result or an error within `refusing_values`."""

LOCK_TIMEOUT_MS, STATEMENT_TIMEOUT_MS = 100, 1_500
APP_NAME = "rowlock-sabotage"

Trouble = Callable[[], AbstractAsyncContextManager[None]]

# Out of memory, internal error, serialization failure, cancelled, lock not available, raised by a trigger, I/O error.
_SQLSTATES = ("53200", "XX000", "40001", "57014", "55P03", "P0001", "58030")
# Interrupted, time limit exceeded, memory limit exceeded, write conflict, lock timeout, unknown error.
_MONGO_CODES = (11601, 262, 146, 112, 24, 8)


def address(rig: Rig) -> str:
    """Return the URL for a worker's store, with timeouts or a name by which a test can disturb its sessions."""
    match rig.name:
        case "postgres":
            return f"{rig.url}?lock_timeout={LOCK_TIMEOUT_MS}&statement_timeout={STATEMENT_TIMEOUT_MS}"
        case "mongo":
            return f"{rig.url}{'&' if '?' in rig.url else '?'}appName={APP_NAME}"
    return rig.url


def troubles(rig: Rig, store: WatchedStore) -> dict[str, Trouble]:
    """Return ways to make settlements fail that do not depend on the settled values."""
    match rig.name:
        case "postgres":
            raised = {
                code: lambda code=code: _raising(rig, f"RAISE 'no' USING ERRCODE = '{code}'") for code in _SQLSTATES
            }
            return raised | {
                "lock_timeout": lambda: _rows_locked(rig),
                "statement_timeout": lambda: _raising(rig, "PERFORM pg_sleep(60)"),
                "pg_cancel_backend": lambda: _cancelling(rig),
            }
        case "mongo":
            return {str(code): lambda code=code: _failing(rig, code) for code in _MONGO_CODES}
    return {"interrupted": lambda: _interrupting(store), "busy": lambda: _busy(rig)}


@asynccontextmanager
async def _raising(rig: Rig, statement: str) -> AsyncIterator[None]:
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION public.sabotage() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN {statement}; RETURN OLD; END $$"
        )
        connection.execute(
            "CREATE TRIGGER sabotage BEFORE DELETE ON rowlock.running"
            " FOR EACH STATEMENT EXECUTE FUNCTION public.sabotage()"
        )
        try:
            yield
        finally:
            await asyncio.to_thread(connection.execute, "DROP FUNCTION public.sabotage CASCADE")


@asynccontextmanager
async def _rows_locked(rig: Rig) -> AsyncIterator[None]:
    with psycopg.connect(rig.url) as connection:
        connection.execute("SELECT FROM rowlock.running FOR UPDATE")
        yield
        connection.rollback()


@asynccontextmanager
async def _cancelling(rig: Rig) -> AsyncIterator[None]:
    """Cancel every statement that waits for our lock."""
    cancel = (
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active' AND query LIKE '%settle%'"
    )

    async def again_and_again() -> None:
        with psycopg.connect(rig.url, autocommit=True) as connection:
            while True:
                connection.execute(cancel)
                await asyncio.sleep(0.001)

    async with _raising(rig, "PERFORM pg_sleep(1)"):
        cancelling = asyncio.create_task(again_and_again())
        try:
            yield
        finally:
            cancelling.cancel()


@asynccontextmanager
async def _failing(rig: Rig, code: int) -> AsyncIterator[None]:
    assert isinstance(rig, MongoRig)
    data = {"failCommands": ["update"], "errorCode": code, "appName": APP_NAME}
    command = {"configureFailPoint": "failCommand", "data": data}
    rig.resource_given.client.admin.command(command | {"mode": "alwaysOn"})
    try:
        yield
    finally:
        rig.resource_given.client.admin.command(command | {"mode": "off"})


@asynccontextmanager
async def _interrupting(store: WatchedStore) -> AsyncIterator[None]:
    """Interrupt every statement of the writer."""
    await _interrupt(store, lambda: True)
    try:
        yield
    finally:
        await _interrupt(store, None)


async def _interrupt(store: WatchedStore, handler: Callable[[], bool] | None) -> None:
    while True:
        try:
            store.inner._writer.connection.set_progress_handler(handler, 1)  # type: ignore[attr-defined]
            return
        except apsw.ThreadingViolationError:  # the connection is in use
            await asyncio.sleep(0.001)


@asynccontextmanager
async def _busy(rig: Rig) -> AsyncIterator[None]:
    """Hold the write lock on another connection for longer than the store waits."""
    connection = apsw.Connection(rig.url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(10_000)
    connection.execute("BEGIN IMMEDIATE")
    with patch("rowlock.storage.sqlite.connection.BUSY_SECONDS", 0.1):
        yield
    connection.close()


@contextmanager
def refusing_values(rig: Rig, *, failures_too: bool = False) -> Iterator[None]:
    """Add constraints that refuse POISON in results and errors and, on request, every failure record."""
    match rig.name:
        case "postgres":
            yield from _constrained(rig, failures_too)
        case "mongo":
            yield from _validated(rig, failures_too)
        case _:
            yield from _triggered(rig, failures_too)


def _constrained(rig: Rig, failures_too: bool) -> Iterator[None]:
    columns = [("finished", "result::text"), ("finished", "error"), ("ready", "error"), ("delayed", "error")]
    checks = {f"{table}_{number}": (table, f"coalesce({column}, '') NOT LIKE '%{POISON}%'")
              for number, (table, column) in enumerate([*columns, ("job_failures", "failed_reason")])}  # fmt: skip
    if failures_too:
        checks["none"] = ("job_failures", "job_name = ''")
    with psycopg.connect(rig.url, autocommit=True) as connection:
        for name, (table, condition) in checks.items():
            connection.execute(
                f"ALTER TABLE rowlock.{table} ADD CONSTRAINT sabotage_{name} CHECK ({condition}) NOT VALID"
            )
        try:
            yield
        finally:
            for name, (table, _) in checks.items():
                connection.execute(f"ALTER TABLE rowlock.{table} DROP CONSTRAINT sabotage_{name}")


def _validated(rig: Rig, failures_too: bool) -> Iterator[None]:
    assert isinstance(rig, MongoRig)
    clean = {"$not": {"$regex": POISON}}
    rules: dict[str, dict[str, Any]] = {"jobs": {"result": clean, "error": clean}}
    rules["job_failures"] = {"no_such_field": 1} if failures_too else {"failedReason": clean}
    for collection, rule in rules.items():
        rig.database.command("collMod", collection, validator=rule)
    try:
        yield
    finally:
        for collection in rules:
            rig.database.command("collMod", collection, validator={})


def _triggered(rig: Rig, failures_too: bool) -> Iterator[None]:
    connection = apsw.Connection(rig.url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(10_000)
    for table, column in (("finished", "result"), ("finished", "error"), ("ready", "error"), ("delayed", "error")):
        connection.execute(
            f"CREATE TRIGGER sabotage_{table}_{column} BEFORE INSERT ON {table} WHEN new.{column} LIKE '%{POISON}%'"
            " BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    when = "" if failures_too else f"WHEN new.failed_reason LIKE '%{POISON}%'"
    connection.execute(
        f"CREATE TRIGGER sabotage_failures BEFORE INSERT ON job_failures {when}"
        " BEGIN SELECT RAISE(ABORT, 'refused'); END"
    )
    connection.close()
    yield  # the test deletes the file
