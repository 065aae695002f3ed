"""Administration: the documented objects, schedules, queues, probes."""

from __future__ import annotations

import asyncio

import pytest

from rowlock.clock import FakeClock
from rowlock.ids import uuid7
from rowlock.storage.records import NewJob, Worker
from web.site import Site, problem

NOBODY = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"
HEALTH = {
    "queueName": str,
    "resilientMode": bool,
    "counts": dict,
    "oldestWaitingAgeSec": (int, type(None)),
    "failedLastHour": int,
    "topFailedJobs": list,
    "dlq": dict,
}


async def test_health_has_the_shape_of_the_document(site: Site) -> None:
    await site.enqueue("ping", delaySeconds=60)
    await site.dead(2)
    await site.enqueue()
    told = (await site.get("/api/admin/queue/health")).json()
    assert list(told) == ["success", "data"]
    assert told["success"] is True
    data = told["data"]
    assert list(data) == list(HEALTH)
    for name, kind in HEALTH.items():
        assert isinstance(data[name], kind), name
    assert data["counts"] == {"waiting": 1, "active": 0, "delayed": 1, "failed": 2, "completed": 0}
    assert data["topFailedJobs"] == [{"jobName": "doomed", "count": 2}]
    assert data["dlq"] == {"failedLastHour": 2, "failedLast24h": 2, "retentionDays": 14}
    other = (await site.get("/api/admin/queue/health?queue=other")).json()["data"]
    assert other["queueName"] == "other"
    assert other["counts"]["waiting"] == 0


async def test_failures_are_listed_and_filtered(site: Site) -> None:
    await site.dead(2, companyId="acme", payload={"password": "hunter2"})
    await site.dead(1, companyId="other")
    told = (await site.get("/api/admin/queue/failures?limit=10&jobName=doomed&companyId=acme")).json()
    assert told["success"] is True
    found = told["data"]["failures"]
    assert [failure["companyId"] for failure in found] == ["acme", "acme"]
    assert found[0]["payload"] == {"password": "[REDACTED]"}
    assert found[0]["isFinalAttempt"] is True
    assert found[0]["failedReason"] == "it never works"
    assert (await site.get("/api/admin/queue/failures?jobName=ping")).json()["data"]["failures"] == []
    one = (await site.get(f"/api/admin/queue/failures/{found[0]['id']}")).json()
    assert one == {"success": True, "data": found[0]}


@pytest.mark.every_store
async def test_failures_come_page_by_page(site: Site) -> None:
    await site.dead(3)
    first = (await site.get("/api/admin/queue/failures?limit=2")).json()["data"]
    rest = await site.get("/api/admin/queue/failures", params={"limit": 2, "cursor": first["nextCursor"]})
    assert len(first["failures"]) == 2
    assert len(rest.json()["data"]["failures"]) == 1
    assert rest.json()["data"]["nextCursor"] is None


@pytest.mark.every_store
async def test_a_retry_resolves_the_failure(site: Site) -> None:
    (job_id,) = await site.dead()
    (failure,) = (await site.get("/api/admin/queue/failures")).json()["data"]["failures"]
    assert failure["resolvedAt"] is None
    answer = await site.post("/api/admin/queue/retry", {"failureId": failure["id"]})
    assert answer.json() == {"success": True, "data": {"failureId": failure["id"], "jobId": job_id}}
    (failure,) = (await site.get("/api/admin/queue/failures")).json()["data"]["failures"]
    assert failure["resolvedAt"] is not None
    assert (await site.get("/api/admin/queue/failures?unresolved=true")).json()["data"]["failures"] == []
    problem(await site.post("/api/admin/queue/retry", {"failureId": failure["id"]}), 409, "job_not_retryable")
    problem(await site.post("/api/admin/queue/retry", {"failureId": NOBODY}), 404, "job_not_found")
    problem(await site.post("/api/admin/queue/retry", {}), 422, "validation_failed")


async def test_prune_removes_what_is_old(site: Site, clock: object) -> None:
    await site.dead()
    clock.advance(15 * 86_400)  # type: ignore[attr-defined]  # a FakeClock
    told = (await site.post("/api/admin/queue/prune")).json()
    assert told["success"] is True
    assert told["data"]["removed"]["failures"] == 1
    assert (await site.get("/api/admin/queue/failures")).json()["data"]["failures"] == []


async def test_a_queue_is_paused_and_resumed(site: Site) -> None:
    answer = await site.post("/api/v1/queues/default/pause", token="operator")
    assert answer.json() == {"name": "default", "paused": True, "known": True}
    await site.enqueue()
    await site.app.work(drain=True)
    (queue,) = (await site.get("/api/v1/queues")).json()["queues"]
    assert (queue["name"], queue["paused"], queue["ready"]) == ("default", True, 1)
    await site.post("/api/v1/queues/default/resume")
    await site.app.work(drain=True)
    assert (await site.get("/api/v1/queue/stats")).json()["counts"]["succeeded"] == 1
    assert (await site.post("/api/v1/queues/nobody/pause")).json()["known"] is False


async def test_a_schedule_is_paused_resumed_and_run(site: Site) -> None:
    (schedule,) = (await site.get("/api/v1/schedules")).json()["schedules"]
    assert (schedule["name"], schedule["jobType"], schedule["paused"]) == ("nightly", "ping", False)
    assert (await site.post("/api/v1/schedules/nightly/pause")).json() == {"name": "nightly", "paused": True}
    assert (await site.get("/api/v1/schedules")).json()["schedules"][0]["paused"] is True
    assert (await site.post("/api/v1/schedules/nightly/resume")).json()["paused"] is False
    run = (await site.post("/api/v1/schedules/nightly/run")).json()
    assert (await site.get(f"/api/v1/queue/{run['jobId']}")).json()["type"] == "ping"
    (told,) = (await site.get("/api/v1/schedules/runs?name=nightly")).json()["runs"]
    assert told["jobId"] == run["jobId"]
    for verb in ("pause", "resume", "run"):
        problem(await site.post(f"/api/v1/schedules/nobody/{verb}"), 404, "schedule_not_found")


@pytest.mark.every_store
async def test_a_schedule_may_be_run_by_many_at_once(site: Site) -> None:
    answers = await asyncio.gather(*(site.post("/api/v1/schedules/nightly/run") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["jobId"] for answer in answers}) == 20


async def test_a_schedule_is_run_once_for_one_key(site: Site) -> None:
    key = {"idempotency-key": "k"}
    site.app.store.lose_reply("atomic")
    problem(await site.post("/api/v1/schedules/nightly/run", headers=key), 503, "store_unavailable")
    run = (await site.post("/api/v1/schedules/nightly/run", headers=key)).json()
    assert [job["id"] for job in (await site.get("/api/v1/queue")).json()["jobs"]] == [run["jobId"]]


async def test_health_says_what_is_wrong(site: Site) -> None:
    await site.enqueue()
    told = (await site.get("/api/v1/health", "viewer")).json()
    assert told["status"] == "warning"
    assert told["warnings"] == ["1 jobs are ready on queue default and no worker serves it"]
    assert told["jobs"]["queued"] == 1


@pytest.mark.every_store
async def test_health_names_the_types_that_no_live_worker_serves(site: Site, clock: FakeClock) -> None:
    async def unserved() -> list[dict[str, object]]:
        told = (await site.get("/api/v1/health", "viewer")).json()
        named = [warning for warning in told["warnings"] if "types that no worker serves" in warning]
        assert bool(named) == bool(told["unservedTypes"])
        return list(told["unservedTypes"])

    gone, ping = ({"queue": "default", "type": name, "jobs": 2} for name in ("gone", "ping"))
    jobs = [NewJob(uuid7(), name, "{}") for name in ("gone", "ping") * 2]
    await site.app.store.enqueue([*jobs, NewJob(uuid7(), "foreign", "{}", "of another application")])
    assert await unserved() == [gone], "without workers, the handlers of the application count"
    old, new = (Worker(uuid7(), "one", ("default", "rest"), (name,)) for name in ("gone", "ping"))
    await site.app.store.beat([old])
    assert await unserved() == [ping], "this release has its handler, but no worker that runs"
    await site.app.store.beat([new])
    assert await unserved() == []
    clock.advance(site.app.settings.visibility_ms / 1000 + 1)
    await site.app.store.beat([Worker(new.id, new.name, new.queues)])
    assert await unserved() == [gone], "a worker that was not seen serves nothing"


async def test_metrics_are_those_of_the_fleet(site: Site) -> None:
    await site.enqueue()
    answer = await site.get("/metrics", "viewer")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'rowlock_queue_jobs{queue="default",state="ready"} 1.0' in answer.text


async def test_ready_means_that_the_store_answers(site: Site) -> None:
    site.app.store.refuse("check_schema")
    told = problem(await site.get("/readyz", None), 503, "not_ready")
    assert "postgres" not in str(told).lower()
    assert (await site.get("/healthz", None)).json() == {"status": "ok"}


async def test_strangers_who_ask_whether_it_is_ready_cost_one_question(site: Site) -> None:
    for _ in range(5):
        assert (await site.get("/readyz", None)).json() == {"status": "ready"}
    assert site.app.store.calls["check_schema"] == 1


async def test_a_store_that_is_away_is_a_503_without_its_address(site: Site) -> None:
    for verb in ("page", "counts"):
        site.app.store.refuse(verb, 5)
    for path in ("/api/v1/queue", "/api/v1/queue/stats", f"/api/v1/queue/{NOBODY}"):
        answer = await site.get(path)
        problem(answer, 503, "store_unavailable")
        assert answer.headers["retry-after"]


async def test_a_fault_of_ours_tells_nothing_about_itself(site: Site, log: object) -> None:
    site.app.store.refuse("counts", error=RuntimeError("secret stack at /home/someone"))
    told = problem(await site.get("/api/v1/queue/stats"), 500, "internal_error")
    assert "secret" not in str(told)
