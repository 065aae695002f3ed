"""No column changes a value silently: a value that it cannot store is a row error, by one rule on every store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, time
from typing import Any

import pytest

from conformance.loads import FIRST_ROW, KEY, codes, frame, new_name
from conformance.tables import FLOAT, INTEGER, TEXT, Command, collection, rows, run
from rowlock.storage.contract import Store
from rowlock.storage.exact import kept_by_double
from rowlock.storage.mongo.loading.cells import CellRefused, keeper
from rowlock.storage.tables import Column, Kind, Load, Loaded, Mode

WAYS = ["direct", "staged", "rehearsed", "merged"]

HALF = datetime(2026, 1, 31, 23, 59, 59, 900_000, tzinfo=UTC)
WHOLE = HALF.replace(microsecond=0)

DOUBLES = ["0.1", "12.50", "-0.25", "9007199254740992", "0.1234567890123456", "1234567890123456.5"]
NO_DOUBLES = ["0.12345678901234567890", "9007199254740993", "123456789012345678.25"]


async def put(store: Store, load: Load, way: str, given: Sequence[Any]) -> Loaded:
    rows = frame(load.columns, list(enumerate(given, 1)))
    async with store.transaction() as transaction:
        if way == "rehearsed":
            return await transaction.dry_run(load, rows)
        if way != "merged":
            return await transaction.load(replace(load, direct=way == "direct"), rows)
    staged, columns = new_name("staged"), [*load.columns, Column("row", Kind.INTEGER)]
    async with store.transaction() as transaction:
        await transaction.create_table(staged, columns, [])
    async with store.transaction() as transaction:
        await transaction.load(Load(staged, columns, [], Mode.INSERT, direct=True), rows)
        return await transaction.merge(load, staged)


async def check(
    store: Store, kind: Kind, type: str, rule: Command, good: Sequence[Any], bad: Sequence[Any], way: str
) -> None:
    load = Load(new_name("exact"), [KEY, Column("v", kind, nullable=True)], ["id"], Mode.UPSERT)
    await run(
        store,
        f"CREATE TABLE {load.table} (id INTEGER PRIMARY KEY, v {type})",
        *collection(load.table, {"id": INTEGER, "v": rule}, key=["id"]),
    )
    loaded = await put(store, load, way, [*good, *bad])

    first = FIRST_ROW + len(good)
    assert codes(loaded) == [(row, "too_precise") for row in range(first, first + len(bad))]
    assert loaded.inserted == (0 if way == "merged" and bad else len(good))
    if way in ("direct", "staged"):
        again = await put(store, load, way, [*good, *bad])
        assert (again.inserted, again.updated, again.unchanged, len(again.refused)) == (0, 0, len(good), len(bad))


@pytest.mark.parametrize("way", WAYS)
async def test_a_floating_column_takes_the_decimals_that_it_gives_back(store: Store, way: str) -> None:
    await check(store, Kind.DECIMAL, "DOUBLE PRECISION", FLOAT, DOUBLES, NO_DOUBLES, way)


@pytest.mark.parametrize("way", WAYS)
async def test_a_floating_column_takes_the_whole_numbers_that_it_gives_back(store: Store, way: str) -> None:
    good, bad = [0, -5, 2**53, 2**53 + 2], [2**53 + 1, -(2**53) - 1, 2**63 - 1]
    await check(store, Kind.INTEGER, "DOUBLE PRECISION", FLOAT, good, bad, way)


_MORE = ["0.12345678901234567890", "12345678901234567.25", "9223372036854775809"]
_POINT = ["12345678901234567.00", "-49167716575513891.0", "9223372036854775807.00"]
_EVEN = ["12345678901234568.00", "9007199254740992.0", "4503599627370497.00"]  # exact as a double
_TEXTS = ["7", "-1.5", "abc", "", "12345678901234567", "1-2", "0"]
_NUMBERS = ["007", "7.0", "1e5", " 7", "+7", "-0", "9" * 19]
_MICRO = HALF.replace(microsecond=900_001)
OWN: dict[str, list[tuple[Kind, str, Command, Sequence[Any], Sequence[Any]]]] = {
    "sqlite": [
        (Kind.DECIMAL, "NUMERIC", {}, [*DOUBLES, "9223372036854775807", "-9007199254740993"], _MORE),
        (Kind.DECIMAL, "NUMERIC", {}, _EVEN, _POINT),
        (Kind.DECIMAL, "DECIMAL(10, 2)", {}, ["12.345"], _MORE),
        (Kind.INTEGER, "NUMERIC", {}, [2**63 - 1], []),
        (Kind.TEXT, "STRING", {}, _TEXTS, _NUMBERS),
        (Kind.TEXT, "ANY", {}, _TEXTS, _NUMBERS),
        (Kind.TEXT, "TEXT", {}, _NUMBERS, []),
    ],
    "postgresql": [
        (Kind.INTEGER, "NUMERIC(10, -2)", {}, [1200, 0], [1250, 1]),
        (Kind.DECIMAL, "NUMERIC(10, -2)", {}, ["1200", "0"], ["1250", "0.5"]),
        (Kind.DECIMAL, "REAL", {}, ["0.1", "1.5", "16777216"], ["0.123456789", "16777217"]),
        (Kind.INTEGER, "REAL", {}, [5, 2**24], [2**24 + 1]),
        (Kind.FLOAT, "REAL", {}, [0.1, 1.5, 1e30, 0.1 + 0.2, 59.970000000000006, 1 / 3, 16777217.0], []),
        (Kind.FLOAT, "DOUBLE PRECISION", {}, [0.1, 0.1 + 0.2, 5e-324], []),
        (Kind.DATETIME, "TIMESTAMPTZ(0)", {}, [WHOLE, None], [HALF]),
        (Kind.DATETIME, "TIMESTAMP(3)", {}, [HALF], [_MICRO]),
        (Kind.TIME, "TIME(0)", {}, [time(23, 59, 59)], [time(23, 59, 59, 900_000)]),
        (Kind.TIME, "TIME", {}, [time(23, 59, 59, 999_999)], []),
        (Kind.TEXT, "VARCHAR(3)", {}, ["abc", "a  ", "", None], ["abc ", "a   ", "    "]),
        (Kind.TEXT, "NAME", {}, ["n" * 63, None], ["n" * 64, "\u00e9" * 32]),
    ],
    "mongodb": [
        (Kind.FLOAT, "", {"bsonType": "double"}, [0.1, 0.1 + 0.2, 5e-324], []),
        (Kind.DATETIME, "", {"bsonType": "date"}, [HALF], [_MICRO]),
        (Kind.DECIMAL, "", {"bsonType": "decimal"}, _MORE, []),
    ],
}


@pytest.mark.parametrize("way", WAYS)
async def test_no_type_of_a_store_is_an_exception(store: Store, way: str) -> None:
    for kind, type, rule, good, bad in OWN[store.url.partition(":")[0]]:
        rule = {"bsonType": [rule["bsonType"] if rule else "string", "null"]}
        await check(store, kind, type, rule, good, bad, way)


async def test_text_columns_change_nothing(store: Store) -> None:
    load = Load(new_name("exact"), [KEY, Column("v", Kind.TEXT)], ["id"], Mode.UPSERT)
    await run(
        store,
        f"CREATE TABLE {load.table} (id INTEGER PRIMARY KEY, v TEXT)",
        *collection(load.table, {"id": INTEGER, "v": TEXT}, key=["id"]),
    )
    given = ["007", "1e5", " 7 ", "12345678901234567890"]
    assert (await put(store, load, "staged", given)).inserted == len(given)
    assert [value for _, value in await rows(store, load.table, "id", "v")] == given


def test_what_a_double_keeps() -> None:
    assert all(map(kept_by_double, DOUBLES))
    assert not any(map(kept_by_double, [*NO_DOUBLES, "1e400", "1e-400", 2**53 + 1]))


def test_a_decimal_of_mongodb_has_34_digits() -> None:
    keep = keeper(Kind.DECIMAL, frozenset({"decimal"}))
    assert str(keep("0." + "1" * 34)) == "0." + "1" * 34
    with pytest.raises(CellRefused, match="34 digits"):
        keep("0." + "1" * 35)
