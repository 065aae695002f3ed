"""Unique policies: which jobs count as duplicates, and what enqueue does with them."""

from __future__ import annotations

import asyncio

import pytest

from engine.conftest import MakeApp
from engine.running import done, drain
from rowlock import (
    DuplicateJob,
    FakeClock,
    Job,
    JobNotRetryable,
    Permanent,
    Receipt,
    Rowlock,
    SettingsError,
    Status,
    Unique,
)
from rowlock.management import ManagementService
from rowlock.settings import load


async def nothing(job: Job) -> None: ...


async def test_two_equal_jobs_are_two_jobs_unless_said_otherwise(app: Rowlock) -> None:
    app.job("a")(nothing)
    first, second = await app.enqueue("a", {"x": 1}), await app.enqueue("a", {"x": 1})
    assert first.created
    assert second.created
    assert first.job_id != second.job_id


@pytest.mark.every_store
@pytest.mark.parametrize("setting", [True, False])
async def test_an_application_may_have_a_default(make_app: MakeApp, clock: FakeClock, setting: bool) -> None:
    app = await make_app(**{"unique": "window:60"} if setting else {})
    if not setting:
        app._unique = Unique.window(60)
    app.job("a")(lambda job, x=0: None)
    app.job("own", unique=Unique.forever())(lambda job: None)
    app.job("free", unique=Unique.none())(lambda job: None)
    first = await app.enqueue("a", {"x": 1})
    with pytest.raises(DuplicateJob) as refused:
        await app.enqueue("a", {"x": 1})
    assert refused.value.existing_job_id == first.job_id
    assert (await app.enqueue("a", {"x": 2})).created
    assert (await app.enqueue("a", {"x": 1}, unique=Unique.none())).created
    await app.enqueue("own")
    for _ in range(2):
        assert (await app.enqueue("free")).created
    with pytest.raises(DuplicateJob):
        await app.enqueue_many([("a", {"x": 3}), ("a", {"x": 1})])
    clock.advance(61)
    assert (await app.enqueue("a", {"x": 1})).created
    with pytest.raises(DuplicateJob):
        await app.enqueue("own")


async def test_a_default_for_requests_leaves_code_alone(make_app: MakeApp) -> None:
    app = await make_app(unique="forever", unique_for="requests")
    app.job("a")(nothing)
    assert (await app.enqueue("a")).created
    assert (await app.enqueue("a")).created
    management = ManagementService(app)
    assert (await management.enqueue("a", {})).created
    with pytest.raises(DuplicateJob):
        await management.enqueue("a", {})
    assert (await management.enqueue("a", {}, unique=Unique.none())).created


async def test_a_default_does_not_stop_schedules(make_app: MakeApp) -> None:
    app = await make_app(unique="forever")
    app.job("a")(nothing)
    app.schedule("hourly", "a", every_seconds=3_600)
    jobs = {(await ManagementService(app).run_schedule("hourly")).job_id for _ in range(2)}
    assert len(jobs) == 2


@pytest.mark.parametrize(
    "text", ["sometimes", "window", "window:", "window:-1", "window:0", "window:999999999", "window:x", "forever:3"]
)
def test_a_default_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="QUEUE_UNIQUE"):
        load(unique=text)


async def test_forever_means_once_ever(app: Rowlock, clock: FakeClock) -> None:
    app.job("a", unique=Unique.forever())(nothing)
    first = await app.enqueue("a", {"x": 1})
    await drain(app)
    clock.advance(days=3650)
    with pytest.raises(DuplicateJob) as refused:
        await app.enqueue("a", {"x": 1})
    assert refused.value.existing_job_id == first.job_id
    assert first.job_id in str(refused.value)
    assert refused.value.code == "duplicate_job"
    assert len((await app.jobs()).jobs) == 1


@pytest.mark.every_store
@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_dead_job_blocks_an_identical_one_until_it_is_retried_or_discarded(
    app: Rowlock, cancelled: bool
) -> None:
    works = list[bool]()

    @app.job("a", unique=Unique.window(86_400))
    async def a(job: Job) -> None:
        if not works:
            raise Permanent("not yet")

    job_id = (await app.enqueue("a")).job_id
    if cancelled:
        await app.cancel(job_id)
    await drain(app)
    with pytest.raises(DuplicateJob, match="retry it if it failed or was cancelled") as refused:
        await app.enqueue("a")
    assert refused.value.existing_job_id == job_id
    works.append(True)
    await app.retry(job_id)
    assert (await done(app, job_id)).status is Status.SUCCEEDED
    works.clear()
    with pytest.raises(DuplicateJob):
        await app.enqueue("a")


async def test_while_active_frees_the_key_when_the_job_is_over(app: Rowlock) -> None:
    @app.job("a", unique=Unique.while_active())
    async def a(job: Job, fail: bool = False) -> None:
        if fail:
            raise Permanent("no")

    for payload in ({}, {"fail": True}):
        first = await app.enqueue("a", payload)
        with pytest.raises(DuplicateJob) as refused:
            await app.enqueue("a", payload)
        assert refused.value.existing_job_id == first.job_id
        await drain(app)
        assert (await app.enqueue("a", payload)).created
        await drain(app)


@pytest.mark.every_store
async def test_while_active_holds_while_the_job_runs_and_waits_for_its_retry(app: Rowlock, clock: FakeClock) -> None:
    seen: list[Receipt] = []
    again = Unique.while_active(on_conflict="return_existing")

    @app.job("a", unique=again)
    async def a(job: Job) -> None:
        seen.append(await app.enqueue("a"))
        if job.attempt == 1:
            raise RuntimeError("again")

    first = await app.enqueue("a")
    await drain(app)
    assert await app.enqueue("a") == Receipt(first.job_id, False)
    clock.advance(2)
    assert (await done(app, first.job_id)).status is Status.SUCCEEDED
    assert seen == [Receipt(first.job_id, False)] * 2


@pytest.mark.every_store
async def test_a_window_ends_by_the_stores_clock(app: Rowlock, clock: FakeClock) -> None:
    app.job("a", unique=Unique.window(300))(nothing)
    first = await app.enqueue("a")
    await drain(app)
    clock.advance(299)
    with pytest.raises(DuplicateJob) as refused:
        await app.enqueue("a")
    assert refused.value.existing_job_id == first.job_id
    clock.advance(2)
    assert (await app.enqueue("a")).created


async def test_a_duplicate_may_give_the_job_that_is_there(app: Rowlock) -> None:
    app.job("a", unique=Unique.forever(on_conflict="return_existing"))(nothing)
    first = await app.enqueue("a", {"x": 1})
    assert await app.enqueue("a", {"x": 1}) == Receipt(first.job_id, False)
    assert (await app.enqueue("a", {"x": 2})).created


async def test_the_order_of_keys_does_not_matter_but_types_and_values_do(app: Rowlock) -> None:
    app.job("a", unique=Unique.forever())(nothing)
    app.job("b", unique=Unique.forever())(nothing)
    await app.enqueue("a", {"x": 1, "y": {"p": [1, 2], "q": None}})
    with pytest.raises(DuplicateJob):
        await app.enqueue("a", {"y": {"q": None, "p": [1, 2]}, "x": 1})
    for payload in ({"x": 1, "y": {"p": [2, 1], "q": None}}, {"x": "1", "y": {"p": [1, 2], "q": None}}, {"x": 1}):
        assert (await app.enqueue("a", payload)).created
    assert (await app.enqueue("b", {"x": 1, "y": {"p": [1, 2], "q": None}})).created


async def test_a_call_may_say_when_it_is_a_duplicate(app: Rowlock) -> None:
    app.job("a")(nothing)
    app.job("b")(nothing)
    key = Unique.forever(key="payment_sync_7")
    first = await app.enqueue("a", {"x": 1}, unique=key)
    for again in (("a", {"x": 2}), ("b", {})):
        with pytest.raises(DuplicateJob) as refused:
            await app.enqueue(*again, unique=key)
        assert refused.value.existing_job_id == first.job_id
    assert (await app.enqueue("a", {"x": 1})).created


@pytest.mark.every_store
async def test_of_many_producers_at_once_one_wins(make_app: MakeApp) -> None:
    apps = [await make_app() for _ in range(3)]
    for app in apps:
        app.job("a", unique=Unique.forever(on_conflict="return_existing"))(nothing)
    receipts = await asyncio.gather(*(app.enqueue("a", {"x": 1}) for app in apps for _ in range(10)))
    assert sum(receipt.created for receipt in receipts) == 1
    assert len({receipt.job_id for receipt in receipts}) == 1


async def test_a_job_whose_key_another_took_is_not_retried(app: Rowlock) -> None:
    @app.job("a", unique=Unique.while_active())
    async def a(job: Job) -> None:
        raise Permanent("no")

    first = await a.enqueue()
    await drain(app)
    await a.enqueue()
    with pytest.raises(JobNotRetryable, match="another job holds its unique key"):
        await app.retry(first.job_id)


async def test_a_job_is_the_same_under_every_name_of_its_type(make_app: MakeApp) -> None:
    """After two renames, releases that know one, two and three names run side by side."""
    releases = [await make_app() for _ in range(3)]
    for number, app in enumerate(releases):
        names = ["sendMail", "send.mail", "mail.send"][: number + 1]
        app.job(names[-1], unique=Unique.while_active())(nothing)
        for old in names[:-1]:
            app.alias(old, names[-1])
    for enqueuing in releases:
        first = await enqueuing.enqueue(next(iter(enqueuing.registry)).name, {})
        for app in releases:
            for declared in app.registry:
                with pytest.raises(DuplicateJob) as duplicate:
                    await app.enqueue(declared.name, {})
                assert duplicate.value.existing_job_id == first.job_id
        await enqueuing.cancel(first.job_id)


async def test_an_alias_of_an_alias_is_the_older_name(make_app: MakeApp) -> None:
    app = await make_app()
    app.job("c", unique=Unique.forever())(nothing)
    app.alias("b", "c")
    app.alias("a", "b")
    app.job("other", unique=Unique.forever())(nothing)
    assert [app.registry.oldest_name(name) for name in ("a", "b", "c", "other", "unknown")] == [
        "a",
        "a",
        "a",
        "other",
        "unknown",
    ]
    await app.enqueue("other", {})
    await app.enqueue("c", {})
