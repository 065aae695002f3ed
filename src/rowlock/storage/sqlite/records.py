"""Records in SQLite: one statement per verb, made from the declaration of the kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any

import apsw

from rowlock.storage.kinds import Column, Kind, R, Seen
from rowlock.storage.sqlite.rows import Row, micros, moment
from rowlock.storage.sqlite.work import Worked


class Recording(Worked):
    """The verbs on records."""

    async def read(self, kind: Kind[R], *key: Any, by: str | None = None) -> Seen[R]:
        def look(connection: apsw.Connection, now: int) -> Seen[R]:
            row = connection.execute(_read(kind, by), [_stored(value) for value in key]).fetchone()
            return Seen(None if row is None else _record(kind, row), moment(now))

        return await self._read(look)

    async def insert(self, kind: Kind[R], record: R) -> bool:
        return await self._changed(_insert(kind), _values(record, kind.columns))

    async def update(self, kind: Kind[R], read: R, changed: R) -> bool:
        values = (*_values(changed, kind.others), *map(_stored, kind.key_of(read)), *_values(read, kind.others))
        return await self._changed(_update(kind), values)

    async def delete(self, kind: Kind[R], read: R) -> bool:
        return await self._changed(_delete(kind), (*map(_stored, kind.key_of(read)), *_values(read, kind.others)))

    async def scan(
        self,
        kind: Kind[R],
        by: str | None = None,
        *,
        equal: Mapping[str, Any] | None = None,
        before: Any = None,
        limit: int | None = None,
    ) -> list[R]:
        # "= ?" rather than "IS ?": the planner takes a partial index only for "IS NULL", which has no placeholder.
        given = {name: value for name, value in (equal or {}).items() if value is not None}
        where = [f"{name} = ?" for name in given]
        where += [f"{name} IS NULL" for name, value in (equal or {}).items() if value is None]
        args = [*given.values()]
        if before is not None:
            where.append(f"{kind.first(by, equal or {})} < ?")
            args.append(before)
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        order = ", ".join(f"{one[1:]} DESC" if one.startswith("-") else one for one in kind.order(by, equal or {}))
        statement = f"SELECT {_names(kind.columns)} FROM {kind.table}{condition} ORDER BY {order} LIMIT ?"
        values = [*map(_stored, args), -1 if limit is None else limit]
        rows = await self._read(lambda connection, now: connection.execute(statement, values).fetchall())
        return [_record(kind, row) for row in rows]

    async def remove(self, kind: Kind[R], by: str, before: Any, limit: int) -> int:
        values = (_stored(before), limit)
        rows = await self._write(
            lambda connection, now: connection.execute(_remove(kind, by), values).fetchall(),
        )
        return len(rows)

    async def _changed(self, statement: str, values: Iterable[Any]) -> bool:
        bound = tuple(values)
        return await self._write(lambda connection, now: bool(connection.execute(statement, bound).fetchall()))


def _stored(value: Any) -> Any:
    match value:
        case datetime():
            return micros(value)
        case Enum():
            return value.value
        case bool():
            return int(value)
    return value


def _values(record: Any, columns: Iterable[Column]) -> list[Any]:
    return [_stored(getattr(record, column.name)) for column in columns]


def _record(kind: Kind[R], row: Row) -> R:
    return kind.record(*(_loaded(column, value) for column, value in zip(kind.columns, row, strict=True)))


def _loaded(column: Column, value: Any) -> Any:
    if value is None:
        return None
    if column.type is datetime:
        return moment(value)
    return bool(value) if column.type is bool else column.value(value)


def _names(columns: Iterable[Column]) -> str:
    return ", ".join(column.name for column in columns)


def _same(kind: Kind[Any]) -> str:
    """Return the condition that the record is the one that was read."""
    return " AND ".join([*(f"{name} = ?" for name in kind.key), *(f"{column.name} IS ?" for column in kind.others)])


@cache
def _read(kind: Kind[Any], by: str | None) -> str:
    key = " AND ".join(f"{name} = ?" for name in kind.order(by))
    return f"SELECT {_names(kind.columns)} FROM {kind.table} WHERE {key}"


@cache
def _insert(kind: Kind[Any]) -> str:
    values = ", ".join("?" * len(kind.columns))
    names = _names(kind.columns)
    return f"INSERT INTO {kind.table} ({names}) VALUES ({values}) ON CONFLICT DO NOTHING RETURNING 1"


@cache
def _update(kind: Kind[Any]) -> str:
    changes = ", ".join(f"{column.name} = ?" for column in kind.others)
    return f"UPDATE {kind.table} SET {changes} WHERE {_same(kind)} RETURNING 1"


@cache
def _delete(kind: Kind[Any]) -> str:
    return f"DELETE FROM {kind.table} WHERE {_same(kind)} RETURNING 1"


@cache
def _remove(kind: Kind[Any], by: str) -> str:
    name, keys = kind.first(by), ", ".join(kind.key)
    return (
        f"DELETE FROM {kind.table} WHERE ({keys}) IN"
        f" (SELECT {keys} FROM {kind.table} WHERE {name} < ? ORDER BY {name} LIMIT ?) RETURNING 1"
    )
