"""On PostgreSQL: the rights that a role needs for an import, and the errors if a right or policy forbids it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from conformance.loads import UPSERT, codes, counts, frame, held, new_name, put
from conformance.stores import PostgresRig
from conformance.tables import run
from postgres_server import PostgresServer
from rowlock.clock import FakeClock
from rowlock.errors import StatementRefused
from rowlock.ids import uuid7
from rowlock.imports.run import ROW_COLUMN
from rowlock.storage.contract import Store
from rowlock.storage.postgres import PostgresStore
from rowlock.storage.tables import Column, Kind, Load, Mode

ROLE = "importer"


@pytest.fixture
async def owner(postgres: PostgresServer, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    rig = PostgresRig(tmp_path, postgres)
    yield await rig.make(clock)
    await rig.dispose()


@pytest.fixture
async def store(owner: PostgresStore, clock: FakeClock) -> AsyncIterator[Store]:
    """A store with a role that may only use the schema rowlock, and what the test grants it."""
    await run_all(
        owner,
        f"DO $$ BEGIN CREATE ROLE {ROLE} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        f"GRANT ALL ON SCHEMA rowlock TO {ROLE}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA rowlock TO {ROLE}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA rowlock TO {ROLE}",
    )
    url = psycopg.conninfo.conninfo_to_dict(owner._connections.dsn)
    store = PostgresStore(f"postgresql://{ROLE}@{url['host']}:{url['port']}/{url['dbname']}", clock)
    await store.open()
    yield store
    await store.close()


async def run_all(store: Store, *statements: str) -> None:
    for statement in statements:
        await run(store, statement)


async def granted(owner: Store, columns: str, *more: str) -> Load:
    table = new_name()
    first = (f"CREATE TABLE {table} ({columns})", f"GRANT ALL ON {table} TO {ROLE}")
    await run_all(owner, *first, *(statement.format(table=table) for statement in more))
    return replace(UPSERT, table=table)


async def staged(store: Store, load: Load, *rows: object) -> str:
    """Create an import's staging table with these rows. Returns its name."""
    async with store.transaction() as transaction:
        name = transaction.staging_table(uuid7())
        columns = [*load.columns, ROW_COLUMN]
        await transaction.create_table(name, columns, ())
        await transaction.load(Load(name, columns, (), Mode.INSERT, direct=True), frame(load.columns, rows))  # type: ignore[arg-type]
    return name


async def test_rights_on_the_schema_rowlock_are_enough_for_all_or_nothing(owner: Store, store: Store) -> None:
    load = await granted(owner, "id int PRIMARY KEY, name text, city text")
    name = await staged(store, load, (1, "Ann", "Oslo"), (2, "Ben", "Rome"))
    async with store.transaction() as transaction:
        assert counts(await transaction.merge(load, name)) == (2, 0, 0, 0)
        await transaction.drop_table(name)
        assert await transaction.table(name) is None


async def test_a_missing_right_is_told_as_one(owner: Store, store: Store) -> None:
    load = await granted(owner, "id int PRIMARY KEY, name text, city text", "REVOKE INSERT ON {table} FROM " + ROLE)
    with pytest.raises(StatementRefused, match=f"permission denied for table {load.table}; GRANT this right"):
        await put(store, load, (1, "Ann", "Oslo"))


@pytest.mark.parametrize("way", ["direct", "staged", "merged", "updated"])
async def test_a_row_that_a_policy_keeps_out_is_refused_alone(owner: Store, store: Store, way: str) -> None:
    load = await granted(
        owner,
        "id int PRIMARY KEY, name text, city text",
        "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON {table} USING (TRUE) WITH CHECK (city <> 'Atlantis')",
    )
    rows = [(1, "Ann", "Oslo"), (2, "Ben", "Atlantis"), (3, "Cat", "Lima")]
    if way == "updated":
        await put(store, load, *((n, name, "Rome") for n, name, _ in rows))
    if way == "merged":
        name = await staged(store, load, *rows)
        async with store.transaction() as transaction:
            loaded = await transaction.merge(load, name)
        assert await held(owner, load) == []
    else:
        loaded = await put(store, replace(load, direct=way == "direct"), *rows)
        assert [row[0] for row in await held(owner, load) if row[2] != "Rome"] == [1, 3]
    assert codes(loaded) == [(3, "policy")]
    assert "row-level security" in loaded.refused[0].reason


async def test_rows_that_the_columns_do_not_take_are_named_in_a_merge_too(owner: Store, store: Store) -> None:
    await run_all(owner, "DROP TYPE IF EXISTS mood CASCADE", "CREATE TYPE mood AS ENUM ('glad', 'sad')")
    load = await granted(owner, "id smallint PRIMARY KEY, name varchar(5), city mood, at timestamptz")
    load = replace(load, columns=[*load.columns, Column("at", Kind.DATETIME, nullable=True)])
    good = (1, "A\\n\tn", "glad", None)
    rows = [
        good,
        (2, "too long", "glad", None),
        (3, "Cat", "angry", None),
        (99_999, "Dan", "sad", None),
        (5, None, "sad", None),
    ]
    name = await staged(store, load, *rows)
    async with store.transaction() as transaction:
        merged = await transaction.merge(load, name)
    loaded = await put(store, load, *rows)
    assert merged.refused == loaded.refused
    assert [(each.row, each.code, each.column) for each in merged.refused] == [
        (3, "too_long", "name"),
        (4, "refused", "city"),
        (5, "out_of_range", "id"),
    ]


async def test_a_merge_takes_no_value_for_one_that_is_rounded(owner: Store, store: Store) -> None:
    load = await granted(owner, "id int PRIMARY KEY, name text, city text, rate real, share double precision")
    more = [Column("rate", Kind.INTEGER, nullable=True), Column("share", Kind.DECIMAL, nullable=True)]
    load = replace(load, columns=[*load.columns, *more])
    name = await staged(store, load, (1, "Ann", "Oslo", None, None), (2, "Ben", "Rome", 7, "0.5"))
    async with store.transaction() as transaction:
        assert counts(await transaction.merge(load, name)) == (2, 0, 0, 0)
