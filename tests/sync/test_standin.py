"""The stand-in itself: it is as strict as HubSpot, counts every call, and fails on demand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.standin import StandIn
from sync.standin.application import overlaps
from sync.standin.windows import Window

CONTACTS = "/crm/v3/objects/contacts"
DEALS = "/crm/v3/objects/deals"
REFERENCE = {
    "name": "reference",
    "label": "Reference",
    "type": "string",
    "fieldType": "text",
    "groupName": "dealinformation",
    "hasUniqueValue": True,
}


@pytest.fixture
def client(standin: StandIn) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {standin.token}"}
    with httpx.Client(base_url=standin.url, headers=headers, timeout=10, trust_env=False) as made:
        yield made


def upsert(*emails: str, **properties: str) -> dict[str, Any]:
    return {"inputs": [{"id": email, "idProperty": "email", "properties": properties} for email in emails]}


def complaints(standin: StandIn) -> list[str]:
    found: list[str] = standin.judgement()["complaints"]
    return found


# -- what it keeps ---------------------------------------------------------------------------------


def test_an_email_address_is_there_once_and_the_conflict_names_it(client: httpx.Client, standin: StandIn) -> None:
    made = client.post(CONTACTS, json={"properties": {"email": "Ann@X.org", "firstname": "Ann"}})
    assert made.status_code == 201
    again = client.post(CONTACTS, json={"properties": {"email": "ann@x.org"}})
    assert again.status_code == 409
    assert again.json()["category"] == "CONFLICT"
    assert again.json()["message"] == f"Contact already exists. Existing ID: {made.json()['id']}"
    found = client.get(f"{CONTACTS}/ANN%40x.org", params={"idProperty": "email", "properties": "firstname,phone"})
    assert found.json()["properties"] == {"firstname": "Ann", "phone": None, "hs_object_id": made.json()["id"]}
    assert complaints(standin) == []


def test_an_upsert_by_email_makes_or_changes_and_one_bad_value_refuses_all(
    client: httpx.Client, standin: StandIn
) -> None:
    first = client.post(f"{CONTACTS}/batch/upsert", json=upsert("a@x.org", "b@x.org", firstname="A"))
    assert (first.status_code, [each["new"] for each in first.json()["results"]]) == (200, [True, True])
    bad = upsert("a@x.org", "c@x.org", firstname="B")
    bad["inputs"][1]["properties"]["lifecyclestage"] = "nowhere"
    refused = client.post(f"{CONTACTS}/batch/upsert", json=bad)
    assert (refused.status_code, refused.json()["category"]) == (400, "VALIDATION_ERROR")
    assert {each["email"]: each["firstname"] for each in standin.things("contacts")} == {"a@x.org": "A", "b@x.org": "A"}


def test_a_batch_update_tells_what_is_not_there_and_knows_no_email_addresses(
    client: httpx.Client, standin: StandIn
) -> None:
    (contact_id,) = standin.objects("contacts", [{"email": "a@x.org"}])
    inputs = [{"id": each, "properties": {"phone": "1"}} for each in (contact_id, "99999")]
    answer = client.post(f"{CONTACTS}/batch/update", json={"inputs": inputs})
    assert answer.status_code == 207
    assert [each["id"] for each in answer.json()["results"]] == [contact_id]
    assert answer.json()["errors"][0]["context"] == {"ids": ["99999"]}
    refused = client.post(f"{CONTACTS}/batch/update", json=upsert("a@x.org", phone="2"))
    assert refused.status_code == 400
    assert "non-unique 0-1 property email" in complaints(standin)[0]


def test_a_unique_property_is_unique_and_finds_its_object(client: httpx.Client, standin: StandIn) -> None:
    standin.properties("deals", REFERENCE)
    made = client.post(DEALS, json={"properties": {"dealname": "One", "reference": "pi_1"}})
    again = client.post(DEALS, json={"properties": {"dealname": "One", "reference": "pi_1"}})
    assert (again.status_code, again.json()["errors"][0]["code"]) == (400, "CONFLICTING_UNIQUE_VALUE")
    assert f"{made.json()['id']} already has that value" in again.json()["message"]
    found = client.get(f"{DEALS}/pi_1", params={"idProperty": "reference"})
    assert found.json()["id"] == made.json()["id"]
    assert client.get(f"{DEALS}/pi_2", params={"idProperty": "reference"}).status_code == 404
    assert complaints(standin) == []
    assert standin.judgement()["duplicates"]["deals"] == []


def test_deals_that_say_the_same_are_duplicates(client: httpx.Client, standin: StandIn) -> None:
    ids = [client.post(DEALS, json={"properties": {"dealname": "One"}}).json()["id"] for _ in range(2)]
    assert standin.judgement()["duplicates"]["deals"] == [ids]


def test_an_association_goes_both_ways_and_once(client: httpx.Client, standin: StandIn) -> None:
    (contact,) = standin.objects("contacts", [{"email": "a@x.org"}])
    (deal,) = standin.objects("deals", [{"dealname": "One"}])
    path = f"/crm/v4/objects/deals/{deal}/associations/default/contacts/{contact}"
    assert [client.put(path).status_code for _ in range(2)] == [200, 200]
    back = client.get(f"/crm/v4/objects/contacts/{contact}/associations/deals").json()["results"]
    assert [(each["toObjectId"], each["associationTypes"][0]["typeId"]) for each in back] == [(int(deal), 4)]
    assert [change[1] for change in standin.changes()] == ["created", "created", "associated"]
    assert client.put(path.replace(contact, "99999")).status_code == 404


def test_a_lifecycle_stage_moves_forward_only(client: httpx.Client, standin: StandIn) -> None:
    def put(stage: str) -> str:
        client.patch(
            f"{CONTACTS}/a@x.org", params={"idProperty": "email"}, json={"properties": {"lifecyclestage": stage}}
        )
        return standin.things("contacts")[0].get("lifecyclestage", "")

    standin.objects("contacts", [{"email": "a@x.org"}])
    assert [put(stage) for stage in ("customer", "lead", "", "lead")] == ["customer", "customer", "", "lead"]


def test_a_search_sees_neither_what_is_new_nor_what_has_changed(client: httpx.Client, standin: StandIn) -> None:
    standin.search_lag(60)
    standin.objects("contacts", [{"email": "a@x.org"}])
    filters = [{"propertyName": "email", "operator": "EQ", "value": "a@x.org"}]
    asked = {"filterGroups": [{"filters": filters}], "properties": ["email"], "limit": 1}
    assert client.post(f"{CONTACTS}/search", json=asked).json()["total"] == 0
    standin.search_lag(0)
    time.sleep(0.1)  # so that it was there before the lag below
    answer = client.post(f"{CONTACTS}/search", json=asked)
    assert answer.json()["total"] == 1
    assert "x-hubspot-ratelimit-remaining" not in answer.headers
    client.patch(f"{CONTACTS}/a@x.org", params={"idProperty": "email"}, json={"properties": {"phone": "1"}})
    filters.append({"propertyName": "phone", "operator": "NOT_HAS_PROPERTY"})
    assert client.post(f"{CONTACTS}/search", json=asked).json()["total"] == 0
    standin.search_lag(0.05)  # what was is found: the change is younger than that, or the answer says so
    changed = standin.changes()[-1][0]
    late = client.post(f"{CONTACTS}/search", json=asked).json()["total"]
    assert late == 1 or standin.journal()[-1]["worked"] > changed + 0.05


def test_properties_are_made_once_and_keep_their_options(client: httpx.Client, standin: StandIn) -> None:
    told = {
        "name": "tier",
        "label": "Tier",
        "type": "enumeration",
        "fieldType": "select",
        "groupName": "contactinformation",
        "options": [{"label": "Gold", "value": "gold"}],
    }
    assert client.post("/crm/v3/properties/contacts", json=told).status_code == 201
    assert client.post("/crm/v3/properties/contacts", json=told).status_code == 409
    assert client.post(CONTACTS, json={"properties": {"email": "a@x.org", "tier": "tin"}}).status_code == 400
    more = {"options": [*told["options"], {"label": "Tin", "value": "tin"}]}
    assert client.patch("/crm/v3/properties/contacts/tier", json=more).status_code == 200
    assert client.post(CONTACTS, json={"properties": {"email": "a@x.org", "tier": "tin"}}).status_code == 201
    assert complaints(standin) == []


# -- what it refuses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CONTACTS, {"properties": {"email": "a@x.org", "shoe_size": "43"}}),
        (CONTACTS, {"properties": {"email": "a@x.org", "phone": 5}}),
        (CONTACTS, {"properties": {"email": "a@x.org", "hs_object_id": "5"}}),
        (CONTACTS, {"properties": {"phone": "5"}}),
        (CONTACTS, {"props": {"email": "a@x.org"}}),
        (CONTACTS, {"properties": {"email": "a@x.org"}, "id": "1"}),
        (CONTACTS, [1]),
        (f"{CONTACTS}/batch/upsert", upsert(*[f"a{number}@x.org" for number in range(101)])),
        (f"{CONTACTS}/batch/upsert", upsert("a@x.org", "A@x.org")),
        (f"{CONTACTS}/batch/upsert", {"inputs": []}),
        (f"{CONTACTS}/batch/upsert", {"inputs": [{"id": "1", "properties": {}}]}),
        (f"{CONTACTS}/batch/upsert?dryRun=true", upsert("a@x.org")),
        ("/crm/v3/objects/companies/batch/upsert", {"inputs": [{"id": "x", "idProperty": "domain", "properties": {}}]}),
        ("/crm/v3/objects/invoices", {"properties": {}}),
        ("/crm/v2/objects/contacts", {"properties": {}}),
    ],
)
def test_what_no_proper_client_sends_is_refused_and_complained_of(
    client: httpx.Client, standin: StandIn, path: str, body: Any
) -> None:
    assert client.post(path, json=body).status_code in (400, 404)
    assert len(complaints(standin)) == 1
    assert standin.things("contacts") == []


def test_a_call_needs_its_token_and_its_scopes(client: httpx.Client, standin: StandIn) -> None:
    refused = client.get(f"{CONTACTS}/1", headers={"authorization": "Bearer other"})
    assert (refused.status_code, refused.json()["category"]) == (401, "INVALID_AUTHENTICATION")
    standin.access(scopes=["crm.objects.contacts.read"])
    assert client.get(f"{CONTACTS}/1").status_code == 404
    refused = client.post(CONTACTS, json={"properties": {"email": "a@x.org"}})
    assert (refused.status_code, refused.json()["category"]) == (403, "MISSING_SCOPES")
    assert refused.json()["errors"][0]["context"] == {"requiredGranularScopes": ["crm.objects.contacts.write"]}


# -- what it counts --------------------------------------------------------------------------------


def test_a_call_above_the_limit_is_refused_and_counted(client: httpx.Client, standin: StandIn) -> None:
    standin.limits(3, 60.0)
    answers = [client.get(f"{CONTACTS}/1") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [404, 404, 404, 429]
    assert [answer.headers["x-hubspot-ratelimit-remaining"] for answer in answers] == ["2", "1", "0", "0"]
    assert answers[3].json()["policyName"] == "TEN_SECONDLY_ROLLING"
    window = standin.judgement()["windows"][0]
    assert (window["calls"], window["most"], window["overruns"]) == (4, 4, 1)


def test_searches_have_a_limit_of_their_own(client: httpx.Client, standin: StandIn) -> None:
    standin.limits(1, 60.0, searches=2)
    assert [client.post(f"{CONTACTS}/search", json={}).status_code for _ in range(2)] == [200, 200]
    most = {window["name"]: window["most"] for window in standin.judgement()["windows"]}
    assert most == {"TEN_SECONDLY_ROLLING": 0, "SECONDLY": 2, "DAILY": 2}


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(1, 5), st.integers(1, 20))
def test_the_most_of_any_window_is_found(arrivals: list[int], count: int, seconds: int) -> None:
    window = Window("any", count, float(seconds))
    for at in arrivals:
        window.add(float(at))
    windows = [sum(begin < at <= begin + seconds for at in arrivals) for begin in range(-seconds - 1, 61)]
    assert window.judged()["most"] == max(windows, default=0)
    assert (window.overruns > 0) == (max(windows, default=0) > count) or arrivals != sorted(arrivals)


def test_writes_of_one_object_at_the_same_time_are_seen() -> None:
    def call(arrived: float, worked: float, *touched: str) -> dict[str, Any]:
        return {"method": "PATCH", "path": "/", "arrived": arrived, "worked": worked, "touched": list(touched)}

    assert overlaps([call(0, 1, "contacts/1"), call(1, 2, "contacts/1"), call(1.5, 3, "contacts/2")]) == []
    assert len(overlaps([call(0, 2, "contacts/1"), call(1, 3, "contacts/1", "contacts/2")])) == 1


# -- how it fails ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status", "done"),
    [
        ("429", 429, False),
        ("429_after", 429, False),
        ("429_date", 429, False),
        ("named_limit", 400, False),
        ("500", 500, False),
        ("502_html", 502, False),
        ("401", 401, False),
        ("403", 403, False),
        ("redirect", 302, False),
        ("cut_before", None, False),
        ("hang_before", None, False),
        ("hang", None, True),
        ("cut", None, True),
        ("cut_inside", None, True),
        ("truncated", None, True),
        ("wrong_json", 201, True),
        ("500_after", 500, True),
        ("huge", 201, True),
    ],
)
def test_each_trouble_is_what_it_says(
    client: httpx.Client, standin: StandIn, kind: str, status: int | None, done: bool
) -> None:
    script = {"kind": kind, "path": "contacts$", "method": "POST"}
    standin.trouble(scripts=[script], hang_seconds=0.2, retry_after_seconds=2)
    try:
        answer = client.post(CONTACTS, json={"properties": {"email": "a@x.org"}})
    except httpx.TransportError:
        assert status is None
    else:
        assert answer.status_code == status
        assert ("retry-after" in answer.headers) == (kind in ("429_after", "429_date"))
        if kind == "wrong_json":
            with pytest.raises(ValueError):
                answer.json()
    assert bool(standin.things("contacts")) == done
    assert standin.judgement()["trouble"] == {kind: 1}
    after = client.post(CONTACTS, json={"properties": {"email": "a@x.org"}})
    assert after.status_code == (409 if done else 201)


def test_a_storm_is_for_a_while_and_a_share_is_about_that_share(client: httpx.Client, standin: StandIn) -> None:
    standin.limits(10_000, 1.0)
    standin.trouble(storms=[{"kind": "429", "seconds": 60.0, "path": "contacts"}])
    assert client.get(f"{CONTACTS}/1").status_code == 429
    assert client.get(f"{DEALS}/1").status_code == 404
    standin.trouble(share=0.2, kinds={"500": 1.0, "502_html": 1.0}, seed=7)
    statuses = [client.get(f"{CONTACTS}/1").status_code for _ in range(400)]
    assert set(statuses) == {404, 500, 502}
    assert 40 <= len(statuses) - statuses.count(404) <= 120
