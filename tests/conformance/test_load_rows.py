"""Load: each row of a frame is written and counted correctly."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any

import pytest

from conformance.loads import DIRECT, FIRST_ROW, INSERT, UPSERT, codes, counts, create, frame, held, new_name, put
from conformance.tables import DECIMAL, FLOAT, INTEGER, collection, or_null, run, unique
from rowlock.errors import ImportFault, StoreError
from rowlock.storage.contract import Store
from rowlock.storage.tables import Column, Kind, Load, Mode

ANN, BEN, CAT = (1, "Ann", "Oslo"), (2, "Ben", "Rome"), (3, "Cat", "Lima")

TEXTS = [
    *("", " padded ", "NULL", "null", "$1", "a,b", '"quoted"', "'; DROP TABLE people --", "x" * 100_000),
    *("\\N", "\\.", "a\n\\.\nb", "\\\\", "a\\tb", "tab\there", "line\nfeed", "\r\n", "\x01", "\u2028", "łąka 漢字 🙂"),
]


class Interrupted(Exception):
    """Any exception of a handler."""


@pytest.fixture(autouse=True)
async def people(store: Store) -> None:
    await create(store, UPSERT)


# -- where rows go ---------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [UPSERT, DIRECT, INSERT, replace(UPSERT, mode=Mode.REPLACE)])
async def test_new_rows_are_inserted(store: Store, load: Load) -> None:
    assert counts(await put(store, load, CAT, ANN, BEN)) == (3, 0, 0, 0)
    assert await held(store, load) == [ANN, BEN, CAT]


@pytest.mark.parametrize("load", [UPSERT, DIRECT])
async def test_the_same_rows_again_change_nothing(store: Store, load: Load) -> None:
    await put(store, load, ANN, BEN, CAT)
    assert counts(await put(store, load, CAT, BEN, ANN)) == (0, 0, 3, 0)


@pytest.mark.parametrize("load", [UPSERT, DIRECT])
async def test_every_mix_is_counted_exactly(store: Store, load: Load) -> None:
    await put(store, UPSERT, ANN, BEN)
    assert counts(await put(store, load, ANN, (2, "Ben", "Paris"), CAT, (4, None, ""))) == (2, 1, 1, 0)
    assert await held(store, load) == [ANN, (2, "Ben", "Paris"), CAT, (4, None, "")]


@pytest.mark.parametrize("existing", range(0, 41, 8))
@pytest.mark.parametrize("changed", [0, 1, 7])
async def test_counts_are_exact_for_any_number_of_each(store: Store, existing: int, changed: int) -> None:
    await put(store, UPSERT, *((n, "old", "x") for n in range(existing)))
    rows = [(n, "new" if n < changed else "old", "x") for n in range(40)]
    updated = min(changed, existing)
    assert counts(await put(store, UPSERT, *rows)) == (40 - existing, updated, existing - updated, 0)
    assert await held(store, UPSERT) == rows


@pytest.mark.parametrize(
    ("existing", "changed"), [(0, 0), (1, 1), (500, 0), (500, 20), (999, 999), (1_000, 0), (1_000, 1)]
)
async def test_counts_are_exact_for_many_rows(store: Store, existing: int, changed: int) -> None:
    await put(store, UPSERT, *((n, "old", f"n{n}") for n in range(existing)))
    rows = [(n, "new" if n < changed else "old", f"n{n}") for n in range(1_000)]
    assert counts(await put(store, UPSERT, *reversed(rows))) == (1_000 - existing, changed, existing - changed, 0)
    assert await held(store, UPSERT) == rows


async def test_no_rows_are_no_trouble(store: Store) -> None:
    for load in (UPSERT, DIRECT, INSERT):
        assert counts(await put(store, load)) == (0, 0, 0, 0)


async def test_rows_that_the_frame_does_not_name_stay_as_they_are(store: Store) -> None:
    await put(store, UPSERT, ANN, BEN)
    await put(store, UPSERT, (2, "Bob", None))
    assert await held(store, UPSERT) == [ANN, (2, "Bob", None)]


async def test_more_rows_than_one_slice(store: Store) -> None:
    rows = [(n, f"n{n}", "x") for n in range(40_000)]
    assert counts(await put(store, DIRECT, *rows)) == (40_000, 0, 0, 0)
    assert counts(await put(store, UPSERT, *rows, (40_000, "last", "y"))) == (1, 0, 40_000, 0)


# -- differences -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a", "b"),
        ("a", "A"),
        (None, "a"),
        ("a", None),
        ("", None),
        (None, ""),
        ("a", "a "),
        ("1", "1.0"),
        ("\u00e9", "e\u0301"),
        ("a\\b", "a\\\\b"),
        ("a\tb", "a\\tb"),
        ("\\N", None),
        (None, "\\N"),
    ],
)
async def test_a_text_that_differs_in_anything_is_updated(store: Store, old: str | None, new: str | None) -> None:
    await put(store, UPSERT, (1, old, "x"))
    assert counts(await put(store, UPSERT, (1, new, "x"))) == (0, 1, 0, 0)
    assert await held(store, UPSERT) == [(1, new, "x")]


@pytest.mark.parametrize(
    "text",
    TEXTS,
    ids=range(len(TEXTS)),
)
@pytest.mark.parametrize("load", [UPSERT, DIRECT])
async def test_any_text_arrives_as_it_is_and_is_found_again(store: Store, load: Load, text: str) -> None:
    assert counts(await put(store, load, (1, text, None), (2, None, text))) == (2, 0, 0, 0)
    assert await held(store, load) == [(1, text, None), (2, None, text)]
    assert counts(await put(store, load, (1, text, None), (2, None, text))) == (0, 0, 2, 0)


@pytest.mark.parametrize(
    ("kind", "value", "other"),
    [
        (Kind.TEXT, "łąka", "laka"),
        (Kind.INTEGER, -(2**63), 2**63 - 1),
        (Kind.DECIMAL, "10.00", "10.01"),
        (Kind.DECIMAL, "-0.10", "0.1"),
        (Kind.DECIMAL, "123456789012345678901234567890.12", "123456789012345678901234567890.13"),
        (Kind.FLOAT, 0.1, 0.1 + 2**-55),
        (Kind.FLOAT, 1e300, -1e-300),
        (Kind.FLOAT, 3.0, 4.0),
        (Kind.BOOLEAN, True, False),
        (Kind.DATE, date(2026, 1, 31), date(1, 1, 1)),
        (Kind.DATETIME, datetime(2026, 1, 31, 10, tzinfo=UTC), datetime(2026, 1, 31, 10, 0, 0, 1, tzinfo=UTC)),
        (Kind.TIME, time(10, 0), time(10, 0, 0, 5)),
        (Kind.UUID, "0197f3a0-0000-7000-8000-000000000000", "0197f3a0-0000-7000-8000-000000000001"),
        (Kind.JSON, '{"a":[1,null]}', '{"a":[1]}'),
    ],
)
async def test_each_kind_is_unchanged_when_it_comes_again_and_updated_when_it_is_another(
    store: Store, kind: Kind, value: Any, other: Any
) -> None:
    load = Load(new_name(), [Column("id", Kind.INTEGER), Column("v", kind, nullable=True)], ["id"], Mode.UPSERT)
    await create(store, load)
    assert counts(await put(store, load, (1, value), (2, None))) == (2, 0, 0, 0)
    assert counts(await put(store, load, (1, value), (2, None))) == (0, 0, 2, 0)
    assert counts(await put(store, load, (1, other), (2, value))) == (0, 2, 0, 0)
    assert counts(await put(store, load, (1, other), (2, value))) == (0, 0, 2, 0)
    assert counts(await put(store, load, (1, None), (2, None))) == (0, 2, 0, 0)


async def test_decimals_are_kept_to_the_last_digit(store: Store) -> None:
    amount = "12345678901234567890.123456789"
    load = Load(new_name(), [Column("id", Kind.INTEGER), Column("v", Kind.DECIMAL)], ["id"], Mode.UPSERT)
    await create(store, load)
    await put(store, load, (1, amount))
    ((_, kept),) = await held(store, load)
    assert str(kept) == amount


async def test_the_columns_own_type_decides_what_is_equal(store: Store) -> None:
    table = new_name()
    made = collection(table, {"id": INTEGER, "v": or_null(DECIMAL), "f": or_null(FLOAT)}, key=["id"])
    await run(store, f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, v NUMERIC(12, 2), f REAL)", *made)
    columns = [Column("id", Kind.INTEGER), Column("v", Kind.DECIMAL), Column("f", Kind.FLOAT)]
    load = Load(table, columns, ["id"], Mode.UPSERT)
    await put(store, load, (1, "10.00", 0.5), (2, "0.5", 2.0))
    assert counts(await put(store, load, (1, "10.0", 0.5), (2, "0.50", 2.0))) == (0, 0, 2, 0)
    assert counts(await put(store, load, (1, "10", 0.5), (2, "0.51", 2.0))) == (0, 1, 1, 0)


async def test_provenance_is_written_but_makes_no_row_differ(store: Store) -> None:
    load = replace(UPSERT, unwatched=["city"])
    await put(store, load, (1, "Ann", "import 1"), (2, "Ben", "import 1"))
    assert counts(await put(store, load, (1, "Ann", "import 2"), (2, "Bob", "import 2"))) == (0, 1, 1, 0)
    assert await held(store, load) == [(1, "Ann", "import 1"), (2, "Bob", "import 2")]


# -- keys ------------------------------------------------------------------------------------------


async def test_a_key_of_several_columns(store: Store) -> None:
    load = Load(
        new_name(),
        [Column("year", Kind.INTEGER), Column("team", Kind.TEXT), Column("sum", Kind.DECIMAL)],
        ["team", "year"],
        Mode.UPSERT,
    )
    await create(store, load)
    assert counts(await put(store, load, (2025, "a", "1"), (2026, "a", "2"), (2026, "b", "3"))) == (3, 0, 0, 0)
    assert counts(await put(store, load, (2025, "a", "1"), (2026, "a", "5"), (2025, "b", "3"))) == (1, 1, 1, 0)


async def test_rows_that_are_all_key_are_inserted_or_unchanged(store: Store) -> None:
    load = Load(new_name(), [Column("a", Kind.TEXT), Column("b", Kind.TEXT)], ["a", "b"], Mode.UPSERT)
    await create(store, load)
    assert counts(await put(store, load, ("x", "y"))) == (1, 0, 0, 0)
    assert counts(await put(store, load, ("x", "y"), ("x", "z"))) == (1, 0, 1, 0)


async def test_rows_without_a_key_are_inserted_each_time(store: Store) -> None:
    load = Load(new_name(), [Column("a", Kind.TEXT, nullable=True)], [], Mode.INSERT)
    await create(store, load)
    for _ in range(2):
        assert counts(await put(store, load, ("x",), ("x",), (None,))) == (3, 0, 0, 0)


async def test_a_key_without_a_unique_index_is_told(store: Store) -> None:
    with pytest.raises(ImportFault, match="no unique index on name"):
        await put(store, replace(UPSERT, key=["name"]), ANN)


async def test_a_unique_index_is_as_good_as_a_primary_key(store: Store) -> None:
    await run(store, "CREATE UNIQUE INDEX names ON people (name)", unique("people", "name"))
    load = replace(UPSERT, key=["name"])
    await put(store, load, ANN, BEN)
    assert counts(await put(store, load, (1, "Ann", "Rome"), (2, "Ben", "Rome"))) == (0, 1, 1, 0)


# -- insert and replace ----------------------------------------------------------------------------


@pytest.mark.parametrize("direct", [False, True])
async def test_a_key_that_exists_is_an_error_of_its_row_where_each_is_to_be_new(store: Store, direct: bool) -> None:
    await put(store, UPSERT, BEN)
    loaded = await put(store, replace(INSERT, direct=direct), ANN, (2, "Bob", "Bonn"), CAT)
    assert counts(loaded) == (2, 0, 0, 1)
    assert codes(loaded) == [(FIRST_ROW + 1, "key_exists")]
    assert "id" in loaded.refused[0].reason
    assert await held(store, UPSERT) == [ANN, BEN, CAT]


async def test_wiping_counts_what_it_removes(store: Store) -> None:
    await put(store, UPSERT, ANN, BEN, (3, None, "Oslo"))
    async with store.transaction() as transaction:
        assert await transaction.wipe("people", {"city": "Oslo", "id": 1}) == 1
        assert await transaction.wipe("people", {"city": "Oslo"}) == 1
        assert await transaction.wipe("people", {"city": "'; DROP TABLE people --"}) == 0
    assert await held(store, UPSERT) == [BEN]
    async with store.transaction() as transaction:
        assert await transaction.wipe("people", {"name": None}) == 0
        assert await transaction.wipe("people", {}) == 1
    assert await held(store, UPSERT) == []


async def test_wiping_by_nothing_given_means_the_rows_without_a_value(store: Store) -> None:
    await put(store, UPSERT, ANN, (2, None, "Rome"))
    async with store.transaction() as transaction:
        assert await transaction.wipe("people", {"name": None}) == 1
    assert await held(store, UPSERT) == [ANN]


# -- transactions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [UPSERT, DIRECT])
async def test_a_transaction_that_is_rolled_back_leaves_nothing(store: Store, load: Load) -> None:
    await put(store, UPSERT, ANN)
    with suppress(Interrupted):
        async with store.transaction() as transaction:
            await transaction.load(load, frame(load.columns, [(1, "Eve", None), BEN]))
            raise Interrupted
    assert await held(store, load) == [ANN]


async def test_several_loads_in_one_transaction(store: Store) -> None:
    async with store.transaction() as transaction:
        for rows, expected in (([ANN], (1, 0, 0, 0)), ([ANN, BEN], (1, 0, 1, 0)), ([(1, "Eve", "x")], (0, 1, 0, 0))):
            assert counts(await transaction.load(UPSERT, frame(UPSERT.columns, rows))) == expected
    assert await held(store, UPSERT) == [(1, "Eve", "x"), BEN]


async def test_a_missing_table_is_not_blamed_on_the_rows(store: Store) -> None:
    with pytest.raises(StoreError, match="no table nowhere"):
        await put(store, replace(UPSERT, table="nowhere"), ANN)


async def test_a_missing_column_is_not_blamed_on_the_rows(store: Store) -> None:
    with pytest.raises(StoreError, match="no column zip"):
        await put(store, replace(UPSERT, columns=[*UPSERT.columns, Column("zip", Kind.TEXT)]), (*ANN, "1"))
