"""HubSpot has done it and we do not know: nothing is made twice, and nothing is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hubspot_rig import Club

from rowlock import Answer, Call, Status
from rowlock.sync.request import Wire

DONE_BUT = ["cut", "cut_inside", "truncated", "wrong_json", "500_after"]
PAYMENT = {"email": "ada@example.com", "paymentIntentId": "pi_1", "amount": 12_345, "currency": "USD"}
WRITES = {
    # operation and payload: the calls that write, and how many of which there are in the end
    ("create_contact", "email=ada@example.com"): ("POST contacts$", {"contacts": 1}),
    ("update_contact", "email=ada@example.com"): ("POST contacts/batch/upsert", {"contacts": 1}),
    ("sync_tier", "email=ada@example.com newTier=vip"): ("POST contacts/batch/upsert", {"contacts": 1}),
    ("sync_payment", ""): ("POST contacts$,POST deals/batch/upsert,PUT associations", {"contacts": 1, "deals": 1}),
    ("sync_day_pass", ""): ("POST deals/batch/upsert", {"contacts": 1, "deals": 1}),
    ("sync_company", "externalId=c-1 name=Acme domain=acme.example email=ada@example.com"): (
        "POST companies/batch/upsert,POST contacts$,PUT associations",
        {"contacts": 1, "companies": 1},
    ),
    ("create_deal", "externalId=d-1 name=Wedding email=ada@example.com"): (
        "POST deals/batch/upsert",
        {"contacts": 1, "deals": 1},
    ),
}
CASES = [
    pytest.param(operation, payload, call, counts, id=f"{operation}-{call.rpartition(' ')[2]}")
    for (operation, payload), (calls, counts) in WRITES.items()
    for call in calls.split(",")
]


def payload_of(text: str) -> dict[str, Any]:
    return dict(field.split("=") for field in text.split()) if text else dict(PAYMENT)


@pytest.mark.parametrize(("operation", "payload", "call", "counts"), CASES)
async def test_what_was_done_without_an_answer_is_not_done_twice(
    club: Club, operation: str, payload: str, call: str, counts: dict[str, int]
) -> None:
    method, path = call.split()
    for number, trouble in enumerate(DONE_BUT):
        given = {
            name: value.replace("ada", f"ada{number}").replace("-1", f"-{number}").replace("pi_1", f"pi_{number}")
            if isinstance(value, str)
            else value
            for name, value in payload_of(payload).items()
        }
        if operation == "update_contact":
            given["status"] = "active"
        club.standin.script(trouble, method=method, path=path)
        job_id = await club.send(operation, **given)
        await club.work()
        assert (await club.record(job_id)).status is Status.QUEUED, f"{trouble}: it must be tried again"
        club.clock.advance(minutes=5)
        record = await club.record(job_id, work=True)
        assert (record.status, record.attempts) == (Status.SUCCEEDED, 2), f"{trouble}: {record.error}"
        for kind, count in counts.items():
            assert len(club.standin.things(kind)) == count * (number + 1), f"{trouble}: {kind}"
    ours = sum(len(club.standin.things(kind)) for kind in ("contacts", "companies", "deals"))
    assert ours == sum(counts.values()) * len(DONE_BUT)
    if "associations" in call or counts.keys() - {"contacts"}:
        assert len(club.standin.state()["associations"]) == 2 * len(DONE_BUT)  # one each, both ways
    assert club.standin.judgement()["complaints"] == []


async def test_a_creation_without_a_key_would_be_done_twice(club: Club) -> None:
    """The attack above is able to find what it looks for."""

    async def naive(call: Call, name: str) -> None:
        await call.post("/crm/v3/objects/deals", json={"properties": {"dealname": name}})

    club.hub.operation("naive")(naive)
    club.standin.script("cut", method="POST", path="deals$")
    await club.send("naive", name="Wedding")
    await club.retry_all(2)
    assert len(club.standin.things("deals")) == 2


@pytest.mark.parametrize("operation", ["create_contact", "sync_payment"])
async def test_a_call_that_takes_too_long_is_uncertain(
    any_club: Club, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_club.standin.trouble(scripts=[{"kind": "hang", "method": "POST", "path": "contacts$"}], hang_seconds=60.0)
    send, cut = Wire.send, []

    async def impatient(wire: Wire, request: Any) -> Answer:
        """The call that hangs has little time; those before and after it have as much as a busy machine needs."""
        if cut or request.method != "POST" or not request.url.path.endswith("/contacts"):
            return await send(wire, request)
        cut.append(request)
        with monkeypatch.context() as patch:
            patch.setattr(wire, "_timeout_seconds", 0.5)
            return await send(wire, request)

    monkeypatch.setattr(Wire, "send", impatient)
    payload = PAYMENT if operation == "sync_payment" else {"email": "ada@example.com"}
    job_id = await any_club.send(operation, **payload)
    await any_club.work()
    record = await any_club.record(job_id)
    assert record.status is Status.QUEUED
    assert "no answer within 0.5 s; it may have been done" in (record.error or "")
    any_club.standin.trouble()
    any_club.clock.advance(minutes=5)
    assert (await any_club.record(job_id, work=True)).status is Status.SUCCEEDED
    assert len(any_club.standin.things("contacts")) == 1


@pytest.mark.every_store
async def test_a_worker_that_is_gone_after_hubspot_s_yes_leaves_no_second_deal(any_club: Club) -> None:
    """The job is taken away from a worker that has called and not yet said so; another does it again."""
    called = asyncio.Event()
    dealt = any_club.hub.operations["sync_payment"].handler

    async def stands_still(call: Call, **fields: Any) -> Any:
        done = await dealt(call, **fields)
        if call.job.lease == 1:
            called.set()
            await asyncio.Event().wait()
        return done

    object.__setattr__(any_club.hub.operations["sync_payment"], "handler", stands_still)
    job_id = await any_club.send("sync_payment", **PAYMENT)
    worker = asyncio.create_task(any_club.app.work("hubspot"))
    async with asyncio.timeout(60):
        await called.wait()
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert len(any_club.standin.things("deals")) == 1
    for _ in range(4):
        any_club.clock.advance(minutes=20)
        await any_club.work()
    record = await any_club.record(job_id)
    assert (record.status, record.lease > 1) == (Status.SUCCEEDED, True), record.error
    assert len(any_club.standin.things("deals")) == len(any_club.standin.things("contacts")) == 1


@pytest.mark.parametrize("how", ["token", "scope"])
async def test_who_is_refused_is_dead_with_the_page_to_go_to_and_lives_again(any_club: Club, how: str) -> None:
    standin = any_club.standin
    if how == "token":
        standin.access(tokens=["another"])
    else:
        standin.access(scopes=["crm.objects.contacts.read", "crm.objects.contacts.write"])
    job_id = await any_club.send("sync_payment", **PAYMENT)
    updates = [await any_club.send("update_contact", email=f"m{n}@example.com", status="active") for n in range(3)]
    await any_club.work()
    record = await any_club.record(job_id)
    assert (record.status, record.attempts) == (Status.FAILED, 1)
    assert "https://app.hubspot.com/private-apps" in (record.error or "")
    assert ("MISSING_SCOPES" in (record.error or "")) is (how == "scope")
    assert standin.token not in (record.error or "")
    after = {(await any_club.record(each)).status for each in updates}
    assert after == {Status.FAILED if how == "token" else Status.SUCCEEDED}
    standin.reset()
    await any_club.run("ensure")
    for each in [job_id, *(updates if how == "token" else ())]:
        await any_club.app.retry(each)
    await any_club.work()
    assert (await any_club.record(job_id)).status is Status.SUCCEEDED
    assert len(standin.things("deals")) == 1


async def test_what_cannot_be_mended_is_dead_after_five_retries_with_its_reason(club: Club) -> None:
    job_id = await club.send("update_contact", email="ada@example.com", properties={"lifecyclestage": "asleep"})
    await club.retry_all(8)
    record = await club.record(job_id)
    assert (record.status, record.attempts) == (Status.FAILED, 6)
    assert "asleep was not one of the allowed options" in (record.error or "")


async def test_a_third_of_bad_updates_does_not_cost_the_others_an_attempt(club: Club) -> None:
    jobs = {
        await club.send(
            "update_contact", email=f"m{n}@example.com", properties={"city": "Rome"} if n % 3 else {"nowhere": "x"}
        ): n % 3
        for n in range(60)
    }
    await club.work()
    for job_id, good in jobs.items():
        record = await club.record(job_id)
        assert (record.status is Status.SUCCEEDED) is bool(good), record.error
    assert len(club.standin.things("contacts")) == 40
