"""The overview over HTTP: the last minutes, workers, dead letters by reason, the timeline of a job, run now."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from rowlock import CompanyMismatch, FakeClock, Job, Rowlock
from rowlock.ids import uuid7
from rowlock.jobs.worker.maintenance import Maintenance
from rowlock.management import ManagementService
from rowlock.management import overview as limits
from rowlock.observe import logs
from rowlock.storage.access import Role
from rowlock.storage.records import Worker
from web.conftest import MakeSite
from web.site import Site, problem

GROUPS = "/api/v1/queue/dead-letter/groups"


def declare_flaky(app: Rowlock) -> None:
    @app.job("flaky")
    async def flaky(job: Job, words: str = "no answer", password: str = "") -> None:
        raise TimeoutError(words)


@pytest.fixture
async def flaky(make_site: MakeSite) -> Site:
    """A site with jobs that fail for a reason that they are given."""
    return await make_site(declare_flaky)


async def fail(site: Site, words: str, **given: Any) -> str:
    """A job that has failed once; a dead letter unless it has attempts left."""
    job = await site.enqueue("flaky", payload={"words": words}, **{"maxAttempts": 1} | given)
    await site.app.work(drain=True)
    return str(job["id"])


# -- history -----------------------------------------------------------------------------------------


@pytest.mark.every_store
async def test_the_last_minutes_are_told_for_every_queue(flaky: Site, clock: FakeClock) -> None:
    await flaky.enqueue()
    await fail(flaky, "no answer", maxAttempts=2)
    clock.advance(minutes=2)
    told = (await flaky.get("/api/v1/queues/history?minutes=4", "viewer")).json()
    now = clock.now().replace(second=0, microsecond=0)
    assert [datetime.fromisoformat(text) for text in told["minutes"]] == [
        now - timedelta(minutes=back) for back in (3, 2, 1, 0)
    ]
    assert told["queues"]["default"] == {
        "succeeded": [0, 1, 0, 0],
        "failed": [0, 0, 0, 0],
        "failedAttempts": [0, 1, 0, 0],
        "lagSeconds": [None, None, None, None],
    }


async def test_a_supervisor_notes_how_long_jobs_have_waited(site: Site, clock: FakeClock) -> None:
    await site.enqueue(queue="slow")
    clock.advance(12.5)
    maintenance = Maintenance(site.app.engine, list, lambda held, at: None, list, logs.get())
    assert await maintenance.note_lags()
    assert not await maintenance.note_lags()
    queues = (await site.get("/api/v1/queues/history?minutes=2")).json()["queues"]
    assert queues["slow"]["lagSeconds"] == [None, pytest.approx(12.5)]
    assert queues["default"]["lagSeconds"] == [None, 0.0]


@pytest.mark.parametrize("minutes", ["0", "1441", "x", "-1"])
async def test_minutes_are_bounded(site: Site, minutes: str) -> None:
    problem(await site.get(f"/api/v1/queues/history?minutes={minutes}"), 422, "validation_failed")


async def test_a_days_minutes_may_be_asked_for(site: Site) -> None:
    assert len((await site.get("/api/v1/queues/history?minutes=1440")).json()["minutes"]) == 1440


# -- who does what -----------------------------------------------------------------------------------


@pytest.mark.every_store
async def test_workers_are_told_with_what_they_run(site: Site, clock: FakeClock) -> None:
    busy, idle = uuid7(), uuid7()
    await site.app.store.beat([Worker(busy, "one", ("default",)), Worker(idle, "two", ("default",))])
    job = await site.enqueue(companyId="acme")
    await site.app.store.claim("default", busy, 1)
    told = (await site.get("/api/v1/workers", "viewer")).json()
    jobs = {worker["name"]: worker["jobs"] for worker in told["workers"]}
    assert jobs["two"] == []
    (running,) = jobs["one"]
    assert datetime.fromisoformat(running.pop("startedAt")) == clock.now()
    expected = {"id": job["id"], "type": "ping", "queue": "default", "companyId": "acme", "attempt": 1}
    assert running == expected | {"progress": None, "message": None}
    assert told["more"] is False


async def test_only_so_many_running_jobs_are_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RUNNING_MAX", 2)
    owner = uuid7()
    await site.app.store.beat([Worker(owner, "one", ("default",))])
    for _ in range(3):
        await site.enqueue()
    await site.app.store.claim("default", owner, 2)
    assert (await site.get("/api/v1/workers")).json()["more"] is False
    await site.app.store.claim("default", owner, 1)
    told = (await site.get("/api/v1/workers")).json()
    assert (len(told["workers"][0]["jobs"]), told["more"]) == (2, True)


async def test_a_companys_management_is_refused_what_concerns_all(site: Site) -> None:
    management = ManagementService(site.app, "acme")
    for question in (management.history, management.doing):
        with pytest.raises(CompanyMismatch):
            await question()


# -- dead letters by reason --------------------------------------------------------------------------


@pytest.mark.every_store
async def test_dead_letters_are_grouped_with_what_to_do_about_them(flaky: Site, clock: FakeClock) -> None:
    first = await fail(flaky, "no answer\nfrom the other side")
    clock.advance(60)
    last = await fail(flaky, "no answer")
    await fail(flaky, "401 of password=hunter2")
    told = (await flaky.get(GROUPS, "viewer")).json()
    assert (told["more"], told["lookedAt"], told["complete"]) == (False, 3, True)
    group, denied = told["groups"]
    assert (group["type"], group["reason"], group["count"]) == ("flaky", "TimeoutError: no answer", 2)
    assert (group["sampleId"], group["firstAt"] < group["lastAt"]) == (last, True)
    assert group["guidance"] == [
        "When the cause is fixed, retry all of them: rowlock dead retry --type flaky --reason 'TimeoutError: no answer'"
    ]
    assert denied["reason"] == "TimeoutError: 401 of password=[REDACTED]"
    assert "credentials" in denied["guidance"][0]
    assert first != last


@pytest.mark.every_store
async def test_a_group_is_listed_retried_and_discarded(flaky: Site) -> None:
    ours, theirs = await fail(flaky, "no answer\nat all"), await fail(flaky, "no way")
    for path in ("/api/v1/queue", "/api/v1/queue/dead-letter"):
        found = await flaky.get(path, params={"reason": "TimeoutError: no answer"})
        assert [job["id"] for job in found.json()["jobs"]] == [ours]
    none = await flaky.get("/api/v1/queue", params={"reason": "TimeoutError: no answer", "status": "queued"})
    assert none.json() == {"jobs": [], "nextCursor": None}
    chosen = {"reason": "TimeoutError: no answer"}
    dry = await flaky.post("/api/v1/queue/dead-letter/retry", chosen | {"dryRun": True})
    assert dry.json()["matched"] == 1
    assert (await flaky.post("/api/v1/queue/dead-letter/retry", chosen)).json()["retried"] == 1
    chosen = {"reason": "TimeoutError: no way", "type": "flaky"}
    assert (await flaky.post("/api/v1/queue/dead-letter/discard", chosen)).json()["discarded"] == 1
    problem(await flaky.get(f"/api/v1/queue/{theirs}"), 404, "job_not_found")


@pytest.mark.parametrize("reason", ["\x00", "x" * 201])
async def test_a_reason_that_nothing_can_have_is_refused(site: Site, reason: str) -> None:
    problem(await site.get("/api/v1/queue", params={"reason": reason}), 422, "validation_failed")
    problem(await site.post("/api/v1/queue/dead-letter/retry", {"reason": reason}), 422, "validation_failed")
    assert (await ManagementService(site.app).jobs(reason=reason)).jobs == []


async def test_no_more_groups_and_jobs_are_looked_at_than_a_page_holds(
    flaky: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for word in ("a", "b", "c"):
        await fail(flaky, word)
    monkeypatch.setattr(limits, "GROUPS_MAX", 2)
    told = (await flaky.get(GROUPS)).json()
    assert (len(told["groups"]), told["more"], told["lookedAt"], told["complete"]) == (2, True, 3, True)
    monkeypatch.setattr(limits, "GROUPED_MAX", 2)
    told = (await flaky.get(GROUPS)).json()
    assert ([group["count"] for group in told["groups"]], told["lookedAt"], told["complete"]) == ([1, 1], 2, False)


# -- jobs by time ------------------------------------------------------------------------------------


@pytest.mark.every_store
async def test_jobs_are_listed_by_when_they_were_enqueued(site: Site) -> None:
    job = await site.enqueue()
    made = datetime.fromtimestamp(int(job["id"].replace("-", "")[:12], 16) / 1000).astimezone()
    minute = timedelta(minutes=1)
    for params, found in (
        ({"since": made}, 1),
        ({"since": made + minute}, 0),
        ({"until": made + minute}, 1),
        ({"until": made}, 0),
        ({"since": made - minute, "until": made + minute, "status": "queued"}, 1),
    ):
        asked = {name: value if isinstance(value, str) else value.isoformat() for name, value in params.items()}
        assert len((await site.get("/api/v1/queue", params=asked)).json()["jobs"]) == found, asked


@pytest.mark.parametrize("since", ["yesterday", "2030-01-01T00:00:00", "1e400", "0.5", "1900000000"])
async def test_a_time_needs_a_zone(site: Site, since: str) -> None:
    problem(await site.get("/api/v1/queue", params={"since": since}), 422, "validation_failed")


# -- the life of a job -------------------------------------------------------------------------------


async def timeline(site: Site, job_id: str, token: str = "admin") -> list[dict[str, Any]]:
    told = (await site.get(f"/api/v1/queue/{job_id}/timeline", token)).json()
    assert (told["jobId"], told["more"]) == (job_id, False)
    return list(told["events"])


def kinds(events: list[dict[str, Any]]) -> list[tuple[str, int | None]]:
    return [(event["kind"], event["attempt"]) for event in events]


@pytest.mark.every_store
async def test_the_life_of_a_job_is_told_attempt_by_attempt(flaky: Site, clock: FakeClock) -> None:
    job_id = await fail(flaky, "no answer", maxAttempts=2)
    events = await timeline(flaky, job_id)
    assert kinds(events) == [("enqueued", None), ("started", 1), ("failed", 1), ("due", 2)]
    failed = events[2]
    assert failed["reason"] == "TimeoutError: no answer"
    assert "in flaky" in failed["stackTrace"]
    assert failed["seconds"] >= 0
    assert failed["owner"] == events[1]["owner"] is not None
    assert events[3]["at"] > failed["at"]
    clock.advance(hours=1)
    await flaky.app.work(drain=True)
    dead = [("enqueued", None), ("started", 1), ("failed", 1), ("started", 2), ("failed", 2)]
    assert kinds(await timeline(flaky, job_id)) == dead
    clock.advance(60)
    await flaky.post(f"/api/v1/queue/{job_id}/retry")
    clock.advance(60)
    await flaky.app.work(drain=True)
    assert kinds(await timeline(flaky, job_id)) == [*dead, ("retried", None), ("started", 1), ("failed", 1), ("due", 2)]


async def test_what_succeeds_is_told_with_how_long_it_took(site: Site) -> None:
    job = await site.enqueue()
    assert kinds(await timeline(site, job["id"])) == [("enqueued", None)]
    await site.app.work(drain=True)
    events = await timeline(site, job["id"])
    assert kinds(events) == [("enqueued", None), ("started", 1), ("succeeded", 1)]
    assert events[2]["seconds"] >= 0


async def test_what_runs_is_told_with_its_owner(site: Site) -> None:
    job, owner = await site.enqueue(), uuid7()
    await site.app.store.claim("default", owner, 1)
    events = await timeline(site, job["id"])
    assert kinds(events) == [("enqueued", None), ("started", 1)]
    assert events[1]["owner"] == owner


async def test_what_is_cancelled_before_it_started_is_told(site: Site) -> None:
    job = await site.enqueue(delaySeconds=60)
    assert kinds(await timeline(site, job["id"])) == [("enqueued", None), ("due", 1)]
    await site.post(f"/api/v1/queue/{job['id']}/cancel")
    events = await timeline(site, job["id"])
    assert kinds(events) == [("enqueued", None), ("cancelled", None)]
    assert events[1]["reason"] == "cancelled before it started"


async def test_a_failure_whose_record_is_gone_is_told_by_the_job(flaky: Site, clock: FakeClock) -> None:
    job_id = await fail(flaky, "no answer")
    clock.advance(days=1)
    await flaky.app.store.prune_failures(0.5, 10)
    events = await timeline(flaky, job_id)
    assert kinds(events) == [("enqueued", None), ("started", 1), ("failed", 1)]
    assert events[2]["reason"].startswith("TimeoutError: no answer")


async def test_stacks_are_for_administrators(flaky: Site) -> None:
    await flaky.add_token("acme", Role.ADMIN, "acme")
    job_id = await fail(flaky, "no answer", companyId="acme")
    for token, shown in (("viewer", False), ("operator", False), ("admin", True), ("acme", False)):
        events = await timeline(flaky, job_id, token)
        assert any(event["stackTrace"] for event in events) is shown
        assert events[2]["reason"].startswith("TimeoutError: no answer") is (token != "acme")
    plain = (await flaky.get(f"/api/v1/queue/{job_id}/timeline?stacks=false")).json()
    assert not any(event["stackTrace"] for event in plain["events"])


async def test_only_so_many_attempts_are_told(flaky: Site, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ATTEMPTS_MAX", 1)
    job_id = await fail(flaky, "no answer", maxAttempts=2)
    clock.advance(hours=1)
    await flaky.app.work(drain=True)
    told = (await flaky.get(f"/api/v1/queue/{job_id}/timeline")).json()
    assert kinds(told["events"]) == [("enqueued", None), ("started", 2), ("failed", 2)]
    assert told["more"] is True


# -- run now -----------------------------------------------------------------------------------------


async def test_a_delayed_job_runs_now(site: Site, clock: FakeClock) -> None:
    job = await site.enqueue(delaySeconds=3_600)
    told = await site.post(f"/api/v1/queue/{job['id']}/run-now", token="operator")
    assert told.status_code == 200
    assert datetime.fromisoformat(told.json()["availableAt"]) == clock.now()
    again = await site.post(f"/api/v1/queue/{job['id']}/run-now")
    assert (again.status_code, again.json()["status"]) == (200, "queued")
    await site.app.work(drain=True)
    assert (await site.get(f"/api/v1/queue/{job['id']}")).json()["status"] == "succeeded"


async def test_what_runs_or_is_over_cannot_be_run_now(site: Site) -> None:
    job = await site.enqueue()
    path = f"/api/v1/queue/{job['id']}/run-now"
    await site.app.store.claim("default", uuid7(), 1)
    assert "runs already" in problem(await site.post(path), 409, "job_not_waiting")["detail"]
    (dead,) = await site.dead()
    told = problem(await site.post(f"/api/v1/queue/{dead}/run-now"), 409, "job_not_waiting")
    assert "is failed" in told["detail"]
    problem(await site.post(f"/api/v1/queue/{uuid7()}/run-now"), 404, "job_not_found")
