"""job.transaction(): the handler's writes and its job's completion commit together, or neither does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from conformance.builders import BEN
from conformance.stores import Rig
from engine.conftest import MakeApp
from engine.running import Log, done, drain, record, soon, take_over, working
from rowlock import FakeClock, Job, JobError, LeaseLost, Rowlock, Status, UnknownJobType
from rowlock.storage.contract import Store

Ledger = Callable[[], Awaitable[list[str]]]


@pytest.fixture
async def ledger(rig: Rig, store: Store) -> Ledger:
    """A user's table, as another process reads it."""
    await rig.make_ledger(store)

    async def read() -> list[str]:
        async with store.transaction() as transaction:
            return await rig.read_ledger(transaction)

    return read


@pytest.mark.every_store
async def test_writes_and_completion_commit_together(app: Rowlock, rig: Rig, ledger: Ledger, log: Log) -> None:
    @app.job("a")
    async def a(job: Job) -> str:
        async with job.transaction() as tx:
            await rig.write_ledger(tx, "written")
            assert await rig.read_ledger(tx) == ["written"]
            assert await ledger() == [] if rig.name != "sqlite" else True  # SQLite's writers wait for each other
            tx.result = {"lines": 1}
        return "not used"

    after = await done(app, (await a.enqueue()).job_id)
    assert (after.status, after.result, after.attempts) == (Status.SUCCEEDED, '{"lines":1}', 1)
    assert await ledger() == ["written"]
    assert log.of("lease.lost") == []
    assert len(log.of("job.succeeded")) == 1


@pytest.mark.every_store
async def test_a_plain_handler_uses_it_with_with(app: Rowlock, rig: Rig, ledger: Ledger) -> None:
    @app.job("next")
    async def following(job: Job, number: int) -> None: ...

    @app.job("a")
    def a(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute(*rig.write_line("plain"))
            lines = tx.fetch(*rig.read_lines())
            tx.enqueue("next", {"number": 1})
            tx.result = rig.lines(lines)
            assert tx.result == ["plain"]

    after = await done(app, (await a.enqueue()).job_id)
    assert (after.status, after.result) == (Status.SUCCEEDED, '["plain"]')
    assert await ledger() == ["plain"]
    assert len((await app.jobs(type="next", status="succeeded")).jobs) == 1


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.every_store
async def test_an_exception_rolls_back_and_the_job_is_tried_again(
    app: Rowlock, rig: Rig, ledger: Ledger, clock: FakeClock, plain: bool
) -> None:
    async def in_loop(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute(*rig.write_line(f"attempt {job.attempt}"))
            if job.attempt == 1:
                raise RuntimeError("in the middle")

    def in_thread(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute(*rig.write_line(f"attempt {job.attempt}"))
            if job.attempt == 1:
                raise RuntimeError("in the middle")

    app.job("a")(in_thread if plain else in_loop)
    job_id = (await app.enqueue("a")).job_id
    after = await done(app, job_id)
    assert (after.status, after.error) == (Status.QUEUED, "RuntimeError: in the middle")
    assert await ledger() == []
    clock.advance(2)
    assert (await done(app, job_id)).status is Status.SUCCEEDED
    assert await ledger() == ["attempt 2"]


async def test_errors_keep_their_meaning_inside_a_transaction(app: Rowlock) -> None:
    @app.job("a")
    async def a(job: Job, missing: bool) -> None:
        async with job.transaction():
            raise FileNotFoundError("gone.xlsx") if missing else TimeoutError("the other system is slow")

    gone, slow = await a.enqueue(missing=True), await a.enqueue(missing=False)
    await drain(app)
    after = await record(app, gone.job_id)
    assert (after.status, after.error) == (Status.FAILED, "FileNotFoundError: gone.xlsx")
    after = await record(app, slow.job_id)
    assert (after.status, after.error) == (Status.QUEUED, "TimeoutError: the other system is slow")


@pytest.mark.every_store
async def test_when_the_lease_is_lost_nothing_is_kept(
    make_app: MakeApp, rig: Rig, ledger: Ledger, clock: FakeClock, store: Store, log: Log
) -> None:
    app = await make_app()
    entered, release, over = asyncio.Event(), asyncio.Event(), asyncio.Event()
    ended: list[BaseException | None] = []

    @app.job("a")
    async def a(job: Job) -> None:
        entered.set()
        await release.wait()
        try:
            async with job.transaction() as tx:
                await rig.write_ledger(tx, "by the late one")
                await tx.enqueue("a")
            ended.append(None)
        except LeaseLost as error:
            ended.append(error)
            raise
        finally:
            over.set()

    job_id = (await a.enqueue()).job_id
    async with working(app):
        await soon(entered.wait())
        claimed = await take_over(app, store, clock, BEN)
        release.set()
        await soon(over.wait())
    assert isinstance(ended[0], LeaseLost)
    assert job_id in str(ended[0])
    assert await ledger() == []
    during = await record(app, job_id)
    assert (during.status, during.lock_owner, during.lease) == (Status.PROCESSING, BEN, claimed.lease)
    assert [job.id for job in (await app.jobs()).jobs] == [job_id]
    assert len(log.of("lease.lost")) == 1


@pytest.mark.every_store
async def test_jobs_enqueued_in_the_transaction_exist_if_it_commits(app: Rowlock) -> None:
    @app.job("next")
    async def following(job: Job) -> str:
        return "followed"

    @app.job("a")
    async def a(job: Job, fail: bool) -> None:
        async with job.transaction() as tx:
            receipt = await tx.enqueue("next", priority=5, company_id="acme")
            assert receipt.created
            if fail:
                raise RuntimeError("after all")

    await a.enqueue(fail=True)
    await drain(app)
    assert (await app.jobs(type="next")).jobs == []
    await a.enqueue(fail=False)
    await drain(app)
    (followed,) = (await app.jobs(type="next")).jobs
    assert (followed.result, followed.priority, followed.company_id) == ('"followed"', 5, "acme")


async def test_a_job_is_completed_once(app: Rowlock) -> None:
    @app.job("a")
    async def a(job: Job) -> None:
        async with job.transaction() as tx:
            tx.result = 1
        with pytest.raises(JobError, match="completed by an earlier"):
            async with job.transaction():
                pass

    after = await done(app, (await a.enqueue()).job_id)
    assert (after.status, after.result) == (Status.SUCCEEDED, "1")


@pytest.mark.every_store
async def test_what_fails_after_the_commit_does_not_undo_it(app: Rowlock, rig: Rig, ledger: Ledger) -> None:
    @app.job("a")
    async def a(job: Job) -> None:
        async with job.transaction() as tx:
            await rig.write_ledger(tx, "kept")
        raise RuntimeError("too late")

    after = await done(app, (await a.enqueue()).job_id)
    assert (after.status, after.attempts) == (Status.SUCCEEDED, 1)
    assert await ledger() == ["kept"]


@pytest.mark.every_store
async def test_a_result_that_is_no_json_rolls_back(app: Rowlock, rig: Rig, ledger: Ledger) -> None:
    @app.job("a")
    async def a(job: Job) -> None:
        async with job.transaction() as tx:
            await rig.write_ledger(tx, "not kept")
            tx.result = object()

    after = await done(app, (await a.enqueue()).job_id)
    assert after.status is Status.FAILED
    assert "result of a" in (after.error or "")
    assert await ledger() == []


async def test_a_result_has_the_limit_of_every_result(make_app: MakeApp, rig: Rig, ledger: Ledger) -> None:
    app = await make_app(payload_bytes_max=1_000)

    @app.job("a")
    async def a(job: Job) -> None:
        async with job.transaction() as tx:
            await rig.write_ledger(tx, "not kept")
            tx.result = "x" * 999

    after = await done(app, (await a.enqueue()).job_id)
    assert after.status is Status.FAILED
    assert "1,001 bytes, the limit is 1,000" in (after.error or "")
    assert await ledger() == []


async def test_it_must_be_entered_and_knows_only_registered_types(app: Rowlock, rig: Rig) -> None:
    @app.job("a")
    async def a(job: Job) -> None:
        with pytest.raises(JobError, match="must be entered first"):
            await job.transaction().execute(*rig.read_lines())
        async with job.transaction() as tx:
            assert tx.connection is not None
            with pytest.raises(UnknownJobType):
                await tx.enqueue("nobody")

    assert (await done(app, (await a.enqueue()).job_id)).status is Status.SUCCEEDED
