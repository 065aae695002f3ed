"""Load: schema, creation and names of tables; merges and dry runs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import date
from typing import Any

import orjson
import polars as pl
import pytest

from conformance.loads import FIRST_ROW, INSERT, PEOPLE, UPSERT, codes, counts, create, frame, held, new_name, put
from conformance.loads import dry_run as rehearsed
from conformance.tables import INTEGER, TEXT, collection, index, or_null, run, unique
from rowlock.errors import ImportFault, StoreError
from rowlock.storage.contract import Store
from rowlock.storage.tables import Change, Column, FoundTable, Kind, Load, Mode

ANN, BEN, CAT = (1, "Ann", "Oslo"), (2, "Ben", "Rome"), (3, "Cat", "Lima")
HOSTILE = [
    "with space",
    "MixedCase",
    "select",
    'quo"te',
    "semi; DROP TABLE people; --",
    "it's",
    "täble",
    "a,b",
    "per%cent",
    "$1",
    "{x}",
    "back\\slash",
    "new\nline",
    "^[nc]+$",
    "*",
]


async def table_schema(store: Store, name: str) -> FoundTable | None:
    async with store.transaction() as transaction:
        return await transaction.table(name)


@pytest.fixture(autouse=True)
async def people(store: Store) -> None:
    await create(store, UPSERT)


# -- schema ----------------------------------------------------------------------------------------


async def test_a_table_that_is_not_there_has_no_shape(store: Store) -> None:
    assert await table_schema(store, "nowhere") is None
    assert await table_schema(store, "no.where") is None


@pytest.mark.relational  # MongoDB has no declared columns
async def test_a_table_tells_its_columns_keys_and_whether_it_is_empty(store: Store) -> None:
    table = new_name()
    await run(
        store,
        f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, name VARCHAR(20) NOT NULL, price NUMERIC(12, 2) DEFAULT 0,"
        " day DATE, at TIMESTAMP, clock TIME, ok BOOLEAN, ratio REAL,"
        " twice INTEGER GENERATED ALWAYS AS (id * 2) STORED, UNIQUE (name, day))",
    )
    found = await table_schema(store, table)
    assert found is not None
    assert found.empty
    columns = {column.name: column for column in found.columns}
    assert {name: column.kind for name, column in columns.items()} == {
        "id": Kind.INTEGER,
        "name": Kind.TEXT,
        "price": Kind.DECIMAL,
        "day": Kind.DATE,
        "at": Kind.DATETIME,
        "clock": Kind.TIME,
        "ok": Kind.BOOLEAN,
        "ratio": Kind.FLOAT,
        "twice": None,
    }
    assert not columns["name"].nullable
    assert columns["price"].nullable
    assert [name for name, column in columns.items() if column.has_default and name != "id"] == ["price", "twice"]
    assert set(found.keys) == {frozenset({"id"}), frozenset({"name", "day"})}
    await run(store, f"INSERT INTO {table} (id, name) VALUES (1, 'x')")
    found = await table_schema(store, table)
    assert found is not None
    assert not found.empty


async def test_only_unique_indexes_that_hold_for_all_rows_are_keys(store: Store) -> None:
    table = new_name()
    fields = {"a": or_null(INTEGER), "b": or_null(INTEGER), "c": or_null(TEXT)}
    await run(store, f"CREATE TABLE {table} (a INTEGER, b INTEGER, c TEXT)", *collection(table, fields))
    some = unique(table, "a", partialFilterExpression={"b": {"$gt": 0}})
    await run(store, f"CREATE UNIQUE INDEX {table}_some ON {table} (a) WHERE b > 0", some)
    made = unique(table, "c", collation={"locale": "en", "strength": 2})
    await run(store, f"CREATE UNIQUE INDEX {table}_made ON {table} (lower(c))", made)
    await run(store, f"CREATE INDEX {table}_many ON {table} (b)", index(table, "b"))
    found = await table_schema(store, table)
    assert found is not None
    assert list(found.keys) == []


async def test_a_view_is_no_table(store: Store) -> None:
    view = new_name("view")
    await run(store, f"CREATE VIEW {view} AS SELECT 1 AS a", {"create": view, "viewOn": "people", "pipeline": []})
    with pytest.raises(ImportFault, match=f"{view} is a view"):
        await table_schema(store, view)


# -- creating --------------------------------------------------------------------------------------


async def test_a_created_table_takes_what_it_was_created_for(store: Store) -> None:
    columns = [Column(kind.value, kind, nullable=kind is not Kind.TEXT) for kind in Kind]
    load = Load(new_name(), columns, ["text"], Mode.UPSERT)
    await create(store, load)
    row = [None] * len(columns)
    row[0] = "k"
    assert counts(await put(store, load, row)) == (1, 0, 0, 0)
    found = await table_schema(store, load.table)
    assert found is not None
    assert list(found.keys) == [frozenset({"text"})]
    assert [column.nullable for column in found.columns] == [column.nullable for column in columns]


async def test_creating_a_table_that_is_there_changes_nothing(store: Store) -> None:
    await put(store, UPSERT, ANN)
    async with store.transaction() as transaction:
        await transaction.create_table("people", [Column("other", Kind.TEXT)], [])
    assert await held(store, UPSERT) == [ANN]


async def test_two_may_create_the_same_table_at_once(store: Store, other: Store) -> None:
    name = new_name()

    async def make(store: Store) -> None:
        async with store.transaction() as transaction:
            await transaction.create_table(name, PEOPLE, ["id"])

    await asyncio.gather(*(make(each) for each in (store, other, store, other)))
    assert await table_schema(store, name) is not None


async def test_a_table_in_a_schema_that_is_not_there_is_told(store: Store) -> None:
    if "postgres" in store.url:  # on the others the dot is part of the name
        with pytest.raises(StoreError, match="nowhere"):
            await create(store, replace(UPSERT, table="nowhere.people"))
    else:
        await create(store, replace(UPSERT, table="nowhere.people"))
        assert await table_schema(store, "nowhere.people") is not None


async def test_a_table_is_dropped_if_it_is_there(store: Store) -> None:
    async with store.transaction() as transaction:
        await transaction.drop_table("people")
        await transaction.drop_table("people")
        assert await transaction.table("people") is None


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_name_is_a_name_whatever_it_consists_of(store: Store, name: str) -> None:
    columns = [Column(name, Kind.TEXT), Column(f"{name} 2", Kind.TEXT, nullable=True), Column("n", Kind.INTEGER)]
    load = Load(name, columns, [name], Mode.UPSERT, sample=5)
    await create(store, load)
    for direct in (False, True):
        await put(store, replace(load, direct=direct), ("a", "b", 1))
    assert counts(await put(store, load, ("a", None, 1), ("c", "d", 2))) == (1, 1, 0, 0)
    assert (await rehearsed(store, load, ("a", "z", 1))).changed == {f"{name} 2": 1, "n": 0}
    async with store.transaction() as transaction:
        await transaction.create_table(f"{name} 3", [*columns, Column("row", Kind.INTEGER)], [])
        await transaction.load(_staging(load, f"{name} 3"), frame(columns, [("e", "f", 3)]))
        assert counts(await transaction.merge(load, f"{name} 3")) == (1, 0, 0, 0)
        assert await transaction.wipe(name, {name: "a", "n": 1}) == 1
        await transaction.drop_table(f"{name} 3")
    assert await held(store, load) == [("c", "d", 2), ("e", "f", 3)]
    assert await table_schema(store, "people") is not None
    async with store.transaction() as transaction:
        await transaction.drop_table(name)


async def named(store: Store) -> str:
    """Create a table whose rows must have a name."""
    table = new_name()
    made = collection(table, {"id": INTEGER, "name": TEXT, "city": or_null(TEXT)}, key=["id"])
    await run(store, f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT)", *made)
    return table


# -- merging ---------------------------------------------------------------------------------------


def _staging(load: Load, name: str) -> Load:
    """Return the load of a chunk into a staging table: all columns and the row number, no key."""
    return Load(name, [*load.columns, Column("row", Kind.INTEGER)], [], Mode.INSERT)


async def staged(store: Store, load: Load, *rows: Any) -> str:
    name = new_name("stage")
    async with store.transaction() as transaction:
        await transaction.create_table(name, [*load.columns, Column("row", Kind.INTEGER)], [])
        await transaction.load(_staging(load, name), frame(load.columns, rows))
    return name


async def test_a_merge_counts_as_a_load_does(store: Store) -> None:
    await put(store, UPSERT, ANN, BEN)
    name = await staged(store, UPSERT, ANN, (2, "Ben", "Bonn"), CAT)
    async with store.transaction() as transaction:
        assert counts(await transaction.merge(UPSERT, name)) == (1, 1, 1, 0)
        assert counts(await transaction.merge(UPSERT, name)) == (0, 0, 3, 0)
    assert await held(store, UPSERT) == [ANN, (2, "Ben", "Bonn"), CAT]


async def test_of_a_merge_all_is_kept_or_nothing(store: Store) -> None:
    table = await named(store)
    load = replace(UPSERT, table=table)
    await put(store, load, ANN)
    name = await staged(store, load, (1, "Eve", "x"), BEN, (3, None, "Lima"))
    async with store.transaction() as transaction:
        merged = await transaction.merge(load, name)
        assert counts(merged) == (0, 0, 0, 1)
        assert [(refused.row, refused.code) for refused in merged.refused] == [(4, "not_null")]
        assert await transaction.table(table) is not None  # the transaction still works
    assert await held(store, load) == [ANN]


async def test_a_merge_of_new_rows_keeps_none_where_a_key_exists(store: Store) -> None:
    await put(store, UPSERT, ANN)
    name = await staged(store, UPSERT, ANN, BEN)
    async with store.transaction() as transaction:
        merged = await transaction.merge(INSERT, name)
        assert [refused.code for refused in merged.refused] == ["key_exists"]
    assert await held(store, UPSERT) == [ANN]


# -- dry runs --------------------------------------------------------------------------------------


async def test_a_dry_run_tells_what_would_happen_and_leaves_nothing(store: Store) -> None:
    await put(store, UPSERT, ANN, BEN)
    load = replace(UPSERT, sample=10)
    loaded = await rehearsed(store, load, CAT, (2, "Ben", "Bonn"), ANN)
    assert counts(loaded) == (1, 1, 1, 0)
    assert loaded.changed == {"name": 0, "city": 1}
    assert list(loaded.sample) == [
        Change(FIRST_ROW + 1, {"id": 2, "name": "Ben", "city": "Rome"}, {"id": 2, "name": "Ben", "city": "Bonn"}),
        Change(FIRST_ROW, None, {"id": 3, "name": "Cat", "city": "Lima"}),
    ]
    assert await held(store, UPSERT) == [ANN, BEN]


async def test_a_dry_run_sees_refusals_and_leaves_those_rows_out(store: Store) -> None:
    table = await named(store)
    load = replace(UPSERT, table=table, sample=10)
    await put(store, load, ANN, BEN)
    loaded = await rehearsed(store, load, (1, None, "x"), (2, "Bob", "Rome"), (3, None, None), (4, "Dan", None))
    assert counts(loaded) == (1, 1, 0, 2)
    assert codes(loaded) == [(FIRST_ROW, "not_null"), (FIRST_ROW + 2, "not_null")]
    assert loaded.changed == {"name": 1, "city": 0}
    assert [change.row for change in loaded.sample] == [FIRST_ROW + 1, FIRST_ROW + 3]
    assert await held(store, load) == [ANN, BEN]


async def test_a_dry_run_of_new_rows_sees_keys_that_exist(store: Store) -> None:
    await put(store, UPSERT, ANN)
    loaded = await rehearsed(store, replace(INSERT, sample=10), ANN, BEN)
    assert codes(loaded) == [(FIRST_ROW, "key_exists")]
    assert [change.after["id"] for change in loaded.sample] == [2]
    assert await held(store, UPSERT) == [ANN]


async def test_a_sample_has_so_many_rows_and_values_that_json_can_say(store: Store) -> None:
    columns = [Column("id", Kind.INTEGER), Column("d", Kind.DATE), Column("m", Kind.DECIMAL), Column("j", Kind.JSON)]
    load = Load(new_name(), columns, ["id"], Mode.UPSERT, sample=2)
    await create(store, load)
    await put(store, load, (1, date(2026, 1, 1), "1.10", '{"a": 1}'))
    loaded = await rehearsed(store, load, *((n, date(2026, 1, 2), "1.20", "[]") for n in range(1, 5)))
    assert counts(loaded) == (3, 1, 0, 0)
    assert len(loaded.sample) == 2
    first = orjson.loads(orjson.dumps(loaded.sample[0]))
    assert (first["before"]["d"], first["before"]["m"]) == ("2026-01-01", "1.10")
    assert (first["after"]["d"], first["after"]["m"]) == ("2026-01-02", "1.20")


async def test_a_transaction_goes_on_after_a_dry_run(store: Store) -> None:
    async with store.transaction() as transaction:
        await transaction.load(UPSERT, frame(PEOPLE, [ANN]))
        await transaction.dry_run(replace(UPSERT, sample=1), frame(PEOPLE, [ANN, BEN]))
        await transaction.load(UPSERT, frame(PEOPLE, [CAT]))
    assert await held(store, UPSERT) == [ANN, CAT]


# -- at the same time ------------------------------------------------------------------------------


async def test_loads_of_the_same_keys_at_once_end_right(store: Store, other: Store) -> None:
    """Two loads of each key: the first inserts it, the other finds it."""
    total, parts = 2_000, 4
    rows = pl.Series(range(total))

    async def load(store: Store, seed: int) -> list[tuple[int, ...]]:
        done = []
        for part in range(parts):
            ids = rows.filter(rows % parts == part).sample(fraction=1, shuffle=True, seed=seed)
            async with store.transaction() as transaction:
                chunk = frame(PEOPLE, [(n, f"by {seed}", "x") for n in ids])
                done.append(counts(await transaction.load(UPSERT, chunk)))
        return done

    one, two = await asyncio.gather(load(store, 1), load(other, 2))
    inserted, updated, unchanged, refused = (sum(column) for column in zip(*one, *two, strict=True))
    assert (inserted, updated, unchanged, refused) == (total, total, 0, 0)
    table = await held(store, UPSERT)
    assert [row[0] for row in table] == list(range(total))
    for part in range(parts):
        assert len({row[1] for row in table if row[0] % parts == part}) == 1  # all rows are from one load
