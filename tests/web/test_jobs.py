"""Jobs over HTTP: enqueue, read, retry, cancel, dead letters."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from rowlock.ids import is_uuid
from rowlock.storage.records import KeepPolicy, Status
from web.conftest import MakeSite
from web.site import Site, problem

ENQUEUE = "/api/v1/queue/enqueue"
NOBODY = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"


async def test_a_job_is_enqueued_and_told_whole(site: Site) -> None:
    answer = await site.post(
        ENQUEUE, {"type": "mail", "payload": {"to": "a@b.c"}, "priority": 7, "companyId": "acme"}, "operator"
    )
    assert answer.status_code == 201
    job = answer.json()
    assert is_uuid(job["id"])
    assert job["created"] is True
    assert (job["type"], job["queue"], job["status"], job["priority"]) == ("mail", "default", "queued", 7)
    assert job["payload"] == {"to": "a@b.c"}
    assert job["companyId"] == "acme"
    assert (job["attempts"], job["maxAttempts"], job["visibilityTimeoutMs"]) == (0, 5, 30_000)
    told = (await site.get(f"/api/v1/queue/{job['id']}", "viewer")).json()
    assert told == {name: value for name, value in job.items() if name != "created"}


async def test_all_that_can_be_said_about_a_job_is_kept(site: Site) -> None:
    later = await site.app.store.now() + timedelta(days=1)
    job = await site.enqueue(queue="other", availableAt=later.isoformat(), maxAttempts=2, limitKey="api:1")
    assert job["queue"] == "other"
    assert datetime.fromisoformat(job["availableAt"]) == later
    assert job["maxAttempts"] == 2
    assert job["limitKey"] == "api:1"
    delayed = await site.enqueue(delaySeconds=60)
    wait = datetime.fromisoformat(delayed["availableAt"]) - datetime.fromisoformat(delayed["createdAt"])
    assert wait == timedelta(seconds=60)


@pytest.mark.every_store
async def test_a_duplicate_is_refused_with_the_job_that_exists(site: Site) -> None:
    first = await site.enqueue("once", payload={"number": 1})
    answer = await site.post(ENQUEUE, {"type": "once", "payload": {"number": 1}})
    told = problem(answer, 409, "duplicate_job")
    assert told["existingJobId"] == first["id"]


@pytest.mark.every_store
@pytest.mark.parametrize("on_conflict", ["reject", "return_existing"])
async def test_a_duplicate_of_a_job_that_retention_removed_is_refused_and_says_so(site: Site, on_conflict: str) -> None:
    given = {"type": "ping", "unique": {"policy": "forever", "key": "k", "onConflict": on_conflict}}
    first = (await site.post(ENQUEUE, given)).json()["id"]
    await site.app.store.cancel(first)
    await site.app.store.prune({Status.CANCELLED: KeepPolicy(count=0)}, 10)
    told = problem(await site.post(ENQUEUE, given), 409, "duplicate_job")
    assert (told["existingJobId"], told["existingRemoved"]) == (first, True)
    assert "existing" not in told
    assert "has ended and was pruned" in told["detail"]


@pytest.mark.every_store
async def test_a_duplicate_is_answered_with_the_job_that_exists_where_that_is_asked_for(site: Site) -> None:
    given = {"type": "ping", "unique": {"policy": "while_active", "key": "k", "onConflict": "return_existing"}}
    first = await site.post(ENQUEUE, given)
    second = await site.post(ENQUEUE, given)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json()["created"] is False
    assert second.json()["id"] == first.json()["id"]


async def test_a_window_ends(site: Site, clock: Any) -> None:
    given = {"type": "ping", "unique": {"policy": "window", "seconds": 60}}
    assert (await site.post(ENQUEUE, given)).status_code == 201
    assert (await site.post(ENQUEUE, given)).status_code == 409
    clock.advance(61)
    assert (await site.post(ENQUEUE, given)).status_code == 201


@pytest.mark.parametrize(
    ("given", "status", "code"),
    [
        ({"type": "nobody"}, 422, "unknown_job_type"),
        ({"type": "mail"}, 422, "bad_payload"),
        ({"type": "mail", "payload": {"to": 5}}, 422, "bad_payload"),
        ({}, 422, "validation_failed"),
        ([], 422, "validation_failed"),
        ({"type": "ping", "colour": "red"}, 422, "validation_failed"),
        ({"type": "ping", "payload": [1]}, 422, "validation_failed"),
        ({"type": "ping", "priority": 40_000}, 422, "validation_failed"),
        ({"type": "ping", "delaySeconds": -1}, 422, "validation_failed"),
        ({"type": "ping", "availableAt": "2030-01-01T00:00:00"}, 422, "validation_failed"),
        ({"type": "ping", "unique": {"policy": "window"}}, 422, "validation_failed"),
        ({"type": "", "payload": {}}, 422, "validation_failed"),
        ({"type": "a\x00b"}, 422, "validation_failed"),
        ({"type": "x" * 201}, 422, "validation_failed"),
        ({"type": "ping", "queue": "a\u200bb"}, 422, "bad_setting"),
    ],
)
async def test_what_is_wrong_is_refused_and_named(site: Site, given: Any, status: int, code: str) -> None:
    problem(await site.post(ENQUEUE, given), status, code)
    assert (await site.get("/api/v1/queue")).json()["jobs"] == []


async def test_every_wrong_field_is_named(site: Site) -> None:
    told = problem(await site.post(ENQUEUE, {"priority": "x", "queue": ""}), 422, "validation_failed")
    assert {item["field"] for item in told["errors"]} == {"body.type", "body.priority", "body.queue"}


@pytest.mark.parametrize("body", [b"{", b"nonsense", b"\xff\xfe", b'{"type": "ping"', b"[" * 100_000])
async def test_what_is_not_json_is_refused(site: Site, body: bytes) -> None:
    answer = await site.ask("POST", ENQUEUE, content=body, headers={"content-type": "application/json"})
    problem(answer, 422, "malformed_body")


async def test_a_payload_that_no_store_keeps_is_refused(site: Site) -> None:
    for body in (b'{"type":"open","payload":{"a":NaN}}', b'{"type":"open","payload":{"a":"\\ud800"}}'):
        answer = await site.ask("POST", ENQUEUE, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 422, answer.text


@pytest.mark.every_store
async def test_any_other_text_is_kept(site: Site) -> None:
    payload = {"a": "\x00\x1b[2J", "b": "ünï \U0001f600", "c": 2**53, "d": [None, {"": 1.5}]}
    job = await site.enqueue("open", payload=payload)
    assert job["payload"] == payload


async def test_a_full_queue_asks_to_wait(make_site: MakeSite) -> None:
    site = await make_site(queue_size_max=2)
    await site.enqueue()
    await site.enqueue()
    answer = await site.post(ENQUEUE, {"type": "ping"})
    problem(answer, 429, "queue_full")
    assert answer.headers["retry-after"]


@pytest.mark.every_store
async def test_concurrent_enqueues_share_commits(site: Site) -> None:
    await site.enqueue()
    before = site.app.store.calls.copy()
    answers = await asyncio.gather(*(site.post(ENQUEUE, {"type": "ping"}) for _ in range(60)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 60
    asked = site.app.store.calls - before
    assert asked["enqueue"] < 40
    assert asked["page"] < 40


@pytest.mark.every_store
async def test_jobs_are_listed_newest_first_page_by_page(site: Site) -> None:
    ids = [(await site.enqueue())["id"] for _ in range(5)]
    first = (await site.get("/api/v1/queue?limit=2")).json()
    assert [job["id"] for job in first["jobs"]] == ids[:2:-1]
    second = (await site.get("/api/v1/queue", params={"limit": 2, "cursor": first["nextCursor"]})).json()
    third = (await site.get("/api/v1/queue", params={"limit": 2, "cursor": second["nextCursor"]})).json()
    assert [job["id"] for job in (*second["jobs"], *third["jobs"])] == ids[2::-1]
    assert third["nextCursor"] is None


@pytest.mark.every_store
async def test_jobs_are_filtered(site: Site) -> None:
    await site.enqueue("ping", companyId="acme")
    await site.enqueue("open", queue="other")
    await site.dead()

    async def types(**params: str) -> list[str]:
        return [job["type"] for job in (await site.get("/api/v1/queue", params=params)).json()["jobs"]]

    assert await types(status="failed") == ["doomed"]
    assert await types(status="succeeded") == ["ping"]
    assert await types(status="queued") == ["open"]
    assert await types(type="open") == ["open"]
    assert await types(queue="other") == ["open"]
    assert await types(companyId="acme") == ["ping"]
    assert await types(companyId="nobody") == []


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "status=lost", "cursor=", "type=" + "x" * 201])
async def test_a_wrong_parameter_is_refused(site: Site, query: str) -> None:
    problem(await site.get(f"/api/v1/queue?{query}"), 422, "validation_failed")


async def test_a_cursor_that_no_page_came_with_is_refused(site: Site) -> None:
    for path in ("/api/v1/queue", "/api/v1/queue/dead-letter", "/api/admin/queue/failures"):
        problem(await site.get(f"{path}?cursor=nonsense"), 422, "bad_cursor")


@pytest.mark.parametrize("job_id", [NOBODY, "nonsense", "x" * 64, "%00", "1", "..%2f"])
async def test_a_job_that_is_not_there_is_not_found(site: Site, job_id: str) -> None:
    answer = await site.get(f"/api/v1/queue/{job_id}")
    assert answer.status_code == 404, answer.text
    assert answer.json()["code"] in ("job_not_found", "not_found")


async def test_a_failed_job_is_retried(site: Site) -> None:
    (job_id,) = await site.dead()
    assert [job["id"] for job in (await site.get("/api/v1/queue/dead-letter")).json()["jobs"]] == [job_id]
    answer = await site.post(f"/api/v1/queue/{job_id}/retry", token="operator")
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["attempts"]) == ("queued", 0)
    problem(await site.post(f"/api/v1/queue/{job_id}/retry"), 409, "job_not_retryable")
    problem(await site.post(f"/api/v1/queue/{NOBODY}/retry"), 404, "job_not_found")


async def test_a_waiting_job_is_cancelled(site: Site) -> None:
    job = await site.enqueue()
    answer = await site.post(f"/api/v1/queue/{job['id']}/cancel", token="operator")
    assert answer.json()["status"] == "cancelled"
    problem(await site.post(f"/api/v1/queue/{job['id']}/cancel"), 409, "job_is_over")
    problem(await site.post(f"/api/v1/queue/{NOBODY}/cancel"), 404, "job_not_found")


async def test_a_running_job_is_told_to_stop(site: Site) -> None:
    job = await site.enqueue()
    await site.app.store.claim("default", NOBODY, 1)
    answer = await site.post(f"/api/v1/queue/{job['id']}/cancel")
    assert (answer.json()["status"], answer.json()["cancelRequested"]) == ("processing", True)


@pytest.mark.every_store
async def test_failed_jobs_are_retried_by_filter_after_a_dry_run(site: Site) -> None:
    await site.dead(3)
    path = "/api/v1/queue/dead-letter/retry"
    dry = (await site.post(path, {"type": "doomed", "dryRun": True}, "operator")).json()
    assert dry == {"dryRun": True, "matched": 3, "retried": 0, "conflicts": [], "nextCursor": None}
    assert (await site.post(path, {"type": "ping"})).json()["retried"] == 0
    part = (await site.post(path, {"type": "doomed", "limit": 2})).json()
    assert (part["matched"], part["retried"]) == (2, 2)
    rest = (await site.post(path, {"type": "doomed", "cursor": part["nextCursor"]})).json()
    assert (rest["retried"], rest["nextCursor"]) == (1, None)
    assert (await site.get("/api/v1/queue/stats")).json()["counts"]["queued"] == 3


async def test_failed_jobs_are_discarded_by_id(site: Site) -> None:
    ids = await site.dead(3)
    path = "/api/v1/queue/dead-letter/discard"
    done = (await site.post(path, {"ids": [*ids[:2], NOBODY]})).json()
    assert done == {"dryRun": False, "matched": 2, "discarded": 2, "nextCursor": None}
    assert [job["id"] for job in (await site.get("/api/v1/queue/dead-letter")).json()["jobs"]] == ids[2:]


@pytest.mark.parametrize("given", [{}, {"all": False}, {"all": True, "type": "ping"}, {"ids": []}])
async def test_which_failed_jobs_must_be_said(site: Site, given: Any) -> None:
    for verb in ("retry", "discard"):
        problem(await site.post(f"/api/v1/queue/dead-letter/{verb}", given), 422, "validation_failed")


async def test_all_failed_jobs_may_be_meant(site: Site) -> None:
    await site.dead(2)
    assert (await site.post("/api/v1/queue/dead-letter/retry", {"all": True})).json()["retried"] == 2


@pytest.mark.every_store
async def test_stats_count(site: Site) -> None:
    await site.enqueue()
    await site.dead(2)
    told = (await site.get("/api/v1/queue/stats", "viewer")).json()
    assert told["counts"] == {"queued": 0, "processing": 0, "succeeded": 1, "failed": 2, "cancelled": 0}
    assert told["lastHour"]["failed"] == 2
    assert told["lastHour"]["succeeded"] == 1


@pytest.mark.every_store
async def test_asking_again_costs_a_line_while_nothing_has_changed(site: Site) -> None:
    job = await site.enqueue()
    for path in (f"/api/v1/queue/{job['id']}", "/api/v1/queue", "/api/v1/queue/stats", "/api/v1/queues"):
        first = await site.get(path)
        again = await site.get(path, headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
    tag = first.headers["etag"]
    await site.post(f"/api/v1/queue/{job['id']}/cancel")
    changed = await site.get(f"/api/v1/queue/{job['id']}", headers={"if-none-match": tag})
    assert changed.status_code == 200


async def test_in_resilient_mode_a_job_runs_at_once(make_site: MakeSite) -> None:
    site = await make_site(resilient=True)
    job = await site.enqueue()
    assert (job["status"], job["created"]) == ("succeeded", True)
    told = problem(await site.post(ENQUEUE, {"type": "doomed"}), 422, "job_failed")
    assert "it never works" in told["detail"]


@pytest.mark.every_store
async def test_a_page_of_large_jobs_ends_early(site: Site) -> None:
    ids = [(await site.enqueue("open", payload={"a": "x" * 400_000}))["id"] for _ in range(5)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while len(seen) < 5:
        page = (await site.get("/api/v1/queue", params={"limit": 1_000, **cursor})).json()
        assert 0 < len(page["jobs"]) <= 2
        seen += [job["id"] for job in page["jobs"]]
        cursor = {"cursor": page["nextCursor"]}
    assert seen == ids[::-1]


async def test_many_small_jobs_come_in_one_page(site: Site) -> None:
    await site.app.enqueue_many(("ping", {}) for _ in range(300))
    page = (await site.get("/api/v1/queue?limit=250")).json()
    assert len(page["jobs"]) == 250
    rest = (await site.get("/api/v1/queue", params={"limit": 250, "cursor": page["nextCursor"]})).json()
    assert (len(rest["jobs"]), rest["nextCursor"]) == (50, None)


async def test_a_duplicate_comes_with_the_job_that_exists(site: Site) -> None:
    first = await site.enqueue("once", payload={"number": 1})
    told = problem(await site.post(ENQUEUE, {"type": "once", "payload": {"number": 1}}), 409, "duplicate_job")
    assert told["existing"]["id"] == first["id"]
    assert told["existing"]["status"] == "queued"
