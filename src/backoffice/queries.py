"""What is asked of the tables and written into them: a statement where the store speaks SQL, a command on MongoDB."""

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
    """What the functions here need of `job.transaction()`, and of the run of an import."""

    async def execute(self, query: Any, *args: Any) -> None: ...

    async def fetch(self, query: Any, *args: Any) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Query:
    """A question in both languages; the answer has these columns, in this order."""

    table: str
    columns: tuple[str, ...]
    sql: str  # with `?`
    stages: Callable[..., list[Document]]  # of an aggregation, from the same arguments


async def ask(tx: Transaction, query: Query, *args: Any) -> list[Row]:
    """The rows that answer a query."""
    if store_of(tx) == "mongodb":
        return await _documents(tx, query.table, query.stages(*args), query.columns)
    return [tuple(row) for row in await tx.fetch(sql(tx, query.sql), *args)]


async def rows(tx: Transaction, table: str, columns: Sequence[str], **where: Any) -> list[Row]:
    """These columns of the rows that have these values."""
    if store_of(tx) == "mongodb":
        return await _documents(tx, table, [{"$match": where}], columns)
    query = f"SELECT {', '.join(columns)} FROM {table} {_where(where)}"  # noqa: S608 - names of ours
    return [tuple(row) for row in await tx.fetch(sql(tx, query), *where.values())]


async def put(tx: Transaction, table: str, key: Sequence[str], **row: Any) -> None:
    """Write a row, over the one with its key if there is one."""
    others = [name for name in row if name not in key]
    if store_of(tx) == "mongodb":
        change = {"$set": {name: row[name] for name in others}}
        await _upsert(tx, table, {name: row[name] for name in key}, change)
        return
    changed = ", ".join(f"{name} = excluded.{name}" for name in others)
    await tx.execute(sql(tx, f"{_insert(table, row)} ({', '.join(key)}) DO UPDATE SET {changed}"), *row.values())


async def add(tx: Transaction, table: str, key: Sequence[str], **row: Any) -> None:
    """Write a row, unless there is one with its key."""
    if store_of(tx) == "mongodb":
        change = {"$setOnInsert": {name: value for name, value in row.items() if name not in key}}
        await _upsert(tx, table, {name: row[name] for name in key}, change)
        return
    await tx.execute(sql(tx, f"{_insert(table, row)} DO NOTHING"), *row.values())


async def remove(tx: Transaction, table: str, **where: Any) -> None:
    """Delete the rows that have these values."""
    if store_of(tx) == "mongodb":
        await tx.execute({"delete": table, "deletes": [{"q": where, "limit": 0}]})
        return
    await tx.execute(sql(tx, f"DELETE FROM {table} {_where(where)}"), *where.values())  # noqa: S608 - names of ours


def grouped(by: Mapping[str, Any], **sums: Any) -> list[Document]:
    """Stages that sum up the documents which are alike in something."""
    named = {"$replaceWith": {"$mergeObjects": ["$$ROOT", "$_id"]}}
    return [{"$group": {"_id": dict(by), **sums}}, named]


def sum_where(condition: Any, amount: Any) -> Document:
    """The sum of an amount over the documents for which something holds."""
    return {"$sum": {"$cond": [condition, amount, 0]}}


def sql(tx: Transaction, query: str) -> str:
    """A query of ours, written with `?`, as the store of this transaction takes it."""
    if store_of(tx) != "postgresql":
        return query
    numbers = itertools.count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", query)


def store_of(tx: Transaction) -> str:
    """What the transaction is on: `sqlite`, `postgresql` or `mongodb`."""
    connection = getattr(tx, "connection", None)
    if connection is None:  # a run shows none
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
