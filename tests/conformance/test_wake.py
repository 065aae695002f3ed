"""Wake and listen: hints that wake an idle worker before its next poll."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from conformance.builders import (
    ANN,
    EVERYTHING,
    VISIBILITY_SECONDS,
    new_job,
    put,
    put_and_end,
    put_and_take,
    put_many,
    taken,
)
from conformance.import_builders import in_status, new_import
from conformance.stores import Rig
from rowlock.clock import FakeClock
from rowlock.control import schedules
from rowlock.storage.contract import Store
from rowlock.storage.imports import ImportStatus
from rowlock.storage.records import Outcome
from rowlock.storage.reliability import Tick

Hint = tuple[str, str]
Act = Awaitable[Any]
ANY = "*"  # any queue may have work
SECONDS = 60


class Ear:
    """Collects hints, and waits for a given one."""

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
    """Listen in a task; starts the block after the first hint."""
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


# Actions that make a job available while other workers are idle until their next poll.


async def _resume(store: Store, clock: FakeClock) -> Act:
    await store.pause("default")
    await put(store)
    return store.resume("default")


async def _run_now(store: Store, clock: FakeClock) -> Act:
    return store.run_now(await put(store, delay_seconds=3600))


async def _retry(store: Store, clock: FakeClock) -> Act:
    await put_and_end(store, Outcome.FAILED)
    return store.retry(EVERYTHING, 1)


async def _rescue(store: Store, clock: FakeClock) -> Act:
    await put_and_take(store)
    clock.advance(VISIBILITY_SECONDS + 1)
    return store.rescue(10, {}, str)


async def _fire(store: Store, clock: FakeClock) -> Act:
    now = clock.now()
    await schedules.declare(store, [("nightly", "every hour", now)])
    return schedules.fire(store, Tick("nightly", now, now, now + timedelta(hours=1), new_job()))


async def _commit(store: Store, clock: FakeClock) -> Act:
    async def commit() -> None:
        async with store.transaction() as transaction:
            await transaction.enqueue([new_job()])

    return commit()


async def _add_import(store: Store, clock: FakeClock) -> Act:
    new = new_import()
    return store.add_import(new, new_job(id=new.id))


async def _resume_import(store: Store, clock: FakeClock) -> Act:
    import_id = await in_status(store, ImportStatus.FAILED)
    return store.resume_import(import_id, {index: new_job() for index in (0, 1)})


@pytest.mark.parametrize(
    "prepare",
    [_resume, _run_now, _retry, _rescue, _fire, _commit, _add_import, _resume_import],
    ids=lambda f: f.__name__[1:],
)
async def test_what_makes_a_job_available_is_heard(
    rig: Rig, store: Store, other: Store, clock: FakeClock, prepare: Callable[[Store, FakeClock], Awaitable[Act]]
) -> None:
    before = await rig.another(clock)
    act = await prepare(before, clock)
    async with listening(other) as ear:
        # A barrier, so that earlier hints are not mistaken for the expected one.
        await store.wake("barrier")
        await ear.wait_for(("queue", "barrier"))
        await act
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
