"""Reading: a read-only transaction that blocks no other."""

from __future__ import annotations

import pytest

from conformance.stores import Rig
from rowlock.storage.contract import Store


@pytest.fixture(autouse=True)
async def ledger(rig: Rig, store: Store) -> None:
    await rig.make_ledger(store)


async def test_it_sees_what_was_committed(rig: Rig, store: Store) -> None:
    async with store.transaction() as transaction:
        await rig.write_ledger(transaction, "kept")
    async with store.reading() as looking:
        assert await rig.read_ledger(looking) == ["kept"]


async def test_it_waits_for_no_writer_and_none_waits_for_it(rig: Rig, store: Store, other: Store) -> None:
    async with store.transaction() as writing:
        await rig.write_ledger(writing, "not yet")
        async with other.reading() as looking:
            assert await rig.read_ledger(looking) == []
    async with store.reading() as looking:
        assert await rig.read_ledger(looking) == ["not yet"]
        async with other.transaction() as writing:
            await rig.write_ledger(writing, "more")
    async with store.reading() as looking:
        assert await rig.read_ledger(looking) == ["more", "not yet"]


async def test_it_writes_nothing(rig: Rig, store: Store) -> None:
    with pytest.raises(Exception, match=r"only looks|read-only transaction"):
        async with store.reading() as looking:
            await rig.write_ledger(looking, "smuggled")
    async with store.transaction() as transaction:  # the next transaction on the same connection can write
        assert await rig.read_ledger(transaction) == []
        await rig.write_ledger(transaction, "kept")
    async with store.reading() as looking:
        assert await rig.read_ledger(looking) == ["kept"]
