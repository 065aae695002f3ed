"""Hints on SQLite: every commit is one, of any connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from rowlock.clock import StoreClock
from rowlock.errors import StoreUnavailable
from rowlock.ids import uuid7
from rowlock.storage.records import NewJob, Outcome, Settlement
from rowlock.storage.sqlite import SqliteStore, listen

Hint = tuple[str, str]
SECONDS = 60
ANY = ("queue", "*")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(f"sqlite:///{tmp_path}/jobs.db", StoreClock())
    await store.open()
    await store.migrate()
    yield store
    await store.close()


@asynccontextmanager
async def listening(store: SqliteStore) -> AsyncIterator[asyncio.Queue[Hint]]:
    """Hints, after the one that says that the listener is there."""
    heard: asyncio.Queue[Hint] = asyncio.Queue()
    task = asyncio.create_task(store.listen(lambda kind, name: heard.put_nowait((kind, name))))
    try:
        yield heard
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def hear(heard: asyncio.Queue[Hint], wanted: Hint) -> list[Hint]:
    """Everything that is heard up to this hint."""
    so_far = []
    async with asyncio.timeout(SECONDS):
        while True:
            so_far.append(await heard.get())
            if so_far[-1] == wanted:
                return so_far


async def test_a_listener_begins_with_a_hint_so_that_nothing_before_it_is_missed(store: SqliteStore) -> None:
    async with listening(store) as heard:
        assert await hear(heard, ANY) == [ANY]


async def test_a_commit_by_any_connection_is_a_hint(store: SqliteStore) -> None:
    async with listening(store) as heard:
        await hear(heard, ANY)
        await store.enqueue([NewJob(uuid7(), "send.email", "{}")])
        await hear(heard, ANY)
        foreign = apsw.Connection(str(store.path))
        foreign.execute("CREATE TABLE theirs (x)")
        foreign.close()
        await hear(heard, ANY)


async def test_a_cancel_is_told_once(store: SqliteStore) -> None:
    (receipt,) = await store.enqueue([NewJob(uuid7(), "send.email", "{}")])
    owner = uuid7()
    (claimed,) = await store.claim("default", owner, 1)
    told = ("cancel", receipt.job_id)
    async with listening(store) as heard:
        await hear(heard, ANY)
        await store.cancel(receipt.job_id)
        await hear(heard, told)
        await store.wake("after")
        assert told not in await hear(heard, ("queue", "after"))
        await store.settle(owner, [Settlement(claimed.id, claimed.lease, Outcome.CANCELLED)])


async def test_a_cancel_from_before_is_told_to_a_new_listener(store: SqliteStore) -> None:
    (receipt,) = await store.enqueue([NewJob(uuid7(), "send.email", "{}")])
    await store.claim("default", uuid7(), 1)
    await store.cancel(receipt.job_id)
    async with listening(store) as heard:
        await hear(heard, ("cancel", receipt.job_id))


async def test_a_file_that_cannot_be_opened_ends_listening(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await listen.listen(tmp_path / "no" / "jobs.db", lambda kind, name: None)


def test_the_quieter_it_is_the_less_often_the_listener_looks() -> None:
    assert listen._pause(0) == listen.BUSY_POLL_SECONDS
    assert listen._pause(listen.BUSY_UNTIL_SECONDS) == listen.POLL_SECONDS
    assert listen._pause(listen.IDLE_AFTER_SECONDS) == listen.IDLE_POLL_SECONDS
