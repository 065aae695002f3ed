"""Load: a wipe removes exactly the rows that a load of the same values has written."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from conformance.loads import UPSERT, codes, counts, create, frame, held, new_name, put
from conformance.tables import INTEGER, TEXT, collection, or_null, run
from rowlock.errors import StoreError
from rowlock.storage.contract import Store
from rowlock.storage.tables import Change, Column, Kind, Load, Loaded, Mode

MOMENT = datetime(2026, 7, 1, 10, 0, 0, 500_000, tzinfo=UTC)
ANN, BEN, CAT = (1, "Ann", "Oslo"), (2, "Ben", "Rome"), (3, "Cat", "Lima")
REPLACE = replace(UPSERT, mode=Mode.REPLACE, sample=10)


def values(kind: Kind) -> Load:
    return Load(new_name(), [Column("id", Kind.INTEGER), Column("v", kind, nullable=True)], ["id"], Mode.UPSERT)


@pytest.mark.parametrize(
    ("kind", "loaded", "other", "scope"),
    [
        (Kind.BOOLEAN, True, False, True),
        (Kind.BOOLEAN, False, True, False),
        (Kind.INTEGER, -5, 5, -5),
        (Kind.FLOAT, 0.1, 0.2, 0.1),
        (Kind.FLOAT, 1e300, 1e299, 1e300),
        (Kind.DECIMAL, "12.50", "12.51", "12.50"),
        (Kind.DECIMAL, "12.50", "12.51", Decimal("12.50")),
        (Kind.TEXT, "True", "true", "True"),
        (Kind.TEXT, "\\N", "N", "\\N"),
        (Kind.TEXT, "a\tb", "a b", "a\tb"),
        (Kind.DATE, date(2026, 1, 31), date(2026, 1, 30), date(2026, 1, 31)),
        (Kind.DATE, date(2026, 1, 31), date(2026, 1, 30), "2026-01-31"),
        (Kind.TIME, time(10, 0, 0, 500), time(10), time(10, 0, 0, 500)),
        (Kind.DATETIME, MOMENT, MOMENT.replace(microsecond=0), MOMENT),
        (Kind.DATETIME, MOMENT, MOMENT.replace(microsecond=0), MOMENT.astimezone(timezone(timedelta(hours=2)))),
        (Kind.UUID, str(UUID(int=1)), str(UUID(int=2)), UUID(int=1)),
    ],
)
async def test_a_value_of_any_kind_is_found_as_it_was_loaded(
    store: Store, kind: Kind, loaded: Any, other: Any, scope: Any
) -> None:
    load = values(kind)
    await create(store, load)
    await put(store, load, (1, loaded), (2, other), (3, None))
    async with store.transaction() as transaction:
        assert await transaction.wipe(load.table, {"v": scope}) == 1
    assert [row[0] for row in await held(store, load)] == [2, 3]


async def test_a_yes_or_no_that_is_kept_as_text_is_found(store: Store) -> None:
    """COPY writes `true`, which a PostgreSQL text column stores as such."""
    load = values(Kind.BOOLEAN)
    made = collection(load.table, {"id": INTEGER, "v": or_null(TEXT)}, key=["id"])
    await run(store, f"CREATE TABLE {load.table} (id INTEGER PRIMARY KEY, v TEXT)", *made)
    await put(store, load, (1, True), (2, False))
    async with store.transaction() as transaction:
        assert await transaction.wipe(load.table, {"v": True}) == 1
    assert [row[0] for row in await held(store, load)] == [2]


# -- dry runs --------------------------------------------------------------------------------------


async def rehearsed(store: Store, load: Load, scope: dict[str, Any] | None, *rows: Any) -> Loaded:
    async with store.transaction() as transaction:
        return await transaction.dry_run(load, frame(load.columns, rows), wiped=scope)


async def test_a_dry_run_wipes_first_where_the_load_would(store: Store) -> None:
    await create(store, UPSERT)
    await put(store, UPSERT, ANN, BEN)
    loaded = await rehearsed(store, REPLACE, {}, (1, "Ann", "Bonn"), BEN, CAT)
    assert counts(loaded) == (3, 0, 0, 0)
    assert loaded.changed == {}
    assert list(loaded.sample) == [
        Change(2, {"id": 1, "name": "Ann", "city": "Oslo"}, {"id": 1, "name": "Ann", "city": "Bonn"}),
        Change(3, {"id": 2, "name": "Ben", "city": "Rome"}, {"id": 2, "name": "Ben", "city": "Rome"}),
        Change(4, None, {"id": 3, "name": "Cat", "city": "Lima"}),
    ]
    assert await held(store, UPSERT) == [ANN, BEN]


async def test_a_dry_run_wipes_its_scope_only(store: Store) -> None:
    await create(store, UPSERT)
    await put(store, UPSERT, ANN, BEN)
    loaded = await rehearsed(store, REPLACE, {"city": "Oslo"}, (1, "Eve", "Oslo"), (2, "Bob", "Oslo"))
    assert counts(loaded) == (1, 0, 0, 1)
    assert codes(loaded) == [(3, "key_exists")]
    assert [change.row for change in loaded.sample] == [2]
    assert await held(store, UPSERT) == [ANN, BEN]


async def test_a_dry_run_into_a_table_that_is_still_to_be_made_inserts_all_and_makes_nothing(store: Store) -> None:
    columns = [Column("id", Kind.INTEGER), Column("at", Kind.DATETIME), Column("j", Kind.JSON)]
    load = Load(new_name(), columns, ["id"], Mode.UPSERT, sample=1)
    rows = [(2, MOMENT, "[]"), (1, MOMENT, '{"a": 1}')]
    for scope in (None, {"id": 1}):
        loaded = await rehearsed(store, load, scope, *rows)
        assert counts(loaded) == (2, 0, 0, 0)
        assert loaded.changed == {}
        (change,) = loaded.sample
        after = {"id": 1, "at": "2026-07-01T10:00:00.500000+00:00", "j": {"a": 1}}
        assert change == Change(3, None, after)
    async with store.transaction() as transaction:
        assert await transaction.table(load.table) is None


async def test_a_dry_run_with_a_scope_that_the_table_does_not_have_is_told(store: Store) -> None:
    await create(store, UPSERT)
    with pytest.raises(StoreError, match="no column zip"):
        await rehearsed(store, REPLACE, {"zip": 1}, ANN)
