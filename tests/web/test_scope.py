"""A token for one company cannot see, count or guess another company's jobs, on any route."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute

from rowlock.http.asgi import Api
from rowlock.storage.access import Role
from web.importing import declare_importers, declare_owned, raw
from web.site import Site, problem
from web.syncing import declare_crm, sent


@pytest.fixture
async def scoped(site: Site) -> Site:
    """A site with jobs and failures of two companies, and an administrator of one of them."""
    await site.add_token("acme", Role.ADMIN, "acme")
    await site.add_token("globex", Role.ADMIN, "globex")
    return site


async def both(site: Site) -> tuple[str, str]:
    """A dead job of each company."""
    (ours,) = await site.dead(companyId="acme", payload={"password": "canary-acme"})
    (theirs,) = await site.dead(companyId="globex", payload={"password": "canary-globex"})
    return ours, theirs


@pytest.mark.every_store
async def test_every_route_keeps_another_companys_jobs_to_itself(scoped: Site) -> None:
    """Walks all routes with the ids of another company: nothing of it may be in any answer."""
    _, theirs = await both(scoped)
    failures = (await scoped.get("/api/admin/queue/failures?companyId=globex")).json()["data"]["failures"]
    failure = failures[0]["id"]
    declare_importers(scoped.app)
    declare_owned(scoped.app)
    imported = (await raw(scoped, token="globex", type="owned", filename="canary.csv")).json()["id"]
    declare_crm(scoped.app, base_url="http://127.0.0.1:9")
    payload = {"email": "ada@example.org", "firstName": "canary"}
    await sent(scoped, token="globex", payload=payload, delaySeconds=60)
    walked = 0
    for route in Api(scoped.app).routes.routes:
        if not isinstance(route, APIRoute) or route.path == "/api/v1/events":
            continue
        names = {"name": "globex", "integration": "crm", "operation": "create_contact"}
        path = route.path_format.format(job_id=theirs, failure_id=failure, import_id=imported, **names)
        for method in route.methods:
            for body in _bodies(theirs, failure) if method == "POST" else [None]:
                request: dict[str, Any] = {} if body is None else {"json": body}
                answer = await scoped.ask(
                    method, path, "acme", params={"companyId": "globex", "raw": "true"}, **request
                )
                assert "canary" not in answer.text, (method, path)
                assert theirs not in answer.text.replace(path, "") or answer.status_code == 404, (method, path)
                assert failure not in answer.text or answer.status_code == 404, (method, path)
                assert imported not in answer.text.replace(path, "") or answer.status_code == 404, (method, path)
                told = answer.text.replace(path, "")
                assert "globex" not in told or answer.status_code in (403, 404), (method, path, told)
                walked += 1
    assert walked > 30
    # And nothing was changed: their job is dead as before, with its failure unresolved.
    assert (await scoped.get(f"/api/v1/queue/{theirs}")).json()["status"] == "failed"
    (left,) = (await scoped.get("/api/admin/queue/failures?companyId=globex")).json()["data"]["failures"]
    assert left["resolvedAt"] is None
    assert (await scoped.get(f"/api/v1/import-jobs/{imported}")).json()["status"] == "QUEUED"


def _bodies(job_id: str, failure_id: str) -> list[Any]:
    return [
        {"failureId": failure_id},
        {"ids": [job_id]},
        {"companyId": "globex"},
        {"all": True, "limit": 1, "dryRun": True},
        {"type": "ping", "companyId": "globex"},
        {"payload": {"email": "ada@example.org"}},
    ]


async def test_what_is_listed_is_ones_own(scoped: Site) -> None:
    ours, _ = await both(scoped)
    for path in ("/api/v1/queue", "/api/v1/queue/dead-letter", "/api/v1/queue?status=failed"):
        assert [job["id"] for job in (await scoped.get(path, "acme")).json()["jobs"]] == [ours]
    groups = (await scoped.get("/api/v1/queue/dead-letter/groups", "acme")).json()["groups"]
    assert [(group["count"], group["sampleId"]) for group in groups] == [(1, ours)]
    assert (await scoped.get("/api/v1/queue/dead-letter/groups?companyId=globex", "acme")).json()["groups"] == []
    found = (await scoped.get("/api/admin/queue/failures", "acme")).json()["data"]["failures"]
    assert [failure["jobId"] for failure in found] == [ours]
    assert (await scoped.get("/api/v1/queue?companyId=globex", "acme")).json()["jobs"] == []


@pytest.mark.every_store
async def test_what_is_counted_is_ones_own(scoped: Site) -> None:
    await both(scoped)
    await scoped.enqueue(companyId="globex")
    await scoped.enqueue()
    told = (await scoped.get("/api/v1/queue/stats", "acme")).json()
    assert told["counts"] == {"queued": 0, "processing": 0, "succeeded": 0, "failed": 1, "cancelled": 0}
    assert told["lastHour"] is None
    dry = (await scoped.post("/api/v1/queue/dead-letter/retry", {"all": True, "dryRun": True}, "acme")).json()
    assert dry["matched"] == 1


async def test_what_is_retried_or_discarded_is_ones_own(scoped: Site) -> None:
    _, theirs = await both(scoped)
    assert (await scoped.post("/api/v1/queue/dead-letter/retry", {"all": True}, "acme")).json()["retried"] == 1
    done = await scoped.post("/api/v1/queue/dead-letter/discard", {"ids": [theirs]}, "acme")
    assert done.json()["discarded"] == 0
    assert (await scoped.get(f"/api/v1/queue/{theirs}")).json()["status"] == "failed"


async def test_ones_own_and_unknown_jobs_of_others_look_the_same(scoped: Site) -> None:
    _, theirs = await both(scoped)
    nobody = theirs[:-4] + ("0000" if theirs[-4:] != "0000" else "1111")
    for verb in ("", "/timeline", "/retry", "/cancel", "/run-now"):
        method = "GET" if verb in ("", "/timeline") else "POST"
        there = problem(await scoped.ask(method, f"/api/v1/queue/{theirs}{verb}", "acme"), 404, "job_not_found")
        not_there = problem(await scoped.ask(method, f"/api/v1/queue/{nobody}{verb}", "acme"), 404, "job_not_found")
        assert {**there, "detail": ""} == {**not_there, "detail": ""}
        assert there["detail"].replace(theirs, "") == not_there["detail"].replace(nobody, "")


async def test_what_is_enqueued_is_ones_own(scoped: Site) -> None:
    answer = await scoped.post("/api/v1/queue/enqueue", {"type": "ping"}, "acme")
    assert answer.json()["companyId"] == "acme"
    for given in (
        {"type": "ping", "companyId": "globex"},
        {"type": "open", "payload": {"companyId": "globex"}},
        {"type": "open", "payload": {"company_id": "globex"}},
        {"type": "open", "payload": {"companyId": 7}},
    ):
        problem(await scoped.post("/api/v1/queue/enqueue", given, "acme"), 403, "company_scope")


@pytest.mark.every_store
async def test_a_duplicate_of_another_companys_job_is_none(scoped: Site) -> None:
    """409 would tell that the other one has such a job, and its id."""
    for given in (
        {"type": "once", "payload": {"number": 1}},
        {"type": "ping", "unique": {"policy": "forever", "key": "invoice-1"}},
    ):
        ours = await scoped.post("/api/v1/queue/enqueue", given, "acme")
        theirs = await scoped.post("/api/v1/queue/enqueue", given, "globex")
        assert (ours.status_code, theirs.status_code) == (201, 201)
        again = problem(await scoped.post("/api/v1/queue/enqueue", given, "acme"), 409, "duplicate_job")
        assert again["existingJobId"] == ours.json()["id"]


@pytest.mark.every_store
async def test_keys_of_companies_with_like_names_do_not_meet(scoped: Site) -> None:
    await scoped.add_token("inner", Role.ADMIN, "acme/eu")
    unique = {"policy": "forever"}
    first = await scoped.post("/api/v1/queue/enqueue", {"type": "ping", "unique": {**unique, "key": "eu/x"}}, "acme")
    second = await scoped.post("/api/v1/queue/enqueue", {"type": "ping", "unique": {**unique, "key": "x"}}, "inner")
    assert (first.status_code, second.status_code) == (201, 201)


async def test_a_cursor_does_not_tell_how_many_jobs_others_have(scoped: Site) -> None:
    for _ in range(3):
        await scoped.post("/api/v1/queue/enqueue", {"type": "ping"}, "acme")
    page = (await scoped.get("/api/v1/queue?limit=1", "acme")).json()
    assert page["nextCursor"] == page["jobs"][-1]["id"]


async def test_an_idempotency_key_is_its_tokens_own(scoped: Site) -> None:
    key = {"idempotency-key": "same"}
    ours = await scoped.post("/api/v1/queue/enqueue", {"type": "ping"}, "acme", headers=key)
    theirs = await scoped.post("/api/v1/queue/enqueue", {"type": "ping"}, "globex", headers=key)
    assert (ours.status_code, theirs.status_code) == (201, 201)
    assert ours.json()["id"] != theirs.json()["id"]
