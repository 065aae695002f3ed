"""Load: rows that reference other rows of the same load are loaded, in any order in the file."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from conformance.loads import FIRST_ROW, codes, counts, dry_run, frame, held, new_name, put
from conformance.tables import run
from rowlock.storage.contract import Store
from rowlock.storage.tables import Column, Kind, Load, Loaded, Mode

pytestmark = pytest.mark.relational  # MongoDB has no foreign keys

COLUMNS = [Column("id", Kind.INTEGER), Column("parent", Kind.INTEGER, True), Column("n", Kind.INTEGER)]
RULES = pytest.mark.parametrize("rule", ["", "DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"])
ORDERS = pytest.mark.parametrize("order", ["down", "up", "random"])


@pytest.fixture
async def tables(store: Store) -> AsyncIterator[Any]:
    made: list[str] = []

    async def make(rule: str = "", more: str = "") -> Load:
        table = new_name("tree")
        made.append(table)
        await run(
            store,
            f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES {table} (id) {rule},"
            f" n INTEGER NOT NULL CHECK (n > 0){more})",
        )
        return Load(table, COLUMNS, ["id"], Mode.UPSERT)

    yield make
    for table in made:
        await run(store, f"DROP TABLE {table}")


def chain(count: int, order: str) -> list[tuple[int, int | None, int]]:
    """Return rows by id; the parent of each is the previous row of the chain."""
    ids = list(range(1, count + 1))
    if order == "down":  # each row references the next one, so in key order every parent comes too late
        ids.reverse()
    elif order == "random":
        random.Random(count).shuffle(ids)
    parents = dict(zip(ids, [None, *ids], strict=False))
    return [(number, parents[number], 1) for number in range(1, count + 1)]


async def merge(store: Store, load: Load, *given: Any) -> Loaded:
    staged, columns = new_name("staged"), [*load.columns, Column("row", Kind.INTEGER)]
    async with store.transaction() as transaction:
        await transaction.create_table(staged, columns, [])
        await transaction.load(Load(staged, columns, [], Mode.INSERT), frame(load.columns, given))
        return await transaction.merge(load, staged)


@RULES
@ORDERS
async def test_a_bad_row_harms_no_row_of_a_chain(store: Store, tables: Any, rule: str, order: str) -> None:
    load = await tables(rule)
    loaded = await put(store, load, *chain(300, order), (301, None, 0))
    assert counts(loaded) == (300, 0, 0, 1)
    assert codes(loaded) == [(FIRST_ROW + 300, "check")]
    assert len(await held(store, load)) == 300


@pytest.mark.parametrize("way", [{}, {"direct": True}, {"mode": Mode.INSERT}, {"mode": Mode.REPLACE}])
async def test_a_row_that_refers_to_nothing_takes_with_it_those_that_refer_to_it(
    store: Store, tables: Any, way: dict[str, Any]
) -> None:
    load = await tables()
    bad = (5, 999, 1), (3, 5, 1), (4, 3, 1)
    loaded = await put(store, replace(load, **way), (1, 2, 1), (2, None, 1), *bad, (6, 6, 1), (7, 1, 1))
    assert counts(loaded) == (4, 0, 0, 3)
    assert {refused.code for refused in loaded.refused} == {"foreign_key"}
    assert [row[0] for row in await held(store, load)] == [1, 2, 6, 7]


@RULES
async def test_rows_that_refer_to_each_other_in_a_circle_go_in_together(store: Store, tables: Any, rule: str) -> None:
    load = await tables(rule)
    ring = [(n, n % 100 + 1, 1) for n in range(1, 101)]
    bad_ring = [(201, 202, 1), (202, 203, 0), (203, 201, 1)]
    loaded = await put(store, load, *ring, *bad_ring, (300, 100, 1), (301, 203, 1))
    assert counts(loaded) == (101, 0, 0, 4)
    assert dict(codes(loaded))[FIRST_ROW + 101] == "check"
    assert [row[0] for row in await held(store, load)] == [*range(1, 101), 300]


async def test_a_row_that_is_there_may_be_given_a_parent_that_is_new(store: Store, tables: Any) -> None:
    load = await tables()
    await put(store, load, (1, None, 1), (2, None, 1), (9, None, 1))
    loaded = await put(store, load, (1, 5, 1), (2, 6, 1), (5, 6, 1), (6, None, 1), (7, None, 0), (9, None, 1))
    assert counts(loaded) == (2, 2, 1, 1)
    assert [row[:2] for row in await held(store, load)] == [(1, 5), (2, 6), (5, 6), (6, None), (9, None)]


@pytest.mark.parametrize("way", [dry_run, merge])
async def test_a_dry_run_and_a_merge_name_only_the_rows_to_blame(store: Store, tables: Any, way: Any) -> None:
    load = await tables("DEFERRABLE")
    loaded = await way(store, load, *chain(200, "down"), (300, 299, 1), (301, None, 0))
    assert codes(loaded) == [(FIRST_ROW + 200, "foreign_key"), (FIRST_ROW + 201, "check")]
    assert loaded.inserted == (0 if way is merge else 200)
    assert await held(store, load) == []


async def test_rows_that_another_load_tries_again_need_not_be_tried(store: Store, tables: Any) -> None:
    load = replace(await tables(), later=True)
    loaded = await put(store, load, *chain(100, "random"), (200, 300, 1), (201, 200, 1), (202, None, 0))
    assert counts(loaded) == (100, 0, 0, 3)
    assert codes(loaded)[:2] == [(FIRST_ROW + 100, "foreign_key"), (FIRST_ROW + 101, "foreign_key")]


async def test_a_key_of_several_columns_may_refer_to_the_same_table(store: Store) -> None:
    table = new_name("tree")
    await run(
        store,
        f"CREATE TABLE {table} (a INTEGER, b INTEGER, pa INTEGER, pb INTEGER, PRIMARY KEY (a, b),"
        f" FOREIGN KEY (pa, pb) REFERENCES {table} (a, b))",
    )
    columns = [Column(name, Kind.INTEGER, name.startswith("p")) for name in ("a", "b", "pa", "pb")]
    load = Load(table, columns, ["a", "b"], Mode.UPSERT)
    rows = [(1, 1, 2, 2), (2, 2, 3, 3), (3, 3, None, 7), (4, 4, 1, 2)]
    loaded = await put(store, load, *rows)
    assert counts(loaded) == (3, 0, 0, 1)
    assert codes(loaded) == [(FIRST_ROW + 3, "foreign_key")]


async def test_a_long_chain_costs_a_try_for_each_row_and_no_more(store: Store, tables: Any) -> None:
    load = await tables()
    statements = 0

    def count(*_: Any) -> bool:
        nonlocal statements
        statements += 1
        return True

    rows = frame(load.columns, [*chain(2_000, "random"), (3_000, None, 0)])
    async with store.transaction() as transaction:
        connection = transaction.connection
        if "postgres" in store.url:
            with connection.query_logger(count):
                loaded = await transaction.load(load, rows)
        else:
            connection.set_exec_trace(count)
            loaded = await transaction.load(load, rows)
            connection.set_exec_trace(None)
    assert counts(loaded) == (2_000, 0, 0, 1)
    assert statements < 6 * 2_000


async def test_a_table_tells_whether_its_rows_refer_to_each_other(store: Store, tables: Any) -> None:
    load = await tables()
    table = new_name()
    await run(store, f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, other INTEGER REFERENCES {load.table})")
    async with store.transaction() as transaction:
        own, others = await transaction.table(load.table), await transaction.table(table)
    assert own is not None
    assert others is not None
    assert own.refers_to_itself
    assert not others.refers_to_itself
    await run(store, f"DROP TABLE {table}")
