"""Load, on SQLite only: foreign keys that are off by default, columns that ignore case."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from conformance.loads import new_name
from conformance.stores import SqliteRig
from conformance.tables import run
from rowlock.clock import FakeClock
from rowlock.errors import StoreError
from rowlock.storage.contract import Store


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    rig = SqliteRig(tmp_path)
    yield await rig.make(clock)
    await rig.dispose()


@pytest.mark.parametrize("rule", ["", "DEFERRABLE INITIALLY DEFERRED"])
async def test_a_transaction_that_leaves_a_row_without_what_it_refers_to_is_refused(store: Store, rule: str) -> None:
    table = new_name()
    await run(store, f"CREATE TABLE {table} (id INTEGER PRIMARY KEY)")
    await run(store, f"CREATE TABLE {table}_of (id INTEGER REFERENCES {table} {rule})")
    with pytest.raises(StoreError, match="FOREIGN KEY constraint failed"):
        await run(store, f"INSERT INTO {table}_of VALUES (7)")
    async with store.transaction() as transaction:  # the connection still works
        assert await transaction.fetch(f"SELECT * FROM {table}_of") == []


async def test_a_column_tells_whether_it_takes_texts_that_differ_for_equal(store: Store) -> None:
    table = new_name()
    await run(store, f"CREATE TABLE {table} (a TEXT, b TEXT COLLATE NOCASE, c TEXT COLLATE BINARY, d INTEGER)")
    async with store.transaction() as transaction:
        found = await transaction.table(table)
    assert found is not None
    assert [column.name for column in found.columns if column.folds] == ["b"]
