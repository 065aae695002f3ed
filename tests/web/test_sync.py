"""Outbound sync over HTTP: integrations, how they do, operations to send, and what is told of those that died."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from rowlock import FakeClock, Rowlock
from rowlock.jobs.worker.failure_watch import NOTIFICATION_QUEUE, FailureWatch
from rowlock.observe import logs
from rowlock.storage.access import Role
from sync.service import Reply, Service, serving
from unit.test_webhook import Receiver, serve
from web.conftest import MakeSite
from web.site import Site, problem
from web.syncing import CREATE, SCOPES_URL, SECRET, UPDATE, agrees, declare_crm, refuses, sent

DISABLED = "set ROWLOCK_CRM_TOKEN"


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with serving() as made:
        made.answer = agrees
        yield made


@pytest.fixture
async def crm(make_site: MakeSite, service: Service) -> Site:
    """A site whose integration works."""
    return await make_site(partial(declare_crm, base_url=service.url))


@pytest.fixture
def hook() -> Iterator[Receiver]:
    yield from serve()


async def drain(app: Rowlock, *queues: str) -> None:
    async with asyncio.timeout(30):
        await app.work(*queues, drain=True)


# -- what there is ---------------------------------------------------------------------------------


async def test_integrations_are_listed_with_their_operations(crm: Site) -> None:
    declare_crm_named(crm.app, "books", DISABLED)
    told = (await crm.get("/api/v1/sync", "viewer")).json()
    books, found = told["integrations"]
    assert (books["name"], books["enabled"], books["why"]) == ("books", False, DISABLED)
    operations = found.pop("operations")
    assert found == {
        "name": "crm",
        "enabled": True,
        "why": None,
        "queues": ["crm", "crm.update_contact"],
        "scopesUrl": SCOPES_URL,
    }
    assert [(each["name"], each["enabled"], each["priority"], each["batch"]) for each in operations] == [
        ("create_contact", True, 5, None),
        ("update_contact", True, 5, 10),
        ("create_deal", False, 7, None),
    ]
    assert operations[0] == {
        "name": "create_contact",
        "type": "crm.create_contact",
        "enabled": True,
        "priority": 5,
        "fields": ["email", "firstName", "token"],
        "key": "member_creation_{email}",
        "about": "{email}",
        "batch": None,
    }


def declare_crm_named(app: Rowlock, name: str, disabled: str) -> None:
    app.integration(name, base_url="http://127.0.0.1:9", disabled=disabled)


async def test_an_application_without_integrations_has_none(site: Site) -> None:
    assert (await site.get("/api/v1/sync", "viewer")).json() == {"integrations": []}
    told = problem(await site.get("/api/v1/sync/hubspot/stats"), 404, "integration_not_found")
    assert told["detail"] == "no integration is called 'hubspot'; known: none"


async def test_what_is_not_there_is_answered_with_the_nearest_names(crm: Site) -> None:
    for path in ("/api/v1/sync/crn/stats", "/api/v1/sync/crn/monitor"):
        told = problem(await crm.get(path), 404, "integration_not_found")
        assert told["detail"] == "no integration is called 'crn'; did you mean crm?"
    problem(await crm.post("/api/v1/sync/crn/create_contact", {}), 404, "integration_not_found")
    told = problem(await crm.post("/api/v1/sync/crm/create_contct", {}), 404, "operation_not_found")
    assert "did you mean create_contact" in told["detail"]
    told = problem(await crm.post("/api/v1/sync/crm/x", {}), 404, "operation_not_found")
    assert told["detail"].endswith("known: create_contact, create_deal, update_contact")


# -- sending ---------------------------------------------------------------------------------------


async def test_an_operation_is_sent_and_done(crm: Site, service: Service) -> None:
    answer = await crm.post(CREATE, {"payload": {"email": "ada@example.org"}, "priority": 3}, "operator")
    job = answer.json()
    assert answer.status_code == 201
    assert (job["type"], job["queue"], job["priority"], job["created"]) == ("crm.create_contact", "crm", 3, True)
    assert job["payload"] == {"email": "ada@example.org"}
    await drain(crm.app)
    done = (await crm.get(f"/api/v1/queue/{job['id']}")).json()
    assert (done["status"], done["result"], done["guidance"]) == ("succeeded", {"id": "7"}, [])
    assert service.paths() == ["POST /contacts"]
    assert service.asked[0].headers["authorization"] == f"Bearer {SECRET}"


async def test_a_body_without_payload_is_the_payload(crm: Site) -> None:
    job = (await crm.post(CREATE, {"email": "ada@example.org", "firstName": "Ada"})).json()
    assert job["payload"] == {"email": "ada@example.org", "firstName": "Ada"}
    assert job["priority"] == 5


@pytest.mark.every_store
async def test_the_job_of_the_same_key_is_the_answer_while_it_waits(crm: Site) -> None:
    first = await crm.post(CREATE, {"email": "ada@example.org"})
    again = await crm.post(CREATE, {"email": "ada@example.org", "firstName": "Ada"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert (again.json()["id"], again.json()["created"]) == (first.json()["id"], False)
    await drain(crm.app)
    assert (await crm.post(CREATE, {"email": "ada@example.org"})).status_code == 201


async def test_an_operation_waits_as_long_as_it_is_told(crm: Site, service: Service, clock: FakeClock) -> None:
    await sent(crm, payload={"email": "ada@example.org"}, delaySeconds=60)
    await drain(crm.app)
    assert service.asked == []
    clock.advance(61)
    await drain(crm.app)
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "bad_payload"),
        ({"payload": {}}, "bad_payload"),
        ({"email": 7}, "bad_payload"),
        ({"email": "ada@example.org", "nonsense": 1}, "bad_payload"),
        ({"email": "ada@example.org", "priority": 3}, "bad_payload"),
        ({"payload": {"email": "a"}, "priority": 0}, "validation_failed"),
        ({"payload": {"email": "a"}, "priority": 11}, "validation_failed"),
        ({"payload": {"email": "a"}, "delaySeconds": -1}, "validation_failed"),
        ({"payload": {"email": "a"}, "nonsense": 1}, "validation_failed"),
        ({"payload": [1]}, "validation_failed"),
        ([1], "validation_failed"),
        ("text", "validation_failed"),
    ],
)
async def test_what_is_wrong_is_refused(crm: Site, given: Any, code: str) -> None:
    problem(await crm.post(CREATE, given), 422, code)
    assert (await crm.get("/api/v1/sync/crm/stats")).json()["pending"] == 0


async def test_no_body_is_none(crm: Site) -> None:
    problem(await crm.post(CREATE), 422, "malformed_body")


async def test_a_batch_operation_is_checked_and_sent_as_the_others(crm: Site, service: Service) -> None:
    problem(await crm.post(UPDATE, {"email": "ada@example.org"}), 422, "bad_payload")
    for name in ("ada", "grace"):
        await sent(crm, "update_contact", payload={"email": f"{name}@example.org", "properties": {"tier": "gold"}})
    await drain(crm.app)
    assert service.paths() == ["POST /contacts/batch"]
    assert service.asked[0].json == ["ada@example.org", "grace@example.org"]


async def test_a_disabled_integration_takes_nothing_and_says_what_enables_it(make_site: MakeSite) -> None:
    site = await make_site(partial(declare_crm, disabled=DISABLED))
    told = problem(await site.post(CREATE, {"email": "ada@example.org"}), 409, "integration_disabled")
    assert told["detail"] == f"crm is disabled: {DISABLED}"
    monitor = (await site.get("/api/v1/sync/crm/monitor")).json()
    assert (monitor["enabled"], monitor["why"]) == (False, DISABLED)
    assert (await site.get("/api/v1/queue")).json()["jobs"] == []


async def test_an_operation_that_is_off_is_skipped(crm: Site, service: Service) -> None:
    job = await sent(crm, "create_deal", payload={"name": "x"})
    await drain(crm.app)
    done = (await crm.get(f"/api/v1/queue/{job['id']}")).json()
    assert (done["status"], done["result"]["skipped"]) == ("succeeded", True)
    assert service.asked == []


async def test_sent_again_with_an_idempotency_key_it_is_sent_once(crm: Site) -> None:
    key = {"idempotency-key": "same"}
    given = {"payload": {"email": "ada@example.org", "properties": {}}}
    first = await crm.post(UPDATE, given, headers=key)
    again = await crm.post(UPDATE, given, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    assert (await crm.get("/api/v1/sync/crm/stats")).json()["pending"] == 1
    other = await crm.post(CREATE, {"email": "ada@example.org"}, headers=key)
    problem(other, 422, "idempotency_key_reused")


# -- who may ---------------------------------------------------------------------------------------


async def test_viewers_look_and_operators_send(crm: Site) -> None:
    for path in ("/api/v1/sync", "/api/v1/sync/crm/stats", "/api/v1/sync/crm/monitor"):
        assert (await crm.get(path, "viewer")).status_code == 200
        problem(await crm.get(path, None), 401, "unauthorized")
    problem(await crm.post(CREATE, {"email": "ada@example.org"}, "viewer"), 403, "forbidden")
    problem(await crm.post(CREATE, {"email": "ada@example.org"}, None), 401, "unauthorized")
    assert (await crm.post(CREATE, {"email": "ada@example.org"}, "operator")).status_code == 201


async def test_a_company_sends_and_sees_what_is_its_own(crm: Site, service: Service, clock: FakeClock) -> None:
    await crm.add_token("acme", Role.OPERATOR, "acme")
    await crm.add_token("globex", Role.OPERATOR, "globex")
    service.answer = refuses
    ours = await sent(crm, token="acme", payload={"email": "ada@example.org"})
    theirs = await sent(crm, token="globex", payload={"email": "ada@example.org"})
    assert (ours["companyId"], theirs["companyId"]) == ("acme", "globex")
    assert ours["id"] != theirs["id"], "the same key of another company is another key"
    await drain(crm.app)
    clock.advance(60)  # both are about the same: one lets the other go first
    await drain(crm.app)
    await sent(crm, token="globex", payload={"email": "grace@example.org"})
    told = (await crm.get("/api/v1/sync/crm/monitor", "acme")).json()
    assert told["counts"] == (await crm.get("/api/v1/sync/crm/stats", "acme")).json()
    assert told["counts"] == {"pending": 0, "processing": 0, "failed": 0, "dead": 1, "completed24h": 0}
    assert [each["jobId"] for each in told["failures"]] == [ours["id"]]
    assert told["limits"] == []
    assert (told["lagSeconds"], len((await crm.get("/api/v1/sync/crm/monitor")).json()["limits"])) == (None, 2)
    whole = (await crm.get("/api/v1/sync/crm/stats", "viewer")).json()
    assert (whole["dead"], whole["pending"]) == (2, 1)


async def test_a_company_does_not_send_for_another(crm: Site) -> None:
    await crm.add_token("acme", Role.OPERATOR, "acme")
    for given in (
        {"payload": {"email": "a"}, "companyId": "globex"},
        {"payload": {"email": "a", "companyId": "globex"}},
        {"email": "a", "company_id": "globex"},
    ):
        problem(await crm.post(CREATE, given, "acme"), 403, "company_scope")
    assert (await crm.get("/api/v1/sync/crm/stats")).json()["pending"] == 0


async def test_secrets_are_not_told(crm: Site, service: Service) -> None:
    service.answer = lambda asked: Reply(500, {"message": f"no: {SECRET}, token={SECRET}"})
    job = await sent(crm, payload={"email": "ada@example.org", "token": "hunter2-canary"})
    await drain(crm.app)
    for path in (f"/api/v1/queue/{job['id']}", "/api/v1/sync/crm/monitor", "/api/v1/sync", "/api/v1/queue"):
        text = (await crm.get(path)).text
        assert "canary" not in text, path


# -- how it does -----------------------------------------------------------------------------------


@pytest.mark.every_store
async def test_stats_and_monitor_tell_how_it_does(crm: Site, service: Service, clock: FakeClock) -> None:
    done = await sent(crm, payload={"email": "done@example.org"})
    await drain(crm.app)
    service.answer = lambda asked: Reply(500, {"message": "try later"})
    failing = await sent(crm, payload={"email": "failing@example.org"})
    await drain(crm.app)
    service.answer = refuses
    clock.advance(1)
    dead = await sent(crm, payload={"email": "dead@example.org"})
    await drain(crm.app)
    clock.advance(1)
    await sent(crm, payload={"email": "waiting@example.org"})
    clock.advance(30)
    stats = (await crm.get("/api/v1/sync/crm/stats", "viewer")).json()
    assert stats == {"pending": 1, "processing": 0, "failed": 1, "dead": 1, "completed24h": 1}
    told = (await crm.get("/api/v1/sync/crm/monitor", "viewer")).json()
    assert (told["integration"], told["enabled"], told["why"], told["counts"]) == ("crm", True, None, stats)
    last, first = told["failures"]
    assert (last["jobId"], last["operation"], last["status"]) == (dead["id"], "create_contact", "failed")
    assert (last["retryCount"], last["nextRetryAt"]) == (0, None)
    assert "403" in last["error"]
    assert (first["jobId"], first["status"], first["retryCount"]) == (failing["id"], "queued", 1)
    assert first["nextRetryAt"].endswith("Z")
    assert "500" in first["error"]
    assert 30 <= told["lagSeconds"] < 31
    assert told["meanProcessingMs"] >= 0
    assert [(each["name"], each["count"], each["group"]) for each in told["limits"]] == [
        ("1 s", 1_000, None),
        ("search 1 s", 500, "search"),
    ]
    assert done["id"] not in str(told)
    tag = (await crm.get("/api/v1/sync/crm/stats")).headers["etag"]
    assert (await crm.get("/api/v1/sync/crm/stats", headers={"if-none-match": tag})).status_code == 304


# -- what died -------------------------------------------------------------------------------------


async def test_what_was_refused_says_where_to_put_it_right_and_is_run_again_at_once(
    crm: Site, service: Service
) -> None:
    service.answer = refuses
    jobs = [await sent(crm, payload={"email": f"{name}@example.org"}) for name in ("ada", "grace")]
    jobs.append(await sent(crm, "update_contact", payload={"email": "joan@example.org", "properties": {"a": "b"}}))
    await drain(crm.app)
    (other,) = await crm.dead()
    for job in jobs:
        dead = (await crm.get(f"/api/v1/queue/{job['id']}")).json()
        assert (dead["status"], dead["attempts"]) == ("failed", 1)
        assert dead["guidance"] == [
            "The other system refused our credentials or their scopes (401, 403 or MISSING_SCOPES): trying again "
            f"cannot help before they are put right. Those of crm are set at {SCOPES_URL}",
            f"When the cause is gone, run it again: rowlock dead retry {job['id']}",
            "To run all jobs of crm again that failed: rowlock dead retry --type 'crm.*'",
        ]
    listed = (await crm.get("/api/v1/queue/dead-letter", params={"type": "crm.*"})).json()["jobs"]
    assert {job["id"] for job in listed} == {job["id"] for job in jobs}
    service.answer = agrees
    dry = await crm.post("/api/v1/queue/dead-letter/retry", {"type": "crm.*", "dryRun": True}, "operator")
    assert dry.json()["matched"] == 3
    done = await crm.post("/api/v1/queue/dead-letter/retry", {"type": "crm.*"}, "operator")
    assert done.json()["retried"] == 3
    await drain(crm.app)
    stats = (await crm.get("/api/v1/sync/crm/stats")).json()
    assert (stats["dead"], stats["completed24h"]) == (0, 3)
    assert (await crm.get(f"/api/v1/queue/{other}")).json()["status"] == "failed"


async def test_a_job_of_no_integration_has_guidance_too(site: Site) -> None:
    (dead,) = await site.dead()
    told = (await site.get(f"/api/v1/queue/{dead}")).json()
    assert told["guidance"] == [f"When the cause is gone, run it again: rowlock dead retry {dead}"]
    assert (await site.enqueue())["guidance"] == []


async def test_staff_are_told_what_died_why_and_where_to_put_it_right(
    make_site: MakeSite, service: Service, hook: Receiver, clock: FakeClock
) -> None:
    site = await make_site(
        partial(declare_crm, base_url=service.url),
        webhook_urls=hook.url,
        webhook_secret="whsec_" + base64.b64encode(bytes(range(32))).decode(),
        webhook_allow_private=True,
    )
    service.answer = refuses
    job = await sent(site, payload={"email": "ada@example.org"})
    await drain(site.app, "crm")
    await FailureWatch(site.app.engine, logs.get()).check()
    clock.advance(11)
    await drain(site.app, NOTIFICATION_QUEUE)
    ((_, _, body),) = hook.requests
    data = json.loads(body)["data"]
    (group,) = data["groups"]
    assert (group["jobIds"], group["integration"], group["operation"]) == ([job["id"]], "crm", "create_contact")
    assert (group["count"], group["attempts"], group["scopesUrl"]) == (1, 1, SCOPES_URL)
    assert "403" in group["lastError"]
    assert SCOPES_URL in group["guidance"][0]
    assert f"rowlock dead retry {job['id']}" in group["guidance"][-2]
    for said in (job["id"], "crm.create_contact", "attempts:   1", "MISSING_SCOPES", SCOPES_URL, "'crm.*'"):
        assert said in data["text"], said
    assert SECRET.encode() not in body


async def test_an_address_says_what_it_takes(crm: Site) -> None:
    answer = await crm.ask("OPTIONS", "/api/v1/sync/crm/stats")
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET"
    answer = await crm.get(CREATE)
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


async def test_in_resilient_mode_an_operation_is_done_at_once(make_site: MakeSite, service: Service) -> None:
    site = await make_site(partial(declare_crm, base_url=service.url), resilient=True)
    answer = await site.post(CREATE, {"email": "ada@example.org"})
    assert (answer.status_code, answer.json()["status"]) == (201, "succeeded")
    assert service.paths() == ["POST /contacts"]
    service.answer = refuses
    told = problem(await site.post(CREATE, {"email": "ada@example.org"}), 422, "job_failed")
    assert "MISSING_SCOPES" in told["detail"]
    assert SECRET not in told["detail"]
