"""Wake and listen: hints, so that an idle worker need not poll."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from conformance.builders import ANN, EVERYTHING, put, put_and_end, put_and_take, put_many, taken
from rowlock.storage.base import Store
from rowlock.storage.records import Outcome

Hint = tuple[str, str]
ANY = "*"  # any queue may have work
SECONDS = 10


class Ear:
    """Collects hints, and waits for one."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[Hint] = asyncio.Queue()

    def __call__(self, kind: str, name: str) -> None:
        self.heard.put_nowait((kind, name))

    async def wait_for(self, *hints: Hint) -> None:
        async with asyncio.timeout(SECONDS):
            while await self.heard.get() not in hints:
                pass


@asynccontextmanager
async def listening(store: Store) -> AsyncIterator[Ear]:
    """A task that listens, from its first hint on."""
    ear = Ear()
    task = asyncio.create_task(store.listen(ear))
    try:
        await ear.wait_for(("queue", ANY))
        yield ear
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_listening_begins_with_a_hint_about_all_that_came_before(store: Store) -> None:
    async with listening(store):
        pass


async def test_a_new_job_is_heard(store: Store) -> None:
    async with listening(store) as ear:
        await put(store, queue="mail")
        await store.wake("mail")
        await ear.wait_for(("queue", "mail"), ("queue", ANY))


async def test_a_new_job_is_heard_in_other_processes(store: Store, other: Store) -> None:
    async with listening(other) as ear:
        await put(store, queue="mail")
        await store.wake("mail")
        await ear.wait_for(("queue", "mail"), ("queue", ANY))


async def test_a_new_job_is_heard_though_nobody_says_wake(store: Store, other: Store) -> None:
    async with listening(other) as ear:
        await put(store, queue="mail")
        await ear.wait_for(("queue", "mail"), ("queue", ANY))


async def test_a_wake_is_heard_though_there_is_no_new_job(store: Store, other: Store) -> None:
    async with listening(other) as ear:
        await store.wake("mail")
        await ear.wait_for(("queue", "mail"), ("queue", ANY))


async def test_a_retried_job_is_heard(store: Store, other: Store) -> None:
    await put_and_end(store, Outcome.FAILED)
    async with listening(other) as ear:
        await store.retry(EVERYTHING, 1)
        await ear.wait_for(("queue", "default"), ("queue", ANY))


async def test_the_cancel_of_a_running_job_is_heard(store: Store, other: Store) -> None:
    claimed = await put_and_take(store)
    async with listening(other) as ear:
        await store.cancel(claimed.id)
        await ear.wait_for(("cancel", claimed.id))


async def test_the_cancel_of_each_of_many_jobs_is_heard(store: Store, other: Store) -> None:
    await put_many(store, 5)
    claims = await store.claim("default", ANN, 5)
    async with listening(other) as ear:
        for claimed in claims:
            await store.cancel(claimed.id)
            await ear.wait_for(("cancel", claimed.id))


async def test_a_hint_without_a_listener_is_no_error(store: Store) -> None:
    await store.wake("nobody's")


async def test_listening_ends_when_cancelled_and_may_begin_again(store: Store) -> None:
    for _ in range(3):
        async with listening(store) as ear:
            await put(store, queue="mail")
            await ear.wait_for(("queue", "mail"), ("queue", ANY))


async def test_queue_names_may_be_any_text(store: Store) -> None:
    async with listening(store) as ear:
        for name in ("日本 ' \"", "a:b:c", "cancel:x", " ", "*"):
            await put(store, queue=name)
            await store.wake(name)
            await ear.wait_for(("queue", name), ("queue", ANY))


async def test_without_any_listener_jobs_are_found_all_the_same(store: Store, other: Store) -> None:
    job_id = await put(store)
    assert await taken(other) == [job_id]


async def test_a_store_closes_while_someone_listens(store: Store, other: Store) -> None:
    async with listening(other):
        async with asyncio.timeout(SECONDS):
            await other.close()
    await put(store)
