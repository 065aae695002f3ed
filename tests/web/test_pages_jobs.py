"""The pages of jobs: search, details, and changes only with the required role."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.routing import Mount

from rowlock import Backoff, Job, Permanent, Rowlock
from rowlock.clock import StoreClock
from rowlock.dashboard.job_filters import narrowed
from rowlock.dashboard.job_status import can, first_line, says, short, standing
from rowlock.errors import StoreError, StoreUnavailable
from rowlock.http import asgi
from rowlock.management import ManagementService
from rowlock.management.schemas.jobs import JobSchema
from rowlock.storage.access import Role
from web.conftest import MakeSite
from web.importing import declare_importers, imported
from web.paper import Paper, after, paper, post
from web.site import Site

NOBODY = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"
HOSTILE = "</script><script>alert(1)</script>\u202e<b>\"'&amp;"


@pytest.fixture
async def site(make_site: MakeSite) -> Site:
    """By the real clock: pages tell times from now."""
    return await make_site(clock=StoreClock())


# -- the list --------------------------------------------------------------------------------------


async def test_without_jobs_the_list_says_how_to_make_one(site: Site) -> None:
    page = await paper(site, "/jobs")
    assert "There are no jobs yet" in page.text
    assert "rowlock enqueue" in page.text
    assert page.links["Import a file"] == "/imports"


async def test_where_none_matches_the_list_leads_back_to_all(site: Site) -> None:
    await site.enqueue()
    page = await paper(site, "/jobs?type=nobody")
    assert "No job matches" in page.text
    assert page.links["Show all jobs"] == "/jobs"


async def test_a_row_tells_what_matters(site: Site) -> None:
    (dead,) = await site.dead()
    page = await paper(site, "/jobs")
    row = page.part("list")
    assert "failed doomed" in row
    assert short(dead) in row
    assert "1 of 5" in row
    assert "it never works" in row
    assert page.links["doomed"] == f"/jobs/{dead}"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"status": "failed"}, {"doomed"}),
        ({"type": "ping"}, {"ping"}),
        ({"queue": "other"}, {"mail"}),
        ({"companyId": "acme"}, {"open"}),
        ({"type": " ping ", "queue": "", "status": ""}, {"ping"}),
        ({"type": "ping", "status": "failed"}, set()),
        ({"since": "2000-01-01T00:00"}, {"ping", "mail", "open", "doomed"}),
        ({"until": "2000-01-01T00:00:00Z"}, set()),
    ],
)
async def test_jobs_are_filtered_by_what_the_address_says(site: Site, query: dict[str, str], found: set[str]) -> None:
    await site.dead()
    await site.enqueue("ping")
    await site.enqueue("mail", payload={"to": "a@b.c"}, queue="other")
    await site.enqueue("open", companyId="acme")
    answer = await site.get("/jobs", params=query, follow_redirects=True)
    page = Paper(answer)
    assert {type for type in ("ping", "mail", "open", "doomed") if type in page.links} == found


@pytest.mark.every_store
async def test_all_types_that_begin_alike_are_found(make_site: MakeSite) -> None:
    def declare(app: Rowlock) -> None:
        for name in ("mail.send", "mail.open", "mailing"):
            app.job(name)(_nothing)

    site = await make_site(declare, clock=StoreClock())
    for name in ("mail.send", "mail.open", "mailing"):
        await site.enqueue(name)
    page = await paper(site, "/jobs?type=mail.*")
    assert {"mail.send", "mail.open"} <= page.links.keys()
    assert "mailing" not in page.links


async def _nothing(job: Job) -> None: ...


async def test_what_a_form_left_empty_is_not_kept_in_the_address(site: Site) -> None:
    answer = await site.get("/jobs?status=&type=ping&queue=&companyId=")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?type=ping")


async def test_the_fields_keep_what_was_asked_for(site: Site) -> None:
    page = await paper(site, "/jobs?type=ping&since=2026-01-02T03:04:05Z")
    fields = dict(page.form("Show").fields)
    assert fields["type"] == "ping"
    assert fields["since"] == "2026-01-02T03:04"


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"status": "lost"}, "No status is called “lost”"),
        ({"since": "yesterday"}, "The first time is not a valid time"),
        ({"until": "9999-99-99"}, "The last time is not a valid time"),
        ({"type": "x" * 201}, "The type is longer than 200 characters"),
        ({"queue": "a\x00b"}, "The queue is longer than 200 characters or contains characters that are not allowed"),
    ],
)
async def test_a_filter_that_cannot_be_is_told_and_kept(site: Site, query: dict[str, str], told: str) -> None:
    page = await paper(site, "/jobs", status=422, params=query)
    assert told in page.text


async def test_pages_of_the_list_go_on_where_the_last_ended(site: Site) -> None:
    ids = [(await site.enqueue("ping", companyId="acme"))["id"] for _ in range(60)]
    first = await paper(site, "/jobs?companyId=acme")
    second = await paper(site, first.links["Older"])
    told = [short(job_id) in page.text for job_id in ids for page in (second, first)]
    assert told.count(True) == 60
    assert "companyId=acme" in first.links["Older"]
    assert "Older" not in second.links
    assert second.links["First page"] == "/jobs?companyId=acme"


async def test_a_cursor_that_is_none_is_told(site: Site) -> None:
    assert (await site.get("/jobs?cursor=nonsense")).status_code == 422


async def test_a_whole_id_leads_straight_to_its_job(site: Site) -> None:
    job = await site.enqueue()
    answer = await site.get("/jobs", params={"id": f" {job['id'].upper()} "})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job['id']}")


@pytest.mark.parametrize(("id", "told"), [(NOBODY, "No job has the id"), ("4711", "“4711” is not a job id")])
async def test_an_id_that_is_none_is_told(site: Site, id: str, told: str) -> None:
    page = await paper(site, "/jobs", status=404, params={"id": id})
    assert told in page.text


async def test_types_and_queues_are_offered(site: Site) -> None:
    answer = await site.get("/jobs")
    assert '<option value="doomed">' in answer.text
    assert '<option value="default">' in answer.text


# -- a job -----------------------------------------------------------------------------------------


async def test_a_dead_job_is_told_whole(site: Site) -> None:
    (dead,) = await site.dead(payload={"password": "open sesame"})
    page = await paper(site, f"/jobs/{dead}")
    assert "after 1 attempt. It stays here until you retry or discard it." in page.part("now")
    assert f"When the cause is fixed, retry it: press Retry, or rowlock dead retry {dead}" in page.part("now")
    events = page.part("timeline")
    assert events.index("Enqueued") < events.index("Attempt 1 started") < events.index("Attempt 1 failed")
    assert "it never works" in events
    assert "Traceback" in events
    assert "[REDACTED]" in page.part("payload")
    assert "open sesame" not in page.text
    assert page.part("about").startswith("About this job Id")
    assert dead in page.part("about")


async def test_secrets_are_told_to_administrators_who_ask(site: Site) -> None:
    job = await site.enqueue("doomed", payload={"password": "open sesame"})
    page = await paper(site, f"/jobs/{job['id']}")
    shown = await paper(site, page.links["Show everything, with secrets"])
    assert "open sesame" in shown.part("payload")
    plain = await paper(site, f"/jobs/{job['id']}", "operator")
    assert "Show everything, with secrets" not in plain.links
    refused = await paper(site, f"/jobs/{job['id']}?raw=1", "operator", status=403)
    assert "open sesame" not in refused.text


async def test_stacks_are_for_administrators(site: Site) -> None:
    (dead,) = await site.dead()
    page = await paper(site, f"/jobs/{dead}", "operator")
    assert "Traceback" not in page.text
    assert "Stack traces are shown to administrators only." in page.part("timeline")


async def test_every_attempt_is_in_the_timeline(make_site: MakeSite) -> None:
    def declare(app: Rowlock) -> None:
        @app.job("flaky", retry=Backoff(3, base_seconds=0))
        async def flaky(job: Job) -> dict[str, int]:
            if job.attempt < 3:
                raise ValueError(f"not yet\nthis was number {job.attempt}")
            return {"number": job.attempt}

    site = await make_site(declare, clock=StoreClock())
    job = await site.enqueue("flaky")
    await site.app.work(drain=True)
    page = await paper(site, f"/jobs/{job['id']}")
    events = page.part("timeline")
    assert "Attempt 1 failed" in events
    assert "Attempt 2 failed" in events
    assert "this was number 2" in events
    assert "Attempt 3 succeeded" in events
    assert '"number": 3' in page.part("result")
    assert page.buttons == ["Sign out"]


async def test_a_job_that_waits_says_until_when_and_is_run_now(site: Site) -> None:
    job = await site.enqueue(delaySeconds=7_200)
    page = await paper(site, f"/jobs/{job['id']}", "operator")
    assert "Scheduled: due in 1 h" in page.part("now")
    assert page.buttons == ["Sign out", "Run now", "Cancel"]
    told = await after(site, await post(site, page.form("Run now").action))
    assert "It runs as soon as a worker is free." in told.text
    assert "Run now" not in told.buttons
    await site.app.work(drain=True)
    assert (await site.get(f"/api/v1/queue/{job['id']}")).json()["status"] == "succeeded"


async def test_a_job_that_nobody_takes_says_why(site: Site) -> None:
    job = await site.enqueue(queue="for gotten")
    path = f"/jobs/{job['id']}"
    told = (
        "It does not start: no worker serves the queue for gotten; start one with: rowlock worker --queue 'for gotten'"
    )
    assert told in (await paper(site, path)).part("now")
    await site.post("/api/v1/queues/for gotten/pause")
    await post(site, f"/jobs/{(await site.enqueue())['id']}/cancel")  # its own change is visible
    assert "It does not start: the queue for gotten is paused" in (await paper(site, path)).part("now")
    await site.add_token("acme", Role.VIEWER, "acme")
    own = await site.enqueue(queue="for gotten", companyId="acme")
    assert "It does not start" not in (await paper(site, f"/jobs/{own['id']}", "acme")).part("now")


async def test_a_job_is_cancelled_and_retried(site: Site) -> None:
    job = await site.enqueue()
    told = await after(site, await post(site, f"/jobs/{job['id']}/cancel"))
    assert "It is cancelled, and will not run." in told.text
    assert told.buttons == ["Sign out", "Retry"]
    told = await after(site, await post(site, f"/jobs/{job['id']}/retry"))
    assert "It is queued again, with fresh attempts." in told.text


async def test_a_running_job_is_shown_with_its_progress_and_asked_to_stop(make_site: MakeSite) -> None:
    began = asyncio.Event()

    def declare(app: Rowlock) -> None:
        @app.job("slow")
        async def slow(job: Job) -> None:
            job.progress(40, "two of five")
            began.set()
            while not job.cancelled:
                await asyncio.sleep(0.01)

    site = await make_site(declare, clock=StoreClock())
    job, stop = await site.enqueue("slow"), asyncio.Event()
    working = asyncio.create_task(site.app.work(stop=stop))
    async with asyncio.timeout(60):
        await began.wait()
        while (await site.get(f"/api/v1/queue/{job['id']}")).json()["progress"] != 40:
            await asyncio.sleep(0.01)
    page = await paper(site, f"/jobs/{job['id']}")
    assert "40 %" in page.part("now")
    assert "Running: started" in page.part("now")
    assert "two of five" in page.part("now")
    assert '<progress max="100" value="40"' in (await site.get("/jobs")).text
    told = await after(site, await post(site, page.form("Request cancellation").action))
    assert "was asked to stop" in told.text or "It is cancelled" in told.text
    while (await site.get(f"/api/v1/queue/{job['id']}")).json()["status"] != "cancelled":
        await asyncio.sleep(0.01)
    stop.set()
    await working


async def test_who_was_too_late_is_told_how_it_stands(site: Site) -> None:
    job = await site.enqueue()
    await site.app.work(drain=True)
    for verb in ("cancel", "run-now", "retry"):
        told = await after(site, await post(site, f"/jobs/{job['id']}/{verb}"))
        assert "Nothing was changed: " in told.text
        assert "succeeded" in told.part("now")


@pytest.mark.parametrize("verb", ["retry", "cancel", "run-now"])
@pytest.mark.parametrize(
    "error", [StoreUnavailable("it is gone for a moment"), StoreError("column 7 of postgres://user:hunter2@db is odd")]
)
async def test_what_the_store_did_not_say_is_not_said_for_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, verb: str, error: StoreError
) -> None:
    job = await site.enqueue()

    async def breaks(management: ManagementService, job_id: str) -> Any:
        raise error

    monkeypatch.setattr(ManagementService, verb.replace("-", "_"), breaks)
    answer = await post(site, f"/jobs/{job['id']}/{verb}")
    assert answer.status_code == 503
    assert "Nothing was changed" not in answer.text
    assert "hunter2" not in answer.text
    assert "text/html" in answer.headers["content-type"]


async def test_a_job_is_looked_at_once_for_all_who_may_see_the_same(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.add_token("acme", Role.VIEWER, "acme")
    (dead,) = await site.dead(payload={"password": "open sesame"})
    asked = list[str]()
    whole, past = ManagementService.job, ManagementService.timeline

    async def job(management: ManagementService, job_id: str, *, raw: bool = False) -> Any:
        asked.append("raw" if raw else "job")
        return await whole(management, job_id, raw=raw)

    async def timeline(management: ManagementService, job_id: str, *, stacks: bool = True) -> Any:
        asked.append("stacks" if stacks else "timeline")
        return await past(management, job_id, stacks=stacks)

    monkeypatch.setattr(ManagementService, "job", job)
    monkeypatch.setattr(ManagementService, "timeline", timeline)
    path = f"/jobs/{dead}"
    assert "Traceback" in (await paper(site, path)).text
    for _ in range(3):
        assert "Traceback" not in (await paper(site, path, "viewer")).text
    assert "open sesame" in (await paper(site, f"{path}?raw=1")).text
    assert "open sesame" not in (await paper(site, path)).text
    assert sorted(asked) == ["job", "raw", "stacks", "timeline"]
    await paper(site, path, "acme", status=404)


async def test_one_process_that_died_is_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (dead,) = await site.dead()
    whole, deaths = ManagementService.job, iter((1, 2))

    async def job(management: ManagementService, job_id: str, *, raw: bool = False) -> Any:
        return (await whole(management, job_id)).with_(deaths=next(deaths))

    monkeypatch.setattr(ManagementService, "job", job)
    assert "; 1 process died while running it" in (await paper(site, f"/jobs/{dead}")).text
    assert "; 2 processes died while running it" in (await paper(site, f"/jobs/{dead}?raw=1")).text


@pytest.mark.parametrize("verb", ["retry", "cancel", "run-now"])
async def test_who_may_only_look_is_offered_nothing_and_refused(site: Site, verb: str) -> None:
    (dead,) = await site.dead()
    waiting = (await site.enqueue(delaySeconds=60))["id"]
    for job_id in (dead, waiting):
        page = await paper(site, f"/jobs/{job_id}", "viewer")
        assert page.buttons == ["Sign out"]
        assert "Discard…" not in page.links
        assert (await post(site, f"/jobs/{job_id}/{verb}", "viewer")).status_code == 403


async def test_one_company_sees_and_changes_its_own_jobs_only(site: Site) -> None:
    await site.add_token("acme", Role.OPERATOR, "acme")
    own = (await site.enqueue(companyId="acme", delaySeconds=60))["id"]
    other = (await site.enqueue("mail", payload={"to": "x"}, companyId="globex", delaySeconds=60))["id"]
    page = await paper(site, "/jobs", "acme")
    assert "ping" in page.links
    assert "mail" not in page.links
    assert "companyId" not in dict(page.form("Show").fields)
    assert "mail" not in (await paper(site, "/jobs?companyId=globex", "acme")).links
    assert (await paper(site, f"/jobs/{own}", "acme")).buttons == ["Sign out", "Run now", "Cancel"]
    await paper(site, f"/jobs/{other}", "acme", status=404)
    for verb in ("retry", "cancel", "run-now"):
        assert (await post(site, f"/jobs/{other}/{verb}", "acme")).status_code == 404
    assert "No job has the id" in (await paper(site, f"/jobs?id={other}", "acme", status=404)).text


async def test_what_others_have_written_is_text(make_site: MakeSite) -> None:
    def declare(app: Rowlock) -> None:
        @app.job(HOSTILE.replace("\u202e", ""))
        async def hostile(job: Job, **payload: Any) -> None:
            raise Permanent(HOSTILE)

    site = await make_site(declare, clock=StoreClock())
    job = await site.enqueue(
        HOSTILE.replace("\u202e", ""), payload={HOSTILE: HOSTILE, "long": "W" * 5_000}, companyId="<i>x"
    )
    await site.app.work(drain=True)
    for path in ("/jobs", f"/jobs/{job['id']}", "/jobs?companyId=%3Ci%3Ex", f"/jobs?type={'%22%3E%3Cscript%3E'}"):
        answer = await site.get(path)
        assert "<script>" not in answer.text
        assert "<b>" not in answer.text
        assert "<i>" not in answer.text
        Paper(answer)


async def test_a_job_leads_to_its_import_and_to_the_schedules_of_its_type(site: Site) -> None:
    declare_importers(site.app)
    import_id = await imported(site)
    page = await paper(site, f"/jobs/{import_id}")
    assert page.links["The import of this job"] == f"/imports/{import_id}"
    page = await paper(site, f"/jobs/{(await site.enqueue())['id']}")
    assert "Import" not in page.part("about")
    assert page.links["nightly"] == "/#schedules"


async def test_under_a_prefix_every_link_stays_there(site: Site) -> None:
    (dead,) = await site.dead()
    api = asgi(site.app)
    outside = Starlette(routes=[Mount("/ops", api)])
    headers = {"authorization": f"Bearer {site.tokens['admin']}"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(outside), base_url="http://test", headers=headers
    ) as http:
        tidied = await http.get("/ops/jobs?status=&type=doomed")
        assert tidied.headers["location"] == "/ops/jobs?type=doomed"
        assert (await http.get(f"/ops/jobs?id={dead}")).headers["location"] == f"/ops/jobs/{dead}"
        paths = (f"jobs/{dead}", "jobs", "dead", "dead?type=doomed&reason=it+never+works", "dead/retry?all=1", "sync")
        for path in paths:
            answer = await http.get(f"/ops/{path}")
            page = Paper(answer)
            assert answer.status_code == 200
            assert [href for href in page.hrefs if not href.startswith(("/ops/", "#"))] == []
            assert [form.action for form in page.forms if not form.action.startswith("/ops/")] == []
        told = await http.post(f"/ops/jobs/{dead}/retry")
        assert told.headers["location"] == f"/ops/jobs/{dead}"
    await api.close()


async def test_pages_listen_to_what_they_show(site: Site) -> None:
    job = await site.enqueue()
    assert 'data-live="/api/v1/events?type=ping&amp;queue=a%20b"' in (await site.get("/jobs?type=ping&queue=a+b")).text
    assert f'data-live="/api/v1/events?job={job["id"]}"' in (await site.get(f"/jobs/{job['id']}")).text


# -- words -----------------------------------------------------------------------------------------

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def job_in(status: str, **more: Any) -> JobSchema:
    """A job in this state, with its fields by their names in JSON."""
    at = dict.fromkeys(("availableAt", "createdAt", "startedAt", "finishedAt", "lockedAt", "updatedAt"), NOW)
    fields = dict.fromkeys((field.alias for field in JobSchema.model_fields.values()), None)
    numbers = {"attempts": 0, "maxAttempts": 5, "visibilityTimeoutMs": 30_000, "priority": 100, "deaths": 0, "lease": 0}
    texts = {"id": NOBODY, "type": "ping", "queue": "default", "status": status, "lockOwner": NOBODY}
    others = {"payload": {}, "guidance": [], "cancelRequested": False}
    return JobSchema.model_validate(fields | at | numbers | texts | others | more)


LATER = (NOW + timedelta(minutes=3)).isoformat()


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (job_in("queued"), "Waits for a free worker. Ready since"),
        (job_in("queued", availableAt=LATER), "Scheduled: due"),
        (job_in("queued", attempts=2, availableAt=LATER), "Attempt 2 of 5 failed; the next one is due"),
        (
            job_in("queued", attempts=2),
            "Attempt 2 of 5 failed; the next one starts as soon as a worker is free. Ready since",
        ),
        (job_in("processing", attempts=1), "Running: started"),
        (
            job_in("processing", cancelRequested=True),
            "Cancellation requested; the handler stops at its next check. Started",
        ),
        (job_in("processing", lockedAt="2026-11-16T11:59:00Z"), "worker 01932c07…2d4b5a runs it and was last seen"),
        (job_in("succeeded"), "Succeeded"),
        (job_in("failed"), "Failed"),
        (job_in("cancelled"), "Cancelled"),
    ],
)
def test_where_a_job_stands_is_a_sentence(job: JobSchema, told: str) -> None:
    assert standing(job, NOW).before == told


def test_a_worker_goes_by_its_name() -> None:
    assert standing(job_in("processing", attempts=1), NOW, {NOBODY: "host:7"}).after == "on host:7, attempt 1 of 5."


def test_buttons_are_there_where_they_make_sense() -> None:
    def offered(job: JobSchema) -> set[str]:
        return {name for name, yes in can(job, NOW).items() if yes}

    assert offered(job_in("queued")) == {"cancel"}
    assert offered(job_in("queued", availableAt=LATER)) == {"cancel", "run_now"}
    assert offered(job_in("processing")) == {"cancel"}
    assert offered(job_in("processing", cancelRequested=True)) == set()
    assert offered(job_in("succeeded")) == set()
    assert offered(job_in("failed")) == {"retry", "discard"}
    assert offered(job_in("cancelled")) == {"retry"}


def test_a_row_has_one_line_to_speak() -> None:
    assert says(job_in("failed", error="first\nsecond", message="old")) == "first"
    assert says(job_in("processing", error="old", message="now")) == "now"
    assert first_line("x" * 300) == "x" * 199 + "…"
    assert first_line(None) == ""


def test_a_filter_says_the_same_in_its_links() -> None:
    where = narrowed(QueryParams("type=a%20b&status=failed&other=1"), "status", "type", "since")
    assert where.link("/jobs") == "/jobs?status=failed&type=a+b"
    assert where.link("/jobs", status=None, cursor="c") == "/jobs?type=a+b&cursor=c"
    assert where.asked == {"status": "failed", "type": "a b"}
