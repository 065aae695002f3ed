"""Records in PostgreSQL: one statement per verb, made from the declaration of the kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any

from rowlock.clock import Clock
from rowlock.storage.kinds import Kind, R, Seen


class Recording(ABC):
    """The verbs on records."""

    clock: Clock

    @abstractmethod
    async def _rows(self, statement: str, *args: Any) -> list[Any]:
        """Runs one statement and returns its rows."""

    async def read(self, kind: Kind[R], *key: Any, by: str | None = None) -> Seen[R]:
        now, *values = (await self._rows(_read(kind, by), *key, self.clock.now()))[0]
        return Seen(None if values[0] is None else _record(kind, values), now)

    async def insert(self, kind: Kind[R], record: R) -> bool:
        return bool(await self._rows(_insert(kind), *_values(record, kind.columns)))

    async def update(self, kind: Kind[R], read: R, changed: R) -> bool:
        args = (*kind.key_of(read), *_values(read, kind.others), *_values(changed, kind.others))
        return bool(await self._rows(_update(kind), *args))

    async def delete(self, kind: Kind[R], read: R) -> bool:
        return bool(await self._rows(_delete(kind), *kind.key_of(read), *_values(read, kind.others)))

    async def scan(
        self,
        kind: Kind[R],
        by: str | None = None,
        *,
        equal: dict[str, Any] | None = None,
        before: Any = None,
        limit: int | None = None,
    ) -> list[R]:
        given = {name: value for name, value in (equal or {}).items() if value is not None}
        where = [f"{name} = ${number}" for number, name in enumerate(given, 1)]
        where += [f"{name} IS NULL" for name, value in (equal or {}).items() if value is None]
        args = [*given.values(), limit]
        statement = f"SELECT {_columns(kind)} FROM rowlock.{kind.table}"
        if before is not None:
            where.append(f"{kind.first(by, equal or {})} < ${len(args) + 1}")
            args.append(before)
        if where:
            statement += f" WHERE {' AND '.join(where)}"
        order = ", ".join(f"{one[1:]} DESC" if one.startswith("-") else one for one in kind.order(by, equal or {}))
        rows = await self._rows(f"{statement} ORDER BY {order} LIMIT ${len(given) + 1}", *args)
        return [_record(kind, row) for row in rows]

    async def remove(self, kind: Kind[R], by: str, before: Any, limit: int) -> int:
        return int((await self._rows(_remove(kind, by), before, limit))[0][0])


def _values(record: Any, columns: Any) -> list[Any]:
    return [getattr(record, column.name) for column in columns]


def _record(kind: Kind[R], values: Any) -> R:
    return kind.record(*(column.value(value) for column, value in zip(kind.columns, values, strict=True)))


def _columns(kind: Kind[Any]) -> str:
    return ", ".join(f"{column.name}::text" if column.uuid else column.name for column in kind.columns)


def _same(kind: Kind[Any]) -> str:
    """Returns the condition that the record is the one that was read, which the first arguments are."""
    key = [f"{name} = ${number}" for number, name in enumerate(kind.key, 1)]
    others = enumerate(kind.others, len(key) + 1)
    return " AND ".join([*key, *(f"{column.name} IS NOT DISTINCT FROM ${number}" for number, column in others)])


@cache
def _read(kind: Kind[Any], by: str | None) -> str:
    names = kind.order(by)
    key = " AND ".join(f"{name} = ${number}" for number, name in enumerate(names, 1))
    clock = f"coalesce(${len(names) + 1}::timestamptz, clock_timestamp())"
    return f"SELECT {clock}, {_columns(kind)} FROM (VALUES (0)) once LEFT JOIN rowlock.{kind.table} ON {key}"


@cache
def _insert(kind: Kind[Any]) -> str:
    names = ", ".join(column.name for column in kind.columns)
    values = ", ".join(f"${number}" for number in range(1, len(kind.columns) + 1))
    return f"INSERT INTO rowlock.{kind.table} ({names}) VALUES ({values}) ON CONFLICT DO NOTHING RETURNING 1"


@cache
def _update(kind: Kind[Any]) -> str:
    changes = ", ".join(
        f"{column.name} = ${number}" for number, column in enumerate(kind.others, len(kind.columns) + 1)
    )
    return f"UPDATE rowlock.{kind.table} SET {changes} WHERE {_same(kind)} RETURNING 1"


@cache
def _delete(kind: Kind[Any]) -> str:
    return f"DELETE FROM rowlock.{kind.table} WHERE {_same(kind)} RETURNING 1"


@cache
def _remove(kind: Kind[Any], by: str) -> str:
    name, keys = kind.first(by), ", ".join(kind.key)
    same = " AND ".join(f"r.{one} = d.{one}" for one in kind.key)
    return (
        f"WITH doomed AS MATERIALIZED (SELECT {keys} FROM rowlock.{kind.table} WHERE {name} < $1"
        f" ORDER BY {name} LIMIT $2 FOR UPDATE SKIP LOCKED),"
        f" removed AS (DELETE FROM rowlock.{kind.table} r USING doomed d WHERE {same} RETURNING 1)"
        " SELECT count(*) FROM removed"
    )
