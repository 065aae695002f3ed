"""Read and write the application's tables: an SQL statement on SQLite and PostgreSQL, a command on MongoDB."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from backoffice.application import app

Document = dict[str, Any]
Row = tuple[Any, ...]
CENTS: Document = {"$sum": "$amount_cents"}
PAID: Document = {"$gt": ["$paid_on", None]}


class Transaction(Protocol):
    """The methods used here of `job.transaction()` and of an import's run."""

    async def execute(self, query: Any, *args: Any) -> None: ...

    async def fetch(self, query: Any, *args: Any) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Query:
    """A query in SQL and as a MongoDB aggregation. Result rows have these columns, in this order."""

    table: str
    columns: tuple[str, ...]
    sql: str  # with `?` placeholders
    stages: Callable[..., list[Document]]  # same arguments -> aggregation stages


async def ask(tx: Transaction, query: Query, *args: Any) -> list[Row]:
    """Run a query and return its rows."""
    if store_of(tx) == "mongodb":
        return await _documents(tx, query.table, query.stages(*args), query.columns)
    return [tuple(row) for row in await tx.fetch(sql(tx, query.sql), *args)]


async def rows(tx: Transaction, table: str, columns: Sequence[str], **where: Any) -> list[Row]:
    """Return these columns of the rows that match `where`."""
    if store_of(tx) == "mongodb":
        return await _documents(tx, table, [{"$match": where}], columns)
    query = f"SELECT {', '.join(columns)} FROM {table} {_where(where)}"  # noqa: S608 - names of ours
    return [tuple(row) for row in await tx.fetch(sql(tx, query), *where.values())]


async def put(tx: Transaction, table: str, key: Sequence[str], **row: Any) -> None:
    """Insert a row, or update the row with its key."""
    others = [name for name in row if name not in key]
    if store_of(tx) == "mongodb":
        change = {"$set": {name: row[name] for name in others}}
        await _upsert(tx, table, {name: row[name] for name in key}, change)
        return
    changed = ", ".join(f"{name} = excluded.{name}" for name in others)
    await tx.execute(sql(tx, f"{_insert(table, row)} ({', '.join(key)}) DO UPDATE SET {changed}"), *row.values())


async def add(tx: Transaction, table: str, key: Sequence[str], **row: Any) -> None:
    """Insert a row, unless one with its key exists."""
    if store_of(tx) == "mongodb":
        change = {"$setOnInsert": {name: value for name, value in row.items() if name not in key}}
        await _upsert(tx, table, {name: row[name] for name in key}, change)
        return
    await tx.execute(sql(tx, f"{_insert(table, row)} DO NOTHING"), *row.values())


async def remove(tx: Transaction, table: str, **where: Any) -> None:
    """Delete the rows that match `where`."""
    if store_of(tx) == "mongodb":
        await tx.execute({"delete": table, "deletes": [{"q": where, "limit": 0}]})
        return
    await tx.execute(sql(tx, f"DELETE FROM {table} {_where(where)}"), *where.values())  # noqa: S608 - names of ours


def grouped(by: Mapping[str, Any], **sums: Any) -> list[Document]:
    """Return aggregation stages that group documents and compute sums."""
    named = {"$replaceWith": {"$mergeObjects": ["$$ROOT", "$_id"]}}
    return [{"$group": {"_id": dict(by), **sums}}, named]


def sum_where(condition: Any, amount: Any) -> Document:
    """Return an accumulator: the sum of `amount` over documents that meet the condition."""
    return {"$sum": {"$cond": [condition, amount, 0]}}


def sql(tx: Transaction, query: str) -> str:
    """Convert `?` placeholders to the style of the transaction's store."""
    if store_of(tx) != "postgresql":
        return query
    numbers = itertools.count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", query)


def store_of(tx: Transaction) -> str:
    """Return the transaction's store: `sqlite`, `postgresql` or `mongodb`."""
    connection = getattr(tx, "connection", None)
    if connection is None:  # an import's run does not expose one
        driver = app.settings.database_url.partition(":")[0].partition("+")[0]
    else:
        driver = type(connection).__module__.partition(".")[0]
    known = {"asyncpg": "postgresql", "postgres": "postgresql", "pymongo": "mongodb"}
    return known.get(driver, driver if driver in known.values() else "sqlite")


async def _documents(tx: Transaction, table: str, stages: list[Document], columns: Sequence[str]) -> list[Row]:
    found = await tx.fetch({"aggregate": table, "pipeline": stages, "cursor": {}})
    return [tuple(document.get(name) for name in columns) for document in found]


async def _upsert(tx: Transaction, table: str, key: Document, change: Document) -> None:
    await tx.execute({"update": table, "updates": [{"q": key, "u": change, "upsert": True}]})


def _insert(table: str, row: Mapping[str, Any]) -> str:
    places = ", ".join("?" * len(row))
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places}) ON CONFLICT"  # noqa: S608 - names of ours


def _where(where: Mapping[str, Any]) -> str:
    return f"WHERE {' AND '.join(f'{name} = ?' for name in where)}" if where else ""
