"""Load, on PostgreSQL only: partitions, domains, enums, deferred constraints, two concurrent writers."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest

from conformance.loads import FIRST_ROW, PEOPLE, UPSERT, codes, counts, create, frame, held, new_name, put
from conformance.stores import PostgresRig
from conformance.tables import run
from conformance.test_load_exact import WAYS
from conformance.test_load_exact import put as put_by
from postgres_server import PostgresServer
from rowlock.clock import FakeClock
from rowlock.errors import ImportFault, StoreError, StoreUnavailable
from rowlock.storage.contract import Store
from rowlock.storage.tables import Column, Kind, Load, Mode

ANN, BEN, CAT = (1, "Ann", "Oslo"), (2, "Ben", "Rome"), (3, "Cat", "Lima")
MOMENT = datetime(2026, 7, 1, 10, tzinfo=UTC)


@pytest.fixture
async def postgres_rig(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[PostgresRig]:
    rig = PostgresRig(tmp_path, postgres)
    yield rig
    await rig.dispose()


@pytest.fixture
async def store(postgres_rig: PostgresRig, clock: FakeClock) -> Store:
    store = await postgres_rig.make(clock)
    await create(store, UPSERT)
    return store


def values(kind: Kind, table: str) -> Load:
    return Load(table, [Column("id", Kind.INTEGER), Column("v", kind, nullable=True)], ["id"], Mode.UPSERT)


@pytest.mark.parametrize("direct", [False, True])
async def test_counts_are_exact_on_a_partitioned_table(store: Store, direct: bool) -> None:
    table = new_name()
    await run(store, f"CREATE TABLE {table} (id int PRIMARY KEY, name text, city text) PARTITION BY RANGE (id)")
    await run(store, f"CREATE TABLE {table}_low PARTITION OF {table} FOR VALUES FROM (0) TO (50)")
    await run(store, f"CREATE TABLE {table}_high PARTITION OF {table} FOR VALUES FROM (50) TO (100)")
    load = replace(UPSERT, table=table, direct=direct)
    assert counts(await put(store, load, *((n, "a", "b") for n in range(20, 80)))) == (60, 0, 0, 0)
    rows = [(n, "new" if n % 2 else "a", "b") for n in range(110)]
    loaded = await put(store, load, *rows)
    assert counts(loaded) == (40, 30, 30, 10)
    assert {refused.code for refused in loaded.refused} == {"check"}  # no partition accepts them


async def test_a_row_that_a_trigger_changes_is_inserted_once_and_not_updated(store: Store) -> None:
    table = new_name()
    await run(store, f"CREATE TABLE {table} (id int PRIMARY KEY, name text, city text)")
    await run(
        store,
        f"CREATE FUNCTION {table}_louder() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.name := upper(NEW.name); RETURN NEW; END $$",
    )
    await run(store, f"CREATE TRIGGER louder BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_louder()")
    load = replace(UPSERT, table=table)
    assert counts(await put(store, load, ANN, BEN)) == (2, 0, 0, 0)
    assert counts(await put(store, load, ANN, (2, "BEN", "Rome"), CAT)) == (1, 1, 1, 0)
    assert await held(store, load) == [(1, "Ann", "Oslo"), (2, "BEN", "Rome"), (3, "CAT", "Lima")]


@pytest.mark.parametrize(
    ("type", "kind", "good", "bad", "code"),
    [
        ("smallint", Kind.INTEGER, 5, 99_999, "out_of_range"),
        ("numeric(5, 2)", Kind.DECIMAL, "1.5", "12345", "out_of_range"),
        ("varchar(3)", Kind.TEXT, "abc", "abcd", "too_long"),
        ("char(3)", Kind.TEXT, "ab", "abcd", "too_long"),
        ("mood", Kind.TEXT, "happy", "hungry", "refused"),
        ("even", Kind.INTEGER, 4, 5, "check"),
        ("real", Kind.FLOAT, 1.5, 1e300, "out_of_range"),
        ("text", Kind.TEXT, "x", "nul\0", "refused"),
    ],
)
@pytest.mark.parametrize("direct", [False, True])
async def test_a_value_that_its_column_does_not_take_costs_its_row(
    store: Store, type: str, kind: Kind, good: Any, bad: Any, code: str, direct: bool
) -> None:
    await run(store, "DROP TYPE IF EXISTS mood CASCADE; DROP DOMAIN IF EXISTS even CASCADE")
    await run(store, "CREATE TYPE mood AS ENUM ('happy', 'sad'); CREATE DOMAIN even AS int CHECK (VALUE % 2 = 0)")
    table = new_name()
    await run(store, f"CREATE TABLE {table} (id int PRIMARY KEY, v {type})")
    load = replace(values(kind, table), direct=direct)
    loaded = await put(store, load, (1, good), (2, bad), (3, None), (4, bad), (5, good))
    assert counts(loaded) == (3, 0, 0, 2)
    assert codes(loaded) == [(FIRST_ROW + 1, code), (FIRST_ROW + 3, code)]
    if "\0" not in str(bad):
        assert loaded.refused[0].column == "v"
    assert counts(await put(store, load, (1, good), (3, None), (5, good))) == (0, 0, 3, 0)


@pytest.mark.parametrize("way", WAYS)
async def test_a_floating_number_beyond_its_column_is_an_error_of_its_row(store: Store, way: str) -> None:
    load = values(Kind.FLOAT, new_name())
    await run(store, f"CREATE TABLE {load.table} (id INTEGER PRIMARY KEY, v REAL)")
    loaded = await put_by(store, load, way, [0.1 + 0.2, 1e300, -1e39])
    assert codes(loaded) == [(FIRST_ROW + 1, "out_of_range"), (FIRST_ROW + 2, "out_of_range")]


async def test_many_values_that_their_column_does_not_take(store: Store) -> None:
    table = new_name()
    await run(store, f"CREATE TABLE {table} (id int PRIMARY KEY, v smallint)")
    rows = [(n, 99_999 if n % 50 == 0 else n % 100) for n in range(5_000)]
    loaded = await put(store, values(Kind.INTEGER, table), *rows)
    assert counts(loaded) == (4_900, 0, 0, 100)
    assert [refused.row - FIRST_ROW for refused in loaded.refused] == list(range(0, 5_000, 50))


@pytest.mark.parametrize("deferred", ["", "DEFERRABLE INITIALLY DEFERRED"])
async def test_a_row_that_refers_to_nothing_is_refused_even_where_the_rule_waits_for_the_commit(
    store: Store, deferred: str
) -> None:
    await put(store, UPSERT, ANN)
    table = new_name()
    await run(
        store, f"CREATE TABLE {table} (id int PRIMARY KEY, v bigint CONSTRAINT whose REFERENCES people {deferred})"
    )
    loaded = await put(store, values(Kind.INTEGER, table), (1, 1), (2, 99), (3, None))
    assert codes(loaded) == [(FIRST_ROW + 1, "foreign_key")]
    assert "whose" in loaded.refused[0].reason
    assert [row[0] for row in await held(store, values(Kind.INTEGER, table))] == [1, 3]
    await run(store, f"DROP TABLE {table}")


async def test_an_exclusion_is_a_refusal(store: Store) -> None:
    table = new_name()
    await run(store, f"CREATE TABLE {table} (id int PRIMARY KEY, v int, EXCLUDE USING btree (v WITH =))")
    loaded = await put(store, values(Kind.INTEGER, table), (1, 1), (2, 1), (3, 2))
    assert counts(loaded) == (2, 0, 0, 1)
    assert loaded.refused[0].code == "unique"


async def test_json_differs_by_what_it_says_not_by_how_it_is_written(store: Store) -> None:
    for type in ("json", "jsonb"):
        table = new_name()
        await run(store, f"CREATE TABLE {table} (id int PRIMARY KEY, v {type})")
        load = values(Kind.JSON, table)
        await put(store, load, (1, '{"a": 1, "b": 2}'), (2, "null"))
        assert counts(await put(store, load, (1, '{"b":2,"a":1}'), (2, "[]"))) == (0, 1, 1, 0)


@pytest.mark.parametrize(
    ("kind", "value", "spelled", "held"),
    [
        (Kind.BOOLEAN, True, "t", "true"),
        (Kind.DATETIME, MOMENT, "2026-07-01 10:00:00", "2026-07-01 10:00:00+00"),
        (Kind.DECIMAL, "5.0", "5", "5.0"),
        (Kind.INTEGER, 7, "007", "7"),
    ],
)
async def test_in_a_column_of_text_what_is_written_otherwise_differs(
    store: Store, kind: Kind, value: object, spelled: str, held: str
) -> None:
    table = new_name()
    await run(store, f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
    await run(store, f"INSERT INTO {table} VALUES (1, '{spelled}'), (2, '{held}')")
    assert counts(await put(store, values(kind, table), (1, value), (2, value))) == (0, 1, 1, 0)
    async with store.transaction() as transaction:
        assert await transaction.fetch(f"SELECT DISTINCT v FROM {table}") == [(held,)]


async def test_a_text_that_is_filled_up_or_of_several_zones_is_unchanged(store: Store) -> None:
    table = new_name()
    await run(store, f"CREATE TABLE {table} (id int PRIMARY KEY, v char(8), at timestamptz, n numeric(9, 3))")
    columns = [
        Column("id", Kind.INTEGER),
        Column("v", Kind.TEXT),
        Column("at", Kind.DATETIME),
        Column("n", Kind.DECIMAL),
    ]
    load, row = Load(table, columns, ["id"], Mode.UPSERT), ("ab", MOMENT.replace(microsecond=500), "1.5")
    assert counts(await put(store, load, (1, *row))) == (1, 0, 0, 0)
    async with store.transaction() as transaction:
        await transaction.execute("SET LOCAL timezone = 'Asia/Tokyo'; SET LOCAL datestyle = 'German'")
        assert counts(await transaction.load(load, frame(columns, [(1, *row)]))) == (0, 0, 1, 0)
        assert await transaction.fetch("SHOW datestyle") == [("German, DMY",)]


async def test_moments_without_a_zone_are_those_of_utc_whatever_the_session_thinks(store: Store) -> None:
    table = new_name()
    await run(store, f"CREATE TABLE {table} (id int PRIMARY KEY, v timestamptz)")
    load = values(Kind.DATETIME, table)
    aware = frame(load.columns, [(1, None)]).with_columns(pl.lit(MOMENT).alias("v"))
    naive = aware.with_columns(pl.col("v").dt.replace_time_zone(None))
    async with store.transaction() as transaction:
        await transaction.execute("SET LOCAL timezone = 'Asia/Tokyo'")
        assert counts(await transaction.load(load, aware)) == (1, 0, 0, 0)
        assert counts(await transaction.load(load, naive)) == (0, 0, 1, 0)
        ((moment,),) = await transaction.fetch(f"SELECT (v AT TIME ZONE 'UTC')::text FROM {table}")
    assert moment == "2026-07-01 10:00:00"


async def test_shapes_of_domains_enums_identities_and_schemas(store: Store) -> None:
    await run(
        store,
        "DROP SCHEMA IF EXISTS shop CASCADE; CREATE SCHEMA shop; CREATE TYPE shop.mood AS ENUM ('a');"
        " CREATE DOMAIN shop.short AS varchar(5) NOT NULL; CREATE DOMAIN shop.shorter AS shop.short DEFAULT 'x';"
        " CREATE TABLE shop.t (i int GENERATED ALWAYS AS IDENTITY, d int GENERATED BY DEFAULT AS IDENTITY,"
        " m shop.mood, s shop.shorter, u uuid, j jsonb, b bytea, a int[], tz timestamptz)",
    )
    async with store.transaction() as transaction:
        found = await transaction.table("shop.t")
        assert await transaction.table("t") is None
        await transaction.execute("SET LOCAL search_path = shop")
        assert await transaction.table("t") is not None
    assert found is not None
    kinds = [Kind.INTEGER, Kind.TEXT, Kind.TEXT, Kind.UUID, Kind.JSON, None, None, Kind.DATETIME]
    assert [column.kind for column in found.columns] == [None, *kinds]
    assert [column.name for column in found.columns if column.has_default] == ["i", "d", "s"]
    assert [column.name for column in found.columns if not column.nullable] == ["i", "d", "s"]


async def test_a_load_into_another_schema(store: Store) -> None:
    await run(store, 'DROP SCHEMA IF EXISTS "My Shop" CASCADE; CREATE SCHEMA "My Shop"')
    load = replace(UPSERT, table="My Shop.people")
    for direct in (True, False):
        await create(store, load)
        await put(store, replace(load, direct=direct), ANN)
        assert counts(await put(store, replace(load, direct=direct), ANN, BEN)) == (1, 0, 1, 0)
    assert await held(store, UPSERT) == []


async def test_the_settings_of_the_transaction_are_as_they_were(store: Store) -> None:
    async with store.transaction() as transaction:
        await transaction.execute("SET LOCAL work_mem = '5MB'; SET LOCAL enable_mergejoin = off")
        await transaction.load(UPSERT, frame(PEOPLE, [ANN, BEN]))
        await transaction.load(UPSERT, frame(PEOPLE, [ANN, (2, "Bob", None)]))
        names = ("work_mem", "enable_mergejoin", "enable_hashjoin")
        found = [(await transaction.fetch(f"SHOW {name}"))[0][0] for name in names]
    assert found == ["5MB", "off", "on"]


async def test_no_stage_is_left_behind(store: Store) -> None:
    async with store.transaction() as transaction:
        await transaction.load(UPSERT, frame(PEOPLE, [ANN]))
        await transaction.dry_run(UPSERT, frame(PEOPLE, [BEN]))
        assert await transaction.fetch("SELECT relname FROM pg_class WHERE relname LIKE 'rowlock_stage%'") == []


async def test_permission_denied_is_not_blamed_on_the_rows(store: Store) -> None:
    await run(store, "DROP ROLE IF EXISTS clerk; CREATE ROLE clerk; GRANT SELECT ON people TO clerk")
    try:
        async with store.transaction() as transaction:
            await transaction.execute("SET LOCAL ROLE clerk")
            with pytest.raises(StoreError, match="permission denied"):
                await transaction.load(UPSERT, frame(PEOPLE, [ANN]))
    finally:
        await run(store, "REVOKE ALL ON people FROM clerk; DROP ROLE clerk")


async def test_a_deadlock_is_not_blamed_on_the_rows(store: Store, postgres_rig: PostgresRig) -> None:
    await put(store, UPSERT, ANN, BEN)
    with psycopg.connect(postgres_rig.url) as rival:
        rival.execute("SET deadlock_timeout = '60s'")
        rival.execute("UPDATE people SET name = 'x' WHERE id = 2")
        async with store.transaction() as transaction:
            await transaction.execute("SET LOCAL deadlock_timeout = '10ms'")
            await transaction.execute("UPDATE people SET name = 'y' WHERE id = 1")
            waiting = asyncio.create_task(asyncio.to_thread(rival.execute, "UPDATE people SET city = 'z' WHERE id = 1"))
            await _until_someone_waits(postgres_rig)
            with pytest.raises(StoreUnavailable, match="deadlock"):
                await transaction.load(UPSERT, frame(PEOPLE, [(2, "Bob", None)]))
        await waiting


async def test_a_key_that_another_inserts_meanwhile_is_updated(store: Store, postgres_rig: PostgresRig) -> None:
    """Another transaction has inserted the key: the load waits for its commit and then sees the row."""
    with psycopg.connect(postgres_rig.url) as rival:
        rival.execute("INSERT INTO people VALUES (2, 'Rival', 'x')")
        loading = asyncio.create_task(put(store, UPSERT, ANN, BEN, CAT))
        await _until_someone_waits(postgres_rig)
        rival.commit()
        assert counts(await loading) == (2, 1, 0, 0)
    assert await held(store, UPSERT) == [ANN, BEN, CAT]


@pytest.mark.parametrize("commit", [True, False])
async def test_a_key_that_another_inserts_meanwhile_is_refused_where_each_is_to_be_new(
    store: Store, postgres_rig: PostgresRig, commit: bool
) -> None:
    with psycopg.connect(postgres_rig.url) as rival:
        rival.execute("INSERT INTO people VALUES (2, 'Rival', 'x')")
        loading = asyncio.create_task(put(store, replace(UPSERT, mode=Mode.INSERT), ANN, BEN, CAT))
        await _until_someone_waits(postgres_rig)
        rival.commit() if commit else rival.rollback()
        loaded = await loading
    assert codes(loaded) == ([(FIRST_ROW + 1, "key_exists")] if commit else [])
    assert loaded.inserted == (2 if commit else 3)


async def test_a_row_that_another_changes_meanwhile_is_set_right(store: Store, postgres_rig: PostgresRig) -> None:
    await put(store, UPSERT, ANN, BEN)
    with psycopg.connect(postgres_rig.url) as rival:
        rival.execute("UPDATE people SET city = 'theirs' WHERE id = 2")
        loading = asyncio.create_task(put(store, UPSERT, ANN, (2, "Ben", "ours")))
        await _until_someone_waits(postgres_rig)
        rival.commit()
        assert counts(await loading) == (0, 1, 1, 0)
    assert await held(store, UPSERT) == [ANN, (2, "Ben", "ours")]


async def test_an_index_of_another_collation_is_no_key(store: Store) -> None:
    table = new_name()
    await run(store, f'CREATE TABLE {table} (id int, v text); CREATE UNIQUE INDEX ON {table} (v COLLATE "C")')
    with pytest.raises(ImportFault, match="no unique index"):
        await put(store, replace(values(Kind.TEXT, table), key=["v"]), (1, "x"))


@pytest.mark.parametrize(("digits", "places"), [(12, None), (None, 2), (None, None), (12, 2)])
async def test_a_created_column_rounds_no_decimal(store: Store, digits: int | None, places: int | None) -> None:
    columns = [Column("id", Kind.INTEGER), Column("v", Kind.DECIMAL, digits=digits, places=places)]
    load = Load(new_name(), columns, ["id"], Mode.UPSERT)
    await create(store, load)
    await put(store, load, (1, "12.75"))
    ((_, kept),) = await held(store, load)
    assert str(kept) == "12.75"


@pytest.mark.parametrize("type", ["timestamp", "timestamptz", "timestamp(0)", "date", "text"])
async def test_a_merge_makes_of_moments_what_a_load_makes_whatever_the_session_thinks(store: Store, type: str) -> None:
    load = values(Kind.DATETIME, new_name())
    await run(store, f"CREATE TABLE {load.table} (id int PRIMARY KEY, v {type})")
    staged = f"{load.table}_staged"
    columns = [*load.columns, Column("row", Kind.INTEGER)]
    late = datetime(2026, 7, 1, 2, tzinfo=UTC)  # still the previous day in New York
    async with store.transaction() as transaction:
        await transaction.execute("SET LOCAL timezone = 'America/New_York'; SET LOCAL datestyle = 'SQL, DMY'")
        await transaction.create_table(staged, columns, [])
        await transaction.load(Load(staged, columns, [], Mode.INSERT), frame(load.columns, [(1, late), (2, MOMENT)]))
        assert counts(await transaction.merge(load, staged)) == (2, 0, 0, 0)
        assert counts(await transaction.load(load, frame(load.columns, [(1, late), (2, MOMENT)]))) == (0, 0, 2, 0)
        settings = [(await transaction.fetch(f"SHOW {name}"))[0][0] for name in ("timezone", "datestyle")]
        await transaction.execute("SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = 'ISO'")
        ((kept,),) = await transaction.fetch(f"SELECT v::text FROM {load.table} WHERE id = 1")
    assert kept.startswith("2026-07-01" if type == "date" else "2026-07-01 02:00:00")
    assert settings == ["America/New_York", "SQL, DMY"]


@pytest.mark.parametrize("type", ["timestamp(0)", "timestamptz(0)"])
async def test_a_merge_takes_the_hour_that_comes_twice_in_the_zone_of_the_session(store: Store, type: str) -> None:
    load = values(Kind.DATETIME, new_name())
    await run(store, f"CREATE TABLE {load.table} (id int PRIMARY KEY, v {type})")
    staged, columns = f"{load.table}_staged", [*load.columns, Column("row", Kind.INTEGER)]
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    given = [(1, first), (2, first.replace(hour=1)), (3, first.replace(microsecond=1))]
    async with store.transaction() as transaction:
        await transaction.execute("SET LOCAL timezone = 'Europe/Berlin'")
        await transaction.create_table(staged, columns, [])
        await transaction.load(Load(staged, columns, [], Mode.INSERT), frame(load.columns, given))
        assert codes(await transaction.merge(load, staged)) == [(FIRST_ROW + 2, "too_precise")]
        await transaction.execute(f"DELETE FROM {staged} WHERE id = 3")
        assert counts(await transaction.merge(load, staged)) == (2, 0, 0, 0)
        assert await transaction.fetch("SHOW timezone") == [("Europe/Berlin",)]
        await transaction.execute("SET LOCAL timezone = 'UTC'")
        found = await transaction.fetch(f"SELECT v::timestamp::text FROM {load.table} ORDER BY id")
    assert found == [("2026-10-25 00:30:00",), ("2026-10-25 01:30:00",)]


@pytest.mark.parametrize("way", ["direct", "staged", "rehearsed", "merged"])
@pytest.mark.parametrize(
    ("type", "good", "bad"),
    [
        ("numeric(6, 2)", ["1.5", "-0.25", "1.2500", "1e2", "0"], ["1.255", "-0.001", "1.5e-3"]),
        ("numeric(6, 0)", ["12", "12.0"], ["12.5"]),
        ("numeric(6, -2)", ["1200", "0"], ["1250", "0.5"]),
        ("cents", ["1.5"], ["1.555"]),
        ("numeric", ["1.23456789012345678901234567890123456789"], []),
    ],
)
async def test_a_number_that_its_column_would_round_is_refused(
    store: Store, type: str, good: list[str], bad: list[str], way: str
) -> None:
    await run(store, "DROP DOMAIN IF EXISTS cents CASCADE; CREATE DOMAIN cents AS numeric(8, 2)")
    load = replace(values(Kind.DECIMAL, new_name()), direct=way == "direct")
    await run(store, f"CREATE TABLE {load.table} (id int PRIMARY KEY, v {type})")
    rows = list(enumerate([*good, *bad], 1))
    async with store.transaction() as transaction:
        if way == "rehearsed":
            loaded = await transaction.dry_run(load, frame(load.columns, rows))
        elif way == "merged":
            staged, columns = new_name(), [*load.columns, Column("row", Kind.INTEGER)]
            await transaction.create_table(staged, columns, [])
            await transaction.load(Load(staged, columns, [], Mode.INSERT), frame(load.columns, rows))
            loaded = await transaction.merge(load, staged)
        else:
            loaded = await transaction.load(load, frame(load.columns, rows))
    assert loaded.inserted == (0 if way == "merged" and bad else len(good))
    assert [each.row for each in loaded.refused] == [FIRST_ROW + len(good) + place for place in range(len(bad))]
    assert {(each.code, each.column) for each in loaded.refused} <= {("too_precise", "v")}


async def test_a_wipe_rounds_as_the_column_does_and_cuts_nothing_off(store: Store) -> None:
    table = new_name()
    await run(store, f"CREATE TABLE {table} (id int PRIMARY KEY, n numeric(5, 1), t varchar(3), j json)")
    await run(store, f"INSERT INTO {table} VALUES (1, 2.3, 'abc', '{{\"a\": 1}}')")
    async with store.transaction() as transaction:
        assert await transaction.wipe(table, {"t": "abcd"}) == 0
        assert await transaction.wipe(table, {"n": "2.26", "t": "abc", "j": {"a": 1}}) == 1


async def test_errors_do_not_repeat_the_values_of_rows(store: Store) -> None:
    """Not even in the stack, which includes the driver's error as the cause of ours."""
    table = new_name()
    await run(store, f"CREATE TABLE {table} (id int PRIMARY KEY, v text UNIQUE)")
    await run(
        store, f"CREATE TABLE {table}_of (v text REFERENCES {table} (v)); INSERT INTO {table} VALUES (1, 'hunter2')"
    )
    await run(store, f"INSERT INTO {table}_of VALUES ('hunter2')")
    try:
        with pytest.raises(ImportFault, match="other rows refer to them") as caught:
            async with store.transaction() as transaction:
                await transaction.wipe(table, {})
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    finally:
        await run(store, f"DROP TABLE {table}_of")


async def test_a_column_tells_whether_it_takes_texts_that_differ_for_equal(store: Store) -> None:
    await run(store, "DROP COLLATION IF EXISTS loose CASCADE")
    # By its mark alone: a server built without ICU cannot create such a collation.
    await run(store, 'CREATE COLLATION loose FROM "C"')
    await run(store, "UPDATE pg_collation SET collisdeterministic = FALSE WHERE collname = 'loose'")
    await run(store, "DROP DOMAIN IF EXISTS mail CASCADE; CREATE DOMAIN mail AS text COLLATE loose")
    table = new_name()
    await run(store, f'CREATE TABLE {table} (a text, b text COLLATE "C", c text COLLATE loose, d mail, e int)')
    async with store.transaction() as transaction:
        found = await transaction.table(table)
    assert found is not None
    assert [column.name for column in found.columns if column.folds] == ["c", "d"]
    await run(store, "DROP COLLATION loose CASCADE")


async def _until_someone_waits(rig: PostgresRig) -> None:
    async with asyncio.timeout(60):
        async with await psycopg.AsyncConnection.connect(rig.url, autocommit=True) as watch:
            asked = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while (await (await watch.execute(asked)).fetchone()) == (0,):
                await asyncio.sleep(0)


async def test_to_find_the_rows_to_blame_costs_few_messages(store: Store) -> None:
    load = values(Kind.INTEGER, new_name())
    await run(store, f"CREATE TABLE {load.table} (id int PRIMARY KEY, v int CHECK (v > 0))")
    rows = frame(load.columns, [(n, 0 if n % 10 == 3 else 1) for n in range(2_000)])
    messages = 0

    def count(_: Any) -> None:
        nonlocal messages
        messages += 1

    async with store.transaction() as transaction:
        with transaction.connection.query_logger(count):
            assert counts(await transaction.load(load, rows)) == (1_800, 0, 0, 200)
    assert messages < 200


@pytest.mark.parametrize("what", ["no right to the language", "a policy"])
async def test_rows_are_told_apart_where_the_server_cannot_try_each_by_itself(store: Store, what: str) -> None:
    load = values(Kind.INTEGER, new_name())
    await run(
        store,
        f"CREATE TABLE {load.table} (id int PRIMARY KEY, v int CHECK (v > 0));"
        " DROP ROLE IF EXISTS clerk; CREATE ROLE clerk;"
        f" GRANT ALL ON {load.table} TO clerk",
    )
    if what == "a policy":
        await run(
            store,
            f"ALTER TABLE {load.table} ENABLE ROW LEVEL SECURITY; CREATE POLICY small ON {load.table}"
            " USING (true) WITH CHECK (id <> 4)",
        )
    else:
        await run(store, "REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC")
    try:
        async with store.transaction() as transaction:
            await transaction.execute("SET LOCAL ROLE clerk")
            loaded = await transaction.load(load, frame(load.columns, [(n, n % 3) for n in range(7)]))
        assert [code for _, code in codes(loaded)] == ["check"] * 2 + ["policy"] * (what == "a policy") + ["check"]
        assert loaded.inserted + len(loaded.refused) == 7
    finally:
        await run(store, "GRANT USAGE ON LANGUAGE plpgsql TO PUBLIC")
        await run(store, f"DROP TABLE {load.table}; DROP ROLE clerk")
