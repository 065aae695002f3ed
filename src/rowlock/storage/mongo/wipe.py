"""Documents of the user's removed by what their fields hold, before others take their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.storage.mongo.cells import given, keeper
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.shape import Shape, collection, field, must_have


async def wiped(scope: Scope, table: str, values: Mapping[str, Any]) -> int:
    """Delete the documents that a load of these values would have made, and count them."""
    shape = await must_have(scope, table, list(values))
    removed = await scope[collection(table)].delete_many(condition(shape, values), session=scope.session)
    return removed.deleted_count


def condition(shape: Shape, values: Mapping[str, Any]) -> Document:
    """The query that finds the documents which have these values; none given: all."""
    return {field(name): _kept(shape, field(name), value) for name, value in values.items()}


def _kept(shape: Shape, name: str, value: Any) -> Any:
    if value is None:
        return None  # null, or not there
    cell, kind = given(value, shape.kinds.get(name))
    return keeper(kind, shape.types.get(name, frozenset()))(cell)
