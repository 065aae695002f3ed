"""Resilient mode: enqueue runs the job in the calling process, without the queue."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from conformance.stores import Rig
from engine.conftest import MakeApp
from engine.running import Log
from rowlock import BadPayload, FakeClock, Job, JobFailed, Retry, Rowlock, Snooze, UnknownJobType
from rowlock.control import locks
from rowlock.management import ManagementService
from rowlock.storage.contract import Store
from rowlock.storage.reliability import FailureFilter

NOWHERE = {
    "sqlite": "sqlite:////no/such/folder/jobs.db",
    "postgres": "postgresql://nobody@127.0.0.1:1/nowhere",
    "mongo": "mongodb://127.0.0.1:1/nowhere",
}


@pytest.fixture
async def resilient(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> Rowlock:
    monkeypatch.setenv("QUEUE_RESILIENT_MODE", "true")
    app = await make_app()
    assert app.settings.resilient
    return app


async def test_a_job_is_done_when_enqueue_returns_and_nothing_is_recorded(resilient: Rowlock, store: Store) -> None:
    ran: list[Any] = []

    @resilient.job("async")
    async def in_loop(job: Job, n: int) -> None:
        await asyncio.sleep(0)
        ran.append((job.type, n, job.attempt, job.max_attempts))

    @resilient.job("plain")
    def in_thread(job: Job, n: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        job.progress(50)
        ran.append((job.type, n, job.attempt, job.max_attempts))

    @resilient.job("batch", batch=10)
    async def batch(jobs: list[Job]) -> None:
        ran.extend((job.type, job.payload["n"], job.attempt, job.max_attempts) for job in jobs)

    await in_loop.enqueue(n=1)
    await resilient.enqueue_many([("plain", {"n": 2}), ("batch", {"n": 3})])
    await asyncio.to_thread(resilient.blocking.enqueue, "async", {"n": 4})
    assert ran == [("async", 1, 1, 1), ("plain", 2, 1, 1), ("batch", 3, 1, 1), ("async", 4, 1, 1)]
    assert (await store.counts()).get("succeeded", 0) == 0
    assert resilient.store.calls == {}


@pytest.mark.every_store
async def test_it_works_without_the_database(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_RESILIENT_MODE", "1")
    ran = []
    async with Rowlock(NOWHERE[rig.name]) as app:
        app.job("a")(lambda job: ran.append(job.id))
        receipt = await app.enqueue("a")
    assert ran == [receipt.job_id]


@pytest.mark.every_store
async def test_locks_are_taken(resilient: Rowlock, store: Store) -> None:
    ran: list[str] = []

    @resilient.job("snapshots", lock=resilient.lock("monthly", "{month}"))
    async def snapshots(job: Job, month: str, version: int = 1, fail: bool = False) -> None:
        ran.append(month)
        if fail:
            raise RuntimeError("no")

    management = ManagementService(resilient)
    first = await management.enqueue("snapshots", {"month": "2026-10"})
    second = await management.enqueue("snapshots", {"month": "2026-10"})
    assert (first.result, second.result) == (None, {"skipped": True, "reason": "already_completed"})
    await management.enqueue("snapshots", {"month": "2026-10", "version": 2})
    with pytest.raises(JobFailed):
        await management.enqueue("snapshots", {"month": "2026-11", "fail": True})
    await management.enqueue("snapshots", {"month": "2026-11"})
    assert ran == ["2026-10", "2026-10", "2026-11", "2026-11"]
    assert {lock.status for lock in await locks.listed(store, None, None, 10)} == {"completed"}


@pytest.mark.every_store
async def test_failures_are_recorded(resilient: Rowlock, store: Store, clock: FakeClock) -> None:
    @resilient.job("a")
    async def a(job: Job, how: str, password: str = "") -> None:
        raise {"retry": Retry("later"), "snooze": Snooze(5)}.get(how) or RuntimeError("password=hunter2")

    for how in ("raise", "retry", "snooze"):
        with pytest.raises((RuntimeError, Retry, Snooze)):
            await a.enqueue(how=how, password="hunter2")
    found = (await store.failures(FailureFilter(), 10)).failures
    assert sorted(f.failed_reason for f in found) == [
        "RuntimeError: password=[REDACTED] (attempt 1 of 1, the last)",
        "later (attempt 1 of 1, the last)",
    ]
    for failure in found:
        assert (failure.job_name, failure.attempts, failure.max_attempts) == ("a", 1, 1)
        assert failure.is_final_attempt
        assert failure.first_failed_at == clock.now()
        assert "hunter2" not in repr(failure)


async def test_what_a_job_results_in_is_told(resilient: Rowlock, rig: Rig, store: Store) -> None:
    @resilient.job("returns")
    async def returns(job: Job) -> dict[str, int]:
        return {"n": 1}

    @resilient.job("batch", batch=5)
    async def batch(jobs: list[Job]) -> list[dict[str, int]]:
        return [{"n": 2} for _ in jobs]

    @resilient.job("commits")
    async def commits(job: Job) -> None:
        async with job.transaction() as tx:
            tx.result = {"n": 3}

    management = ManagementService(resilient)
    told = [(await management.enqueue(name)).result for name in ("returns", "batch", "commits")]
    assert told == [{"n": 1}, {"n": 2}, {"n": 3}]


async def test_a_result_that_is_not_json_is_a_failure(resilient: Rowlock) -> None:
    resilient.job("odd")(lambda job: object())
    with pytest.raises(BadPayload, match="not JSON"):
        await resilient.enqueue("odd")


@pytest.mark.every_store
async def test_locks_and_failures_do_not_stop_work_without_the_database(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    monkeypatch.setenv("QUEUE_RESILIENT_MODE", "1")
    async with Rowlock(NOWHERE[rig.name]) as app:

        @app.job("a", lock=app.lock("a", "all"))
        async def a(job: Job, fail: bool = False) -> dict[str, bool]:
            if fail:
                raise RuntimeError("no")
            return {"done": True}

        management = ManagementService(app)
        assert (await management.enqueue("a")).result == {"done": True}
        with pytest.raises(JobFailed, match="RuntimeError: no"):
            await management.enqueue("a", {"fail": True})
    assert len(log.of("lock.failed_open")) == 2
    assert len(log.of("failure.not_recorded")) == 1


@pytest.mark.every_store
def test_the_command_line_needs_no_database(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(
        "from rowlock import Job, Rowlock\napp = Rowlock()\n"
        "@app.job('hello')\nasync def hello(job: Job, fail: bool = False) -> dict:\n"
        "    if fail:\n        raise RuntimeError('no')\n    return {'said': 'hello'}\n"
    )
    place = {"DATABASE_URL": NOWHERE[rig.name], "ROWLOCK_APP": "small:app"}
    asked = [sys.executable, "-m", "rowlock", "enqueue", "hello", "--json"]

    def run(*more: str, resilient: str = "true") -> subprocess.CompletedProcess[str]:
        environment = os.environ | place | {"QUEUE_RESILIENT_MODE": resilient}
        return subprocess.run([*asked, *more], cwd=tmp_path, env=environment, capture_output=True, text=True)

    done = run()
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["status"], told["result"]) == ("succeeded", {"said": "hello"})
    failed = run("--payload", '{"fail": true}')
    assert failed.returncode == 1
    assert "RuntimeError: no" in failed.stdout + failed.stderr
    refused = run(resilient="false")
    assert refused.returncode == 1
    assert json.loads(refused.stdout or refused.stderr)["code"] == "store_unavailable"


async def test_a_store_that_hangs_does_not_stop_work(
    resilient: Rowlock, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    monkeypatch.setattr("rowlock.jobs.resilient._STORE_SECONDS", 0.01)
    resilient.job("a", lock=resilient.lock("a", "all"))(lambda job: 1)
    with resilient.store.stalled("read job_idempotency_locks"):
        assert (await ManagementService(resilient).enqueue("a")).result == 1
    assert [line["reason"] for line in log.of("lock.failed_open")] == ["the store did not answer within 0.01 s"]


async def test_its_exception_is_the_callers(resilient: Rowlock, log: Log) -> None:
    @resilient.job("a")
    async def a(job: Job, how: str) -> None:
        raise Retry("later") if how == "retry" else RuntimeError("password=hunter2")

    with pytest.raises(RuntimeError, match="hunter2"):
        await a.enqueue(how="raise")
    with pytest.raises(Retry):
        await a.enqueue(how="retry")
    assert [line["reason"] for line in log.of("job.failed")] == ["RuntimeError: password=[REDACTED]", "later"]


async def test_what_is_wrong_is_refused_as_ever(resilient: Rowlock) -> None:
    @resilient.job("a")
    async def a(job: Job, n: int) -> None: ...

    with pytest.raises(UnknownJobType):
        await resilient.enqueue("b")
    with pytest.raises(BadPayload):
        await a.enqueue(n="x")


@pytest.mark.every_store
async def test_a_handlers_transaction_keeps_its_writes(resilient: Rowlock, rig: Rig, store: Store) -> None:
    await rig.make_ledger(store)

    @resilient.job("a")
    async def a(job: Job) -> None:
        async with job.transaction() as tx:
            await rig.write_ledger(tx, "written")

    await a.enqueue()
    async with store.transaction() as transaction:
        assert await rig.read_ledger(transaction) == ["written"]


@pytest.mark.every_store
async def test_a_job_enqueued_on_a_callers_connection_runs_too(resilient: Rowlock) -> None:
    ran = []
    resilient.job("a")(lambda job: ran.append(job.id))

    def synchronous() -> str:
        return resilient.blocking.enqueue("a", connection=object()).job_id

    assert ran == [await asyncio.to_thread(synchronous)]


async def test_a_batch_handler_that_returns_no_entry_for_its_job_fails_as_it_does_in_a_worker(
    resilient: Rowlock, log: Log
) -> None:
    @resilient.job("batch", batch=5)
    async def batch(jobs: list[Job]) -> list[Any]:
        return []

    with pytest.raises(BadPayload, match="a list with one entry per job"):
        await resilient.enqueue("batch")
    (line,) = log.of("job.failed")
    assert "a list with one entry per job" in line["reason"]
