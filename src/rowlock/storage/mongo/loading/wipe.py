"""Removes the user's documents with given values, before an import writes others in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.loading.cells import given, keeper
from rowlock.storage.mongo.loading.table_schema import TableSchema, collection, field, must_have


async def wiped(scope: Scope, table: str, values: Mapping[str, Any]) -> int:
    """Delete the documents that have these values; return their number."""
    table_schema = await must_have(scope, table, list(values))
    removed = await scope[collection(table)].delete_many(condition(table_schema, values), session=scope.session)
    return removed.deleted_count


async def wipeable(scope: Scope, table: str, values: Mapping[str, Any]) -> int:
    """Return how many documents `wiped` would delete."""
    table_schema = await must_have(scope, table, list(values))
    return await scope[collection(table)].count_documents(condition(table_schema, values), session=scope.session)


def condition(table_schema: TableSchema, values: Mapping[str, Any]) -> Document:
    """Return the query for documents that have these values; without values, for all."""
    return {field(name): _kept(table_schema, field(name), value) for name, value in values.items()}


def _kept(table_schema: TableSchema, name: str, value: Any) -> Any:
    if value is None:
        return None  # null, or missing
    cell, kind = given(value, table_schema.kinds.get(name))
    return keeper(kind, table_schema.types.get(name, frozenset()))(cell)
