"""Load: rows that the database refuses do not affect the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from conformance.loads import FIRST_ROW, codes, counts, held, new_name, put
from conformance.tables import INTEGER, TEXT, collection, or_null, run, unique_text
from rowlock.storage.contract import Store
from rowlock.storage.tables import Column, Kind, Load, Mode

COLUMNS = [Column("id", Kind.INTEGER), Column("age", Kind.INTEGER, nullable=True), Column("mail", Kind.TEXT, True)]


@pytest.fixture
async def load(store: Store) -> Load:
    table = new_name()
    fields = {"id": INTEGER, "age": {**INTEGER, "minimum": 18, "description": "grown"}, "mail": or_null(TEXT)}
    await run(
        store,
        f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, age INTEGER NOT NULL CONSTRAINT grown CHECK (age >= 18),"
        " mail TEXT UNIQUE)",
        *collection(table, fields, key=["id"]),
        unique_text(table, "mail"),
    )
    return Load(table, COLUMNS, ["id"], Mode.UPSERT)


MODES: list[dict[str, Any]] = [{}, {"direct": True}, {"mode": Mode.INSERT}, {"mode": Mode.REPLACE}]


@pytest.mark.parametrize("way", MODES)
async def test_each_refused_row_is_named_with_its_reason_and_the_others_are_loaded(
    store: Store, load: Load, way: dict[str, Any]
) -> None:
    await put(store, load, (100, 30, "taken"))
    rows = [(1, 20, "a"), (2, None, "b"), (3, 17, "c"), (4, 40, "taken"), (5, 50, None)]
    loaded = await put(store, replace(load, **way), *rows)
    assert counts(loaded) == (2, 0, 0, 3)
    assert codes(loaded) == [(FIRST_ROW + 1, "not_null"), (FIRST_ROW + 2, "check"), (FIRST_ROW + 3, "unique")]
    missing, young, taken = loaded.refused
    assert missing.column == "age"
    assert "age" in missing.reason
    assert "grown" in young.reason
    assert "mail" in taken.reason
    assert [row[0] for row in await held(store, load)] == [1, 5, 100]


async def test_an_update_may_be_refused_too(store: Store, load: Load) -> None:
    await put(store, load, *((n, 20, f"m{n}") for n in range(10)))
    loaded = await put(store, load, (0, 21, "m0"), (1, 3, "m1"), (2, 20, "m9"), (3, 20, "m3"), (50, 50, "new"))
    assert counts(loaded) == (1, 1, 1, 2)
    assert codes(loaded) == [(FIRST_ROW + 1, "check"), (FIRST_ROW + 2, "unique")]
    assert (await held(store, load))[:3] == [(0, 21, "m0"), (1, 20, "m1"), (2, 20, "m2")]


@pytest.mark.parametrize("bad", [{0}, {99}, {0, 99}, {17, 18, 19, 80}, set(range(0, 100, 7)), set(range(100))])
async def test_wherever_the_bad_rows_are_exactly_they_are_refused(store: Store, load: Load, bad: set[int]) -> None:
    rows = [(n, 1 if n in bad else 20, None) for n in range(100)]
    loaded = await put(store, load, *rows)
    assert counts(loaded) == (100 - len(bad), 0, 0, len(bad))
    assert {refused.row - FIRST_ROW for refused in loaded.refused} == bad
    assert len(await held(store, load)) == 100 - len(bad)


async def test_row_numbers_are_those_of_the_file_whatever_the_order_of_keys(store: Store, load: Load) -> None:
    loaded = await put(store, load, (9, 20, None), (8, 1, None), (7, 20, None), (1, None, None))
    assert codes(loaded) == [(FIRST_ROW + 1, "check"), (FIRST_ROW + 3, "not_null")]


async def test_two_rows_of_one_load_may_contradict_each_other(store: Store, load: Load) -> None:
    loaded = await put(store, load, (1, 20, "same"), (2, 20, "same"), (3, 20, "other"))
    assert counts(loaded) == (2, 0, 0, 1)
    assert loaded.refused[0].code == "unique"


@pytest.mark.timeout(120)
async def test_however_many_rows_are_refused_the_others_are_loaded(store: Store, load: Load) -> None:
    rows = [(n, 20 if n % 1_000 == 0 else 1, None) for n in range(12_000)]
    loaded = await put(store, load, *rows)
    assert counts(loaded) == (12, 0, 0, 11_988)
    assert {refused.code for refused in loaded.refused} == {"check"}
    assert [row[0] for row in await held(store, load)] == list(range(0, 12_000, 1_000))


@pytest.mark.relational  # MongoDB has no triggers
async def test_what_a_trigger_raises_is_the_reason(store: Store, load: Load) -> None:
    if "postgres" in store.url:
        await run(
            store,
            "CREATE OR REPLACE FUNCTION no_moon() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF NEW.mail = 'moon' THEN RAISE 'nobody lives there'; END IF; RETURN NEW; END $$",
        )
        await run(
            store, f"CREATE TRIGGER no_moon BEFORE INSERT ON {load.table} FOR EACH ROW EXECUTE FUNCTION no_moon()"
        )
    else:
        await run(
            store,
            f"CREATE TRIGGER no_moon BEFORE INSERT ON {load.table} WHEN NEW.mail = 'moon'"
            " BEGIN SELECT RAISE(ABORT, 'nobody lives there'); END",
        )
    loaded = await put(store, load, (1, 20, "earth"), (2, 20, "moon"), (3, 20, "mars"))
    assert counts(loaded) == (2, 0, 0, 1)
    assert loaded.refused[0].code == "refused"
    assert "nobody lives there" in loaded.refused[0].reason


async def test_values_are_not_repeated_in_reasons(store: Store, load: Load) -> None:
    await put(store, load, (1, 20, "hunter2"))
    loaded = await put(store, load, (2, 20, "hunter2"), (3, 13, "hunter3"), (4, None, "hunter4"))
    assert not any("hunter" in refused.reason for refused in loaded.refused)


@pytest.fixture
async def pets(store: Store, load: Load) -> AsyncIterator[Load]:
    """Create a table whose rows reference rows of another table and each other."""
    await put(store, load, (1, 20, None))
    table = new_name("pets")
    await run(
        store,
        f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, owner INTEGER REFERENCES {load.table},"
        f" mother INTEGER REFERENCES {table})",
    )
    columns = [Column(name, Kind.INTEGER, nullable=name != "id") for name in ("id", "owner", "mother")]
    yield Load(table, columns, ["id"], Mode.UPSERT)
    await run(store, f"DROP TABLE {table}")


@pytest.mark.relational  # MongoDB has no foreign keys
@pytest.mark.parametrize("way", MODES)
async def test_a_row_that_refers_to_nothing_is_refused(store: Store, pets: Load, way: dict[str, Any]) -> None:
    loaded = await put(store, replace(pets, **way), (1, 1, None), (2, 99, None), (3, None, 1))
    assert counts(loaded) == (2, 0, 0, 1)
    assert codes(loaded) == [(FIRST_ROW + 1, "foreign_key")]
    assert [row[0] for row in await held(store, pets)] == [1, 3]


@pytest.mark.relational
@pytest.mark.parametrize("way", MODES)
async def test_rows_of_one_load_may_refer_to_each_other_in_any_order(
    store: Store, pets: Load, way: dict[str, Any]
) -> None:
    assert counts(await put(store, replace(pets, **way), (1, 1, 3), (2, 1, 1), (3, 1, None))) == (3, 0, 0, 0)


@pytest.mark.relational
@pytest.mark.parametrize("way", MODES)
async def test_a_row_that_refers_to_nothing_is_refused_even_where_the_rule_waits_for_the_commit(
    store: Store, load: Load, way: dict[str, Any]
) -> None:
    await put(store, load, (1, 20, None))
    table = new_name("late")
    rule = f"REFERENCES {load.table} DEFERRABLE INITIALLY DEFERRED"
    await run(store, f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, owner INTEGER {rule})")
    late = Load(table, [Column("id", Kind.INTEGER), Column("owner", Kind.INTEGER)], ["id"], Mode.UPSERT)
    try:
        loaded = await put(store, replace(late, **way), (1, 1), (2, 99), (3, 1))
        assert counts(loaded) == (2, 0, 0, 1)
        assert codes(loaded) == [(FIRST_ROW + 1, "foreign_key")]
        assert [row[0] for row in await held(store, late)] == [1, 3]
    finally:
        await run(store, f"DROP TABLE {table}")


async def test_a_thousand_refused_rows_are_told_apart(store: Store, load: Load) -> None:
    rows = [(n, 1 if n % 3 == 0 else 20, None) for n in range(3_600)]
    loaded = await put(store, load, *rows)
    assert counts(loaded) == (2_400, 0, 0, 1_200)
    assert [refused.row - FIRST_ROW for refused in loaded.refused] == list(range(0, 3_600, 3))
    assert len(await held(store, load)) == 2_400


async def test_updates_that_are_refused_are_told_apart_however_many(store: Store, load: Load) -> None:
    await put(store, load, *((n, 20, f"m{n}") for n in range(300)))
    rows = [(n, 1 if n % 7 == 0 else 30, f"m{n}") for n in range(299)] + [(299, 30, "m5"), (300, 30, "m6")]
    loaded = await put(store, load, *rows)
    assert counts(loaded) == (0, 256, 0, 45)
    assert {refused.row - FIRST_ROW for refused in loaded.refused} == {*range(0, 299, 7), 299, 300}
    assert codes(loaded)[-2:] == [(FIRST_ROW + 299, "unique"), (FIRST_ROW + 300, "unique")]


async def test_keys_that_exist_and_rows_that_are_refused_are_told_apart(store: Store, load: Load) -> None:
    await put(store, load, *((n, 20, None) for n in range(0, 200, 2)))
    rows = [(n, 1 if n % 5 == 0 else 20, None) for n in range(200)]
    loaded = await put(store, replace(load, mode=Mode.INSERT), *rows)
    expected = [(n + FIRST_ROW, "key_exists" if n % 2 == 0 else "check") for n in range(200) if not n % 2 or not n % 5]
    assert codes(loaded) == expected
    assert counts(loaded) == (80, 0, 0, 120)
