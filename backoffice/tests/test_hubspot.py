"""What each operation leaves at HubSpot."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hubspot_rig import Club, opened

import backoffice
from backoffice.hubspot import declare
from backoffice.hubspot.vocabulary import provider_value, status_value
from engine.running import Log
from rowlock import BadPayload, FakeClock, Integration, Permanent, Rowlock, SettingsError
from rowlock.settings import load
from sync.standin import StandIn

PAYMENT = {"email": "ada@example.com", "paymentIntentId": "pi_1", "amount": 12_345, "currency": "usd"}


@pytest.fixture(scope="module")
def closed() -> Integration:
    """The operations without a database: what is refused here never gets to one."""
    return declare(
        Rowlock(settings=load(database_url="sqlite:////nowhere/jobs.db", hubspot_token="t")), operations_off=()
    )


async def test_a_member_becomes_a_contact(club: Club) -> None:
    done = await club.run("create_contact", email=" Ada@Example.com ", firstName="Ada", tier="Founding Member")
    contact = club.one("contacts")
    assert contact["email"] == "ada@example.com"
    assert (contact["firstname"], contact["membership_tier"]) == ("Ada", "founding_member")
    assert done["created"] is True


async def test_a_contact_that_is_there_keeps_what_it_has(club: Club) -> None:
    club.standin.objects("contacts", [{"email": "ada@example.com", "firstname": "Augusta"}])
    done = await club.run("create_contact", email="ADA@example.com", firstName="Ada", lastName="Lovelace")
    contact = club.one("contacts")
    assert (contact["firstname"], contact["lastname"]) == ("Augusta", "Lovelace")
    assert (done["created"], done["filled"]) == (False, ["lastname"])


async def test_updates_of_many_contacts_go_in_one_call(club: Club) -> None:
    for number in range(100):
        await club.send("update_contact", email=f"m{number}@example.com", status="active")
    await club.work()
    assert len(club.standin.things("contacts")) == 100
    assert {each["membership_status"] for each in club.standin.things("contacts")} == {"active"}
    assert len([path for method, path in club.calls() if path.endswith("contacts/batch/upsert")]) == 1


async def test_updates_of_one_contact_merge_and_the_newest_value_wins(any_club: Club) -> None:
    await any_club.send("update_contact", email="ada@example.com", status="pending", properties={"city": "London"})
    await any_club.send("update_contact", email="ADA@example.com ", status="active", lifecycleStage="customer")
    await any_club.work()
    contact = any_club.one("contacts")
    assert (contact["membership_status"], contact["city"], contact["lifecyclestage"]) == (
        "active",
        "London",
        "customer",
    )
    assert len([path for method, path in any_club.calls() if path.endswith("contacts/batch/upsert")]) == 1


async def test_a_bad_update_does_not_keep_the_others_from_getting_through(club: Club) -> None:
    good = [await club.send("update_contact", email=f"m{n}@example.com", status="active") for n in range(20)]
    bad = [
        await club.send("update_contact", email="odd@example.com", properties={"no_such_property": "1"}),
        await club.send("update_contact", email="odder@example.com", properties={"lifecyclestage": "asleep"}),
        await club.send("update_contact", email="odd-status@example.com", status="asleep"),
    ]
    await club.work()
    assert {(await club.record(job_id)).status.value for job_id in good} == {"succeeded"}
    assert len(club.standin.things("contacts")) == 20
    unknown, unfit, unheard = [await club.record(job_id) for job_id in bad]
    assert "no_such_property" in (unknown.error or "")
    assert "asleep" in (unfit.error or "")
    assert (unheard.status.value, unheard.attempts) == ("failed", 1)
    assert "known are Pending, Trialing, Active" in (unheard.error or "")


async def test_an_update_of_nothing_says_so(club: Club) -> None:
    record = await club.record(await club.send("update_contact", email="ada@example.com"), work=True)
    assert (record.status.value, record.attempts) == ("failed", 1)
    assert "nothing to write" in (record.error or "")


async def test_an_empty_value_clears_a_property(club: Club) -> None:
    club.standin.objects("contacts", [{"email": "ada@example.com", "city": "Rome"}])
    await club.run("update_contact", email="ada@example.com", properties={"city": ""})
    assert "city" not in club.one("contacts")


async def test_a_tier_is_written_however_it_is_spelt(club: Club) -> None:
    club.standin.objects("contacts", [{"email": "ada@example.com"}])
    await club.run("sync_tier", email="ada@example.com", oldTier="Core", newTier="founding-member")
    assert club.one("contacts")["membership_tier"] == "founding_member"


async def test_an_unknown_tier_is_dead_at_once_and_nothing_is_called(club: Club) -> None:
    before = club.calls()
    record = await club.record(await club.send("sync_tier", email="ada@example.com", newTier="Platnum"), work=True)
    assert (record.status.value, record.attempts) == ("failed", 1)
    assert "Platnum" in (record.error or "")
    assert "known are Social, Core, Premium, Corporate, Founding Member, VIP" in (record.error or "")
    assert club.calls() == before


@pytest.mark.every_store
async def test_an_older_tier_that_is_tried_again_late_does_not_win(any_club: Club) -> None:
    any_club.standin.script("500", path="batch/upsert")
    first = await any_club.send("sync_tier", email="ada@example.com", oldTier="core", newTier="premium")
    await any_club.work()
    assert (await any_club.record(first)).status.value == "queued"
    await any_club.run("sync_tier", email="ada@example.com", oldTier="premium", newTier="vip")
    any_club.clock.advance(hours=1)
    record = await any_club.record(first, work=True)
    assert record.status.value == "succeeded"
    assert "newer" in (record.result or "")
    assert any_club.one("contacts")["membership_tier"] == "vip"


async def test_a_payment_is_one_won_deal_of_its_contact(club: Club) -> None:
    done = await club.run("sync_payment", **PAYMENT, description="Dues", paidAt="2026-03-01T12:00:00+01:00")
    deal = club.one("deals")
    assert (deal["amount"], deal["billing_currency"], deal["billing_reference"]) == ("123.45", "USD", "pi_1")
    assert (deal["dealname"], deal["dealstage"], deal["pipeline"]) == ("Dues (ada@example.com)", "closedwon", "default")
    assert (deal["closedate"], deal["billing_provider"]) == ("2026-03-01T11:00:00.000Z", "stripe")
    assert club.one("contacts")["email"] == "ada@example.com"
    assert ["deals", done["dealId"], "contacts", done["contactId"], [3]] in club.standin.state()["associations"]


async def test_a_payment_sent_again_is_the_same_deal(club: Club) -> None:
    first = await club.run("sync_payment", **PAYMENT)
    again = await club.run("sync_payment", **PAYMENT)
    assert (first["dealId"], first["created"]) == (again["dealId"], True)
    assert again["created"] is False
    assert len(club.standin.things("deals")) == len(club.standin.things("contacts")) == 1
    assert len(club.standin.state()["associations"]) == 2  # both ways


@pytest.mark.parametrize(
    ("operation", "payload", "newer", "found"),
    [
        ("sync_payment", PAYMENT, {"amount": 999, "currency": "EUR"}, {"amount": "9.99", "billing_currency": "EUR"}),
        ("sync_day_pass", PAYMENT, {"amount": 999, "description": "Pool"}, {"dealname": "Pool (ada@example.com)"}),
        ("create_deal", {"externalId": "d-1", "name": "Wedding"}, {"stage": "closedwon"}, {"dealstage": "closedwon"}),
    ],
)
async def test_a_dead_deal_that_is_retried_after_a_newer_one_sets_nothing_back(
    any_club: Club, operation: str, payload: dict[str, Any], newer: dict[str, Any], found: dict[str, str]
) -> None:
    any_club.standin.access(tokens=["another"])
    first = await any_club.send(operation, **payload)
    assert (await any_club.record(first, work=True)).status.value == "failed"
    any_club.standin.access(tokens=[any_club.standin.token])
    await any_club.run(operation, **payload | newer)
    before = any_club.one("deals")
    await any_club.app.retry(first)
    record = await any_club.record(first, work=True)
    assert record.status.value == "succeeded", record.error
    assert any_club.one("deals") == before
    assert before.items() >= found.items()


async def test_what_only_the_older_job_says_of_a_deal_is_written_late(any_club: Club) -> None:
    any_club.standin.access(tokens=["another"])
    first = await any_club.send("create_deal", externalId="d-1", name="Old", amount=100, email="ada@example.com")
    assert (await any_club.record(first, work=True)).status.value == "failed"
    any_club.standin.access(tokens=[any_club.standin.token])
    await any_club.run("create_deal", externalId="d-1", name="New")
    await any_club.app.retry(first)
    assert (await any_club.record(first, work=True)).status.value == "succeeded"
    deal = any_club.one("deals")
    assert (deal["dealname"], deal["amount"]) == ("New", "1.00")
    assert len(any_club.standin.state()["associations"]) == 2  # both ways


@pytest.mark.parametrize(
    ("amount", "currency", "text"), [(10, "USD", "0.10"), (29, "EUR", "0.29"), (500, "JPY", "500")]
)
async def test_an_amount_arrives_to_the_last_digit(club: Club, amount: int, currency: str, text: str) -> None:
    await club.run("sync_day_pass", **PAYMENT | {"amount": amount, "currency": currency})
    assert club.one("deals")["amount"] == text


async def test_a_day_pass_is_a_deal_too(club: Club) -> None:
    await club.run("sync_day_pass", **PAYMENT)
    assert club.one("deals")["dealname"] == "Day pass (ada@example.com)"


async def test_a_company_is_known_by_our_id(club: Club) -> None:
    first = await club.run("sync_company", externalId="c-1", name="Acme", email="ada@example.com")
    again = await club.run("sync_company", externalId="c-1", name="Acme Inc", domain="ACME.example")
    assert first["companyId"] == again["companyId"]
    company = club.one("companies")
    assert (company["name"], company["domain"], company["billing_company_id"]) == ("Acme Inc", "acme.example", "c-1")
    pair = ["contacts", first["contactId"], "companies", first["companyId"], [279]]
    assert pair in club.standin.state()["associations"]


async def test_a_company_that_hubspot_made_itself_is_taken_over(club: Club) -> None:
    (there,) = club.standin.objects("companies", [{"domain": "acme.example"}])
    done = await club.run("sync_company", externalId="c-1", name="Acme", domain="acme.example")
    assert done["companyId"] == there
    assert club.one("companies")["billing_company_id"] == "c-1"


async def test_a_company_that_is_another_s_is_left_alone(club: Club) -> None:
    await club.run("sync_company", externalId="c-1", name="Acme North", domain="acme.example")
    await club.run("sync_company", externalId="c-2", name="Acme South", domain="acme.example")
    assert sorted(each["name"] for each in club.standin.things("companies")) == ["Acme North", "Acme South"]


async def test_a_search_that_sees_nothing_yet_makes_no_second_company(club: Club) -> None:
    club.standin.search_lag(60.0)
    for name in ("Acme", "Acme Inc"):
        await club.run("sync_company", externalId="c-1", name=name, domain="acme.example")
    assert club.one("companies")["name"] == "Acme Inc"


async def test_other_deals_and_whole_members_where_they_are_switched_on(club: Club) -> None:
    await club.run("create_deal", externalId="d-1", name="Wedding", amount=100_000, email="ada@example.com")
    deal = club.one("deals")
    assert (deal["dealname"], deal["dealstage"], deal["amount"]) == ("Wedding", "appointmentscheduled", "1000.00")
    await club.run("sync_member", email="ada@example.com", firstName="Ada", status="Past due", memberSince="2024-02-29")
    contact = club.one("contacts")
    assert (contact["firstname"], contact["membership_status"]) == ("Ada", "past_due")
    assert contact["member_since"] == "2024-02-29"


async def test_nothing_is_asked_that_hubspot_would_not_take(club: Club) -> None:
    """The stand-in complains of every request that a proper client never sends."""
    await club.run("create_contact", email="ada@example.com", firstName="Ada")
    await club.run("update_contact", email="ada@example.com", status="active", properties={"city": ""})
    await club.run("sync_tier", email="ada@example.com", newTier="core")
    await club.run("sync_company", externalId="c 1".replace(" ", "-"), name="Acme", domain="a.example", email="b@x.com")
    await club.run("sync_payment", **PAYMENT)
    assert club.standin.judgement()["complaints"] == []


async def test_properties_are_made_once_and_options_are_added(
    tmp_path: Path, clock: FakeClock, standin: StandIn
) -> None:
    async with opened(f"sqlite:///{tmp_path}/jobs.db", clock, standin, ensured=False) as club:
        assert all(each["created"] for each in (await club.run("ensure")).values())
        found = standin.state()["properties"]
        assert found["deals"]["billing_reference"]["hasUniqueValue"] is True
        assert found["companies"]["billing_company_id"]["hasUniqueValue"] is True
        values = [option["value"] for option in found["contacts"]["billing_provider"]["options"]]
        assert values == ["stripe", "mindbody", "manual", "complimentary"]
        assert await club.run("ensure") == {
            kind: {"created": [], "extended": []} for kind in ("contacts", "companies", "deals")
        }
        assert standin.state()["properties"] == found


@pytest.mark.parametrize(
    ("operation", "payload"),
    [
        ("create_contact", {"email": "ada"}),
        ("create_contact", {}),
        ("create_contact", {"email": "ada@example.com", "name": "Ada"}),
        ("update_contact", {"email": "ada@example.com", "lifecycleStage": "asleep"}),
        ("update_contact", {"email": "ada@example.com", "properties": {"No Such": "x"}}),
        ("update_contact", {"email": "ada@example.com", "properties": {"city": 5}}),
        ("update_contact", {"email": "ada@example.com", "properties": {"email": "eve@example.com"}}),
        ("sync_tier", {"email": "ada@example.com"}),
        ("sync_tier", {"email": f"{'a' * 168}@example.com", "newTier": "Founding Member"}),  # its key has over 200
        ("sync_payment", PAYMENT | {"amount": 12.5}),
        ("sync_payment", PAYMENT | {"amount": "1250"}),
        ("sync_payment", PAYMENT | {"currency": "dollars"}),
        ("sync_payment", PAYMENT | {"paymentIntentId": "../deals"}),
        ("sync_payment", PAYMENT | {"paidAt": "2026-03-01T12:00:00"}),
        ("sync_company", {"externalId": "c-1", "name": "Acme", "domain": "not a domain"}),
    ],
)
async def test_a_bad_payload_is_refused_at_the_door(
    closed: Integration, operation: str, payload: dict[str, Any]
) -> None:
    with pytest.raises(BadPayload):
        await closed.enqueue(operation, payload)


@pytest.mark.parametrize(
    ("operation", "payload", "key"),
    [
        ("create_contact", {"email": " Ada@Example.com"}, "member_creation_ada@example.com"),
        ("sync_payment", PAYMENT, "payment_sync_pi_1"),
        ("sync_day_pass", PAYMENT, "day_pass_sync_pi_1"),
        (
            "sync_tier",
            {"email": "ada@example.com", "oldTier": "Founding Member", "newTier": "VIP"},
            "tier_sync_ada@example.com_Founding_Member_to_VIP",
        ),
        ("sync_tier", {"email": "ada@example.com", "newTier": "VIP"}, "tier_sync_ada@example.com_none_to_VIP"),
    ],
)
async def test_keys_are_those_of_the_document(club: Club, operation: str, payload: dict[str, Any], key: str) -> None:
    first = await club.send(operation, **payload)
    assert await club.send(operation, **payload) == first
    record = await club.record(first)
    assert record.unique_key is not None
    assert record.unique_key.endswith(key)


def test_an_operation_that_does_not_exist_cannot_be_switched_off(tmp_path: Path) -> None:
    settings = load(database_url=f"sqlite:///{tmp_path}/jobs.db", hubspot_operations_off="create_deal,sync_meber")
    with pytest.raises(SettingsError, match="sync_meber"):
        declare(Rowlock(settings=settings))


def test_an_unknown_word_names_those_that_are_known() -> None:
    assert (status_value("PAST-DUE"), provider_value(" Stripe ")) == ("past_due", "stripe")
    with pytest.raises(Permanent, match="known are Stripe, Mindbody"):
        provider_value("paypal")


async def test_properties_are_ensured_and_cycles_run_after_start_up(club: Club) -> None:
    begun = club.clock.now()
    (start,) = club.app.engine.starters
    await start()
    cycle = club.app.schedules["hubspot"]
    assert (cycle.first_after(begun) - begun, cycle.every_seconds) == (timedelta(seconds=30), 120)
    (waiting,) = (await club.app.jobs(type="hubspot.ensure", status="queued")).jobs
    assert (waiting.available_at - begun).total_seconds() == 15
    club.clock.advance(seconds=15)
    assert (await club.record(waiting.id, work=True)).status.value == "succeeded"


async def test_delays_and_intervals_of_start_up_are_settings(tmp_path: Path) -> None:
    given = {"hubspot_ensure_delay_seconds": 1, "hubspot_cycle_delay_seconds": 2, "hubspot_cycle_seconds": 3}
    app = Rowlock(settings=load(database_url=f"sqlite:///{tmp_path}/jobs.db", hubspot_token="t", **given))
    hub = declare(app)
    assert hub.starters == [("hubspot.ensure", 1)]
    assert app.schedules["hubspot"].spec == "every 3 s, first 2 s after start-up"


def test_hubspot_is_off_without_a_token_and_says_which_setting_is_missing() -> None:
    hub = backoffice.app.integrations["hubspot"]
    assert hub.disabled == "set ROWLOCK_HUBSPOT_TOKEN"
    assert {name for name, each in hub.operations.items() if not each.enabled} == {"create_deal", "sync_member"}


async def test_what_is_switched_off_is_logged_and_skipped(
    tmp_path: Path, clock: FakeClock, standin: StandIn, log: Log
) -> None:
    async with opened(f"sqlite:///{tmp_path}/jobs.db", clock, standin, operations_off=["sync_member"]) as club:
        before = club.calls()
        done = await club.run("sync_member", email="ada@example.com", firstName="Ada")
        assert done["skipped"] is True
        assert club.calls() == before
        assert [each["type"] for each in log.of("sync.skipped")] == ["hubspot.sync_member"]
