"""Load: reports what the table's triggers do with its rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from conformance.loads import FIRST_ROW, codes, counts, dry_run, held, new_name, put
from conformance.stores import SqliteRig
from conformance.tables import run
from conformance.test_load_references import merge
from rowlock.clock import FakeClock
from rowlock.errors import ImportFault
from rowlock.storage.contract import Store
from rowlock.storage.tables import Column, Kind, Load, Mode

COLUMNS = [Column("id", Kind.INTEGER), Column("name", Kind.TEXT, nullable=True)]
WAYS: list[dict[str, Any]] = [{}, {"direct": True}, {"mode": Mode.INSERT}, {"mode": Mode.REPLACE}]
_functions = count(1)


async def make(store: Store) -> Load:
    table = new_name("watched")
    await run(store, f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, name TEXT)")
    await run(store, f"CREATE TABLE {table}_log (name TEXT)")
    return Load(table, COLUMNS, ["id"], Mode.UPSERT)


async def leave_out(store: Store, table: str, event: str) -> None:
    """Create a trigger that records rows called x and skips them."""
    name = f"leave_out_{next(_functions)}"
    if "postgres" in store.url:
        await run(
            store,
            f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF NEW.name = 'x' THEN INSERT INTO {table}_log VALUES (NEW.name); RETURN NULL; END IF;"
            " RETURN NEW; END $$",
        )
        await run(store, f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")
    else:
        await run(
            store,
            f"CREATE TRIGGER {name} BEFORE {event} ON {table} WHEN NEW.name = 'x'"
            f" BEGIN INSERT INTO {table}_log VALUES (NEW.name); SELECT RAISE(IGNORE); END",
        )


@pytest.mark.relational  # MongoDB has no triggers
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("names", ["axbx", "xxxx", "aaax", "x"])
async def test_a_row_that_a_trigger_leaves_out_is_reported(store: Store, way: dict[str, Any], names: str) -> None:
    load = replace(await make(store), **way)
    await leave_out(store, load.table, "INSERT")
    loaded = await put(store, load, *enumerate(names))
    out = [n for n, name in enumerate(names) if name == "x"]
    assert counts(loaded) == (len(names) - len(out), 0, 0, len(out))
    assert codes(loaded) == [(FIRST_ROW + n, "suppressed") for n in out]
    assert "trigger" in loaded.refused[0].reason
    assert [row[0] for row in await held(store, load)] == [n for n in range(len(names)) if n not in out]


@pytest.mark.relational
@pytest.mark.parametrize("total", [5, 300])
async def test_an_update_that_a_trigger_leaves_out_is_reported(store: Store, total: int) -> None:
    load = await make(store)
    await put(store, load, *((n, "old") for n in range(total)))
    await leave_out(store, load.table, "UPDATE")
    loaded = await put(store, load, (0, "old"), *((n, "x" if n % 4 == 3 else "new") for n in range(1, total)))
    out = [n for n in range(total) if n % 4 == 3]
    assert counts(loaded) == (0, total - 1 - len(out), 1, len(out))
    assert codes(loaded) == [(FIRST_ROW + n, "suppressed") for n in out]
    assert {row[0] for row in await held(store, load) if row[1] == "old"} == {0, *out}


@pytest.mark.relational
async def test_rows_are_told_apart_however_many_a_trigger_leaves_out(store: Store) -> None:
    load = await make(store)
    await put(store, load, (0, "a"), (1, "b"))
    await leave_out(store, load.table, "INSERT")
    loaded = await put(store, load, (0, "c"), (1, "b"), *((n, "x" if n % 3 else "a") for n in range(2, 500)))
    out = [n for n in range(2, 500) if n % 3]
    assert counts(loaded) == (498 - len(out), 1, 1, len(out))
    assert [refused.row - FIRST_ROW for refused in loaded.refused] == out


@pytest.mark.relational
async def test_what_a_trigger_writes_about_a_row_that_it_leaves_out_stays(store: Store) -> None:
    load = await make(store)
    await leave_out(store, load.table, "INSERT")
    await put(store, load, (1, "a"), (2, "x"), (3, "x"))
    log = Load(f"{load.table}_log", [COLUMNS[1]], (), Mode.INSERT)
    assert await held(store, log) == [("x",), ("x",)]


@pytest.mark.relational
@pytest.mark.parametrize("way", [dry_run, merge])
async def test_a_dry_run_and_a_merge_report_what_a_trigger_leaves_out(store: Store, way: Any) -> None:
    load = await make(store)
    await leave_out(store, load.table, "INSERT")
    loaded = await way(store, load, (1, "a"), (2, "x"), (3, "b"))
    assert codes(loaded) == [(FIRST_ROW + 1, "suppressed")]
    assert loaded.inserted == (0 if way is merge else 2)
    assert await held(store, load) == []


@pytest.fixture
async def sqlite(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    rig = SqliteRig(tmp_path)
    yield await rig.make(clock)
    await rig.dispose()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
@pytest.mark.parametrize("how", ["FAIL", "ABORT"])
async def test_of_a_row_that_a_trigger_refuses_nothing_stays(
    sqlite: Store, way: dict[str, Any], when: str, how: str
) -> None:
    load = replace(await make(sqlite), **way)
    await run(
        sqlite,
        f"CREATE TRIGGER no_x_{load.table} {when} INSERT ON {load.table} WHEN NEW.name = 'x'"
        f" BEGIN INSERT INTO {load.table}_log VALUES ('x'); SELECT RAISE({how}, 'no x here'); END",
    )
    loaded = await put(sqlite, load, (1, "a"), (2, "x"), (3, "b"), (4, "x"))
    assert counts(loaded) == (2, 0, 0, 2)
    assert codes(loaded) == [(FIRST_ROW + 1, "refused"), (FIRST_ROW + 3, "refused")]
    assert "no x here" in loaded.refused[0].reason
    assert [row[0] for row in await held(sqlite, load)] == [1, 3]
    assert await held(sqlite, Load(f"{load.table}_log", [COLUMNS[1]], (), Mode.INSERT)) == []


@pytest.mark.parametrize("way", [put, dry_run, merge])
async def test_a_trigger_that_rolls_the_transaction_back_is_a_fault_of_the_table(sqlite: Store, way: Any) -> None:
    load = await make(sqlite)
    await run(
        sqlite,
        f"CREATE TRIGGER no_x BEFORE INSERT ON {load.table} WHEN NEW.name = 'x'"
        " BEGIN SELECT RAISE(ROLLBACK, 'no x here'); END",
    )
    with pytest.raises(ImportFault, match=r"RAISE\(ROLLBACK\).* RAISE\(ABORT\)"):
        await way(sqlite, load, (1, "a"), (2, "x"))
    assert await held(sqlite, load) == []
    assert counts(await put(sqlite, load, (1, "a"))) == (1, 0, 0, 0)
