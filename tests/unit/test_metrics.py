"""Metrics: collected in a process, written to the store, shown for the whole fleet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rowlock import Job, Permanent, Rowlock
from rowlock.management import ManagementService
from rowlock.observe.metrics import Measures, exposition
from rowlock.storage.reliability import Measure


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Rowlock]:
    app = Rowlock(f"sqlite:///{tmp_path}/jobs.db")

    @app.job("fine")
    async def fine(job: Job) -> None: ...

    @app.job("fails")
    async def fails(job: Job) -> None:
        raise Permanent("no")

    await app.migrate()
    yield app
    await app.close()


async def samples(app: Rowlock) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = (await exposition(app.store)).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return name, tuple(sorted(labels.items()))


async def test_what_there_is_and_what_happened_are_shown(app: Rowlock) -> None:
    await app.enqueue_many([("fine", {})] * 3 + [("fails", {})])
    await app.work(drain=True)
    await app.enqueue("fine", delay_seconds=60)
    found = await samples(app)
    assert found[of("rowlock_jobs", queue="default", type="fine", status="succeeded")] == 3
    assert found[of("rowlock_jobs", queue="default", type="fine", status="alive")] == 1
    assert found[of("rowlock_jobs", queue="default", type="fails", status="failed")] == 1
    assert found[of("rowlock_queue_jobs", queue="default", state="delayed")] == 1
    assert found[of("rowlock_failures_last_hour", queue="default", type="fails")] == 1
    assert found[of("rowlock_run_seconds_count", queue="default", type="fine")] == 3
    assert found[of("rowlock_run_seconds_bucket", queue="default", type="fine", le="+Inf")] == 3
    assert found[of("rowlock_claim_seconds_count")] >= 1
    assert found[of("rowlock_workers")] == 0


async def test_an_empty_store_has_metrics_too(app: Rowlock) -> None:
    assert (await samples(app))[of("rowlock_workers")] == 0


def test_a_bound_counts_what_is_not_above_it() -> None:
    measures = Measures()
    measures.observe("run_seconds", {}, [0.004, 0.005, 0.006, 0.07, 9_999.0])
    taken = measures.take()
    assert taken[Measure("run_seconds:0.005")] == 2
    assert taken[Measure("run_seconds:0.01")] == 1
    assert taken[Measure("run_seconds:0.1")] == 1
    assert taken[Measure("run_seconds:count")] == 5
    assert taken[Measure("run_seconds:sum")] == pytest.approx(9_999.085)
    assert measures.take() == {}


def test_what_did_not_arrive_goes_with_the_next() -> None:
    measures = Measures()
    measures.add("lock", {"b": "1", "a": "2"})
    taken = measures.take()
    measures.add("lock", {"a": "2", "b": "1"})
    measures.restore(taken)
    assert measures.take() == {Measure("lock", '{"a":"2","b":"1"}'): 2}


async def test_health_has_the_fields_that_administrators_know(app: Rowlock) -> None:
    await app.enqueue_many([("fine", {})] * 2 + [("fails", {})])
    await app.work(drain=True)
    await app.enqueue("fine")
    health = (await ManagementService(app).queue_health("default")).json_object()
    assert health["oldestWaitingAgeSec"] in (0, 1)
    assert health | {"oldestWaitingAgeSec": None} == {
        "queueName": "default",
        "resilientMode": False,
        "counts": {"waiting": 1, "active": 0, "delayed": 0, "failed": 1, "completed": 2},
        "oldestWaitingAgeSec": None,
        "failedLastHour": 1,
        "topFailedJobs": [{"jobName": "fails", "count": 1}],
        "dlq": {"failedLastHour": 1, "failedLast24h": 1, "retentionDays": 14},
    }
