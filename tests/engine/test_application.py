"""An application: declare, open, query and close."""

from __future__ import annotations

import asyncio

import pytest

from conformance.builders import near
from conformance.stores import Rig
from engine.running import done, drain, record
from rowlock import (
    CancelResult,
    FakeClock,
    Job,
    JobNotFound,
    JobNotRetryable,
    Permanent,
    Rowlock,
    SchemaMissing,
    SettingsError,
    Status,
    UnknownJobType,
)
from rowlock.ids import uuid7
from rowlock.storage.contract import Store


async def test_a_fresh_application_opens_its_store_by_itself(rig: Rig, store: Store) -> None:
    async with Rowlock(rig.url) as app:

        @app.job("greet")
        async def greet(job: Job) -> str:
            return "hello"

        first, second = await asyncio.gather(greet.enqueue(), greet.enqueue())
        assert first.job_id != second.job_id
        assert (await done(app, first.job_id)).status is Status.SUCCEEDED


@pytest.mark.every_store
async def test_a_fresh_application_migrates_an_empty_database(rig: Rig) -> None:
    async with Rowlock(await rig.new_place()) as app:
        assert await app.migrate() != []
        assert await app.migrate() == []


@pytest.mark.every_store
async def test_a_worker_on_an_empty_database_says_what_to_do(rig: Rig) -> None:
    async with Rowlock(await rig.new_place()) as app:
        with pytest.raises(SchemaMissing, match="rowlock migrate"):
            await drain(app)


@pytest.mark.every_store
async def test_a_closed_application_can_be_used_again(app: Rowlock, rig: Rig) -> None:
    @app.job("greet")
    async def greet(job: Job) -> None: ...

    before = await greet.enqueue()
    await app.close()
    assert (await done(app, before.job_id)).status is Status.SUCCEEDED


async def test_a_handler_is_still_a_function(app: Rowlock) -> None:
    @app.job("double")
    def double(job: Job | None, number: int) -> int:
        """Twice as much."""
        return 2 * number

    assert double(None, 4) == 8
    assert (double.name, double.__name__, double.__doc__) == ("double", "double", "Twice as much.")


async def test_a_handler_enqueues_itself(app: Rowlock) -> None:
    @app.job("double")
    def double(job: Job, number: int) -> int:
        return 2 * number

    receipt = await double.enqueue(number=21)
    assert receipt.created
    assert (await done(app, receipt.job_id)).result == "42"


async def test_an_unknown_type_is_refused_with_the_nearest_names(app: Rowlock) -> None:
    @app.job("send.email")
    async def send(job: Job) -> None: ...

    with pytest.raises(UnknownJobType, match=r"send\.emial.*did you mean 'send\.email'"):
        await app.enqueue("send.emial")


async def test_a_type_is_registered_once(app: Rowlock) -> None:
    @app.job("send")
    async def send(job: Job) -> None: ...

    with pytest.raises(SettingsError, match=r"'send' is registered twice"):
        app.job("send")(lambda job: None)


async def test_jobs_are_listed_by_status_type_and_queue_newest_first(app: Rowlock) -> None:
    @app.job("a")
    async def a(job: Job) -> None: ...

    @app.job("b", queue="side")
    async def b(job: Job) -> None: ...

    first, second = (await a.enqueue()).job_id, (await b.enqueue()).job_id
    assert [job.id for job in (await app.jobs()).jobs] == [second, first]
    assert [job.id for job in (await app.jobs(type="a")).jobs] == [first]
    assert [job.id for job in (await app.jobs(queue="side")).jobs] == [second]
    await drain(app, "side")
    assert [job.id for job in (await app.jobs(status="queued")).jobs] == [first]
    assert [job.id for job in (await app.jobs(status=Status.SUCCEEDED)).jobs] == [second]
    page = await app.jobs(limit=1)
    assert [job.id for job in (await app.jobs(limit=1, cursor=page.next_cursor)).jobs] == [first]


async def test_a_waiting_job_is_cancelled_and_never_runs(app: Rowlock) -> None:
    ran = []

    @app.job("a")
    async def a(job: Job) -> None:
        ran.append(job.id)

    job_id = (await a.enqueue()).job_id
    assert await app.cancel(job_id) is CancelResult.CANCELLED
    assert (await done(app, job_id)).status is Status.CANCELLED
    assert await app.cancel(job_id) is CancelResult.ALREADY_FINAL
    assert ran == []


async def test_a_job_that_is_not_there_is_named(app: Rowlock) -> None:
    nobody = uuid7()
    assert await app.get(nobody) is None
    with pytest.raises(JobNotFound, match=nobody):
        await app.cancel(nobody)
    with pytest.raises(JobNotFound, match=nobody):
        await app.retry(nobody)


async def test_a_dead_job_is_retried_by_hand_with_fresh_attempts(app: Rowlock, clock: FakeClock) -> None:
    fixed = []

    @app.job("a")
    async def a(job: Job) -> int:
        if not fixed:
            raise Permanent("not yet")
        return job.attempt

    job_id = (await a.enqueue()).job_id
    assert (await done(app, job_id)).status is Status.FAILED
    fixed.append(True)
    await app.retry(job_id)
    after = await done(app, job_id)
    assert (after.status, after.result, after.attempts) == (Status.SUCCEEDED, "1", 1)
    with pytest.raises(JobNotRetryable, match="succeeded"):
        await app.retry(job_id)


async def test_the_record_of_a_job_tells_its_whole_story(app: Rowlock, clock: FakeClock) -> None:
    @app.job("a", priority=7, visibility_seconds=90)
    async def a(job: Job, name: str) -> dict[str, str]:
        return {"hello": name}

    created = clock.now()
    receipt = await app.enqueue("a", {"name": "Ann"}, company_id="acme", max_attempts=3)
    clock.advance(5)
    after = await done(app, receipt.job_id)
    assert (after.type, after.queue, after.priority, after.company_id) == ("a", "default", 7, "acme")
    assert (after.attempts, after.max_attempts, after.visibility_timeout_ms) == (1, 3, 90_000)
    assert (after.status, after.result, after.error) == (Status.SUCCEEDED, '{"hello":"Ann"}', None)
    assert after.created_at == created
    assert after.finished_at == clock.now()
    assert near(after.started_at, clock.now(), within_seconds=1)
    assert (await record(app, receipt.job_id)).lock_owner is None
