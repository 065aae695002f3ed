"""Users' tables, created and read in the language of each store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from rowlock.storage.contract import Store, StoreTransaction

Command = Mapping[str, Any]

INTEGER: Command = {"bsonType": ["int", "long"]}
TEXT: Command = {"bsonType": "string"}
DECIMAL: Command = {"bsonType": "decimal"}
FLOAT: Command = {"bsonType": "double"}
BOOLEAN: Command = {"bsonType": "bool"}
DATE: Command = {"bsonType": "date"}


def is_mongo(store: Store) -> bool:
    return store.url.startswith("mongodb")


def or_null(rule: Command) -> Command:
    kinds = rule["bsonType"]
    return {**rule, "bsonType": [*([kinds] if isinstance(kinds, str) else kinds), "null"]}


def collection(table: str, fields: Mapping[str, Command], *, key: Sequence[str] = ()) -> tuple[Command, ...]:
    """Return commands that create a collection: non-nullable fields are required, the key is unique."""
    required = [name for name, rule in fields.items() if "null" not in rule["bsonType"]]
    schema = {"bsonType": "object", "properties": dict(fields)} | ({"required": required} if required else {})
    made: Command = {"create": table, "validator": {"$jsonSchema": schema}}
    return (made, unique(table, *key)) if key else (made,)


def unique(table: str, *fields: str, **options: Any) -> Command:
    return index(table, *fields, unique=True, **options)


def unique_text(table: str, field: str) -> Command:
    """Return a unique index with SQL's semantics: rows without a value do not conflict."""
    return unique(table, field, partialFilterExpression={field: {"$type": "string"}})


def index(table: str, *fields: str, **options: Any) -> Command:
    key = dict.fromkeys(fields, 1)
    return {"createIndexes": table, "indexes": [{"key": key, "name": "_".join([*fields, *options]), **options}]}


async def run(store: Store, statement: str, *commands: Command) -> None:
    """Run the statement, or on MongoDB the commands, outside any transaction."""
    async with store.transaction() as transaction:
        if is_mongo(store):
            database = transaction.connection.client[urlsplit(store.url).path.removeprefix("/")]
            for command in commands:
                await database.command(dict(command))
        else:
            await transaction.execute(statement)


async def rows(store: Store, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return these columns of the table's rows, sorted by the first two."""
    async with store.transaction() as transaction:
        if is_mongo(store):
            return await _documents(transaction, table, columns)
        names, order = ", ".join(map(_quoted, columns)), "1, 2" if len(columns) > 1 else "1"
        return [tuple(row) for row in await transaction.fetch(f"SELECT {names} FROM {_quoted(table)} ORDER BY {order}")]


async def _documents(transaction: StoreTransaction, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    from rowlock.storage.mongo.loading import table_schema as table_schema

    found: list[Any] = await transaction.fetch({"find": table_schema.collection(table)})
    read = [tuple(table_schema.plain(document.get(table_schema.field(name))) for name in columns) for document in found]
    return sorted(read, key=lambda row: [(value is None, value) for value in row[:2]])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
