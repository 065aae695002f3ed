"""The connector's own promises, against the stand-in: properties, contacts that are there, what is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hubspot_rig import Club

from rowlock import Call, Permanent
from rowlock.errors import CallFailed
from rowlock.sync.hubspot import COMPANIES, CONTACTS, DEALS, HubSpot, Property, Record, Upsert

Told = Callable[[Callable[[HubSpot], Awaitable[Any]]], Awaitable[Any]]


@pytest.fixture
def told(club: Club) -> Told:
    """What a function of the CRM gives, or raises, when an operation calls it."""
    functions: list[Callable[[HubSpot], Awaitable[Any]]] = []
    ends: list[Any] = []

    async def probe(call: Call) -> None:
        try:
            ends.append(await functions[-1](HubSpot(call)))
        except Exception as error:
            ends.append(error)

    club.hub.operation("probe")(probe)

    async def ask(function: Callable[[HubSpot], Awaitable[Any]]) -> Any:
        functions.append(function)
        await club.run("probe")
        if isinstance(ends[-1], Exception):
            raise ends[-1]
        return ends[-1]

    return ask


async def test_a_record_that_is_not_there_is_none(told: Told) -> None:
    assert await told(lambda crm: crm.contact("nobody@example.com")) is None
    assert await told(lambda crm: crm.find(DEALS, "billing_reference", "pi_9")) is None
    assert await told(lambda crm: crm.get(COMPANIES, "999")) is None


async def test_a_contact_is_created_once(told: Told, club: Club) -> None:
    first = await told(lambda crm: crm.create_contact("ada@example.com", {"firstname": "Ada"}))
    again = await told(lambda crm: crm.create_contact("ada@example.com", {"firstname": "Augusta"}))
    assert (first.id, first.created, again.id, again.created) == (again.id, True, first.id, False)
    assert again.properties["firstname"] == "Ada"
    assert len(club.standin.things("contacts")) == 1


async def test_a_value_that_does_not_fit_into_a_path_as_it_is(told: Told) -> None:
    made = await told(lambda crm: crm.upsert(DEALS, "billing_reference", "a/b?c#d %", {"dealname": "Odd"}))
    found = await told(lambda crm: crm.find(DEALS, "billing_reference", "a/b?c#d %"))
    assert found.id == made.id


async def test_more_than_a_hundred_go_in_several_calls(told: Told, club: Club) -> None:
    wanted = [Upsert(f"m{number}@example.com", {"city": "Rome"}) for number in range(205)]
    entries = await told(lambda crm: crm.upsert_contacts(wanted))
    assert all(isinstance(each, Record) for each in entries)
    assert [each.properties["email"] for each in entries] == [one.key for one in wanted]
    assert len([path for _, path in club.calls() if path.endswith("contacts/batch/upsert")]) == 3


async def test_a_key_that_is_not_unique_is_asked_for_once(told: Told, club: Club) -> None:
    before = len(club.calls())
    entries = await told(lambda crm: _by_name(crm, 10))
    assert all(isinstance(each, CallFailed) for each in entries)
    assert len(club.calls()) == before + 1


async def _by_name(crm: HubSpot, count: int) -> Any:
    from rowlock.sync.hubspot.batch import upsert

    return await upsert(crm._calls, COMPANIES, "name", [Upsert(f"c{n}", {"city": "Rome"}) for n in range(count)])


async def test_a_property_that_all_of_them_lack_is_asked_for_once(told: Told, club: Club) -> None:
    before = len(club.calls())
    wanted = [Upsert(f"m{number}@example.com", {"not_there_yet": "1"}) for number in range(50)]
    entries = await told(lambda crm: crm.upsert_contacts(wanted))
    assert all(isinstance(each, CallFailed) for each in entries)
    assert len(club.calls()) == before + 1


@pytest.mark.parametrize("differ", [False, True], ids=["all alike", "and what else they write differs"])
async def test_a_value_that_is_everybody_s_fault_is_not_looked_for_in_each(
    told: Told, club: Club, differ: bool
) -> None:
    before = len(club.calls())
    wanted = [
        Upsert(f"m{n}@example.com", {"lifecyclestage": "asleep", **({"city": f"Rome {n}"} if differ else {})})
        for n in range(100)
    ]
    entries = await told(lambda crm: crm.upsert_contacts(wanted))
    assert all(isinstance(each, CallFailed) for each in entries)
    assert len(club.calls()) == before + 3


async def test_the_same_fault_in_both_halves_does_not_blame_those_who_are_without_it(told: Told, club: Club) -> None:
    wanted = [
        Upsert(f"m{n}@example.com", {"lifecyclestage": "lead" if n % 10 else "asleep", "city": "Rome"})
        for n in range(100)
    ]
    entries = await told(lambda crm: crm.upsert_contacts(wanted))
    assert [isinstance(each, Record) for each in entries] == [bool(n % 10) for n in range(100)]


async def test_relations_are_made_once(told: Told, club: Club) -> None:
    (contact,) = club.standin.objects("contacts", [{"email": "ada@example.com"}])
    (company,) = club.standin.objects("companies", [{"name": "Acme"}])
    for _ in range(2):
        await told(lambda crm: crm.associate(CONTACTS, contact, COMPANIES, company))
    assert len(club.standin.state()["associations"]) == 2  # both ways
    with pytest.raises(CallFailed):
        await told(lambda crm: crm.associate(CONTACTS, contact, COMPANIES, "999"))


async def test_properties_are_created_when_they_are_missing(told: Told, club: Club) -> None:
    wanted = [Property("shoe_size", "Shoe size", "number"), Property("badge", "Badge", unique=True)]
    done = await told(lambda crm: crm.ensure_properties(COMPANIES, wanted))
    assert list(done.created) == ["shoe_size", "badge"]
    found = club.standin.state()["properties"]["companies"]
    assert (found["shoe_size"]["type"], found["badge"]["hasUniqueValue"]) == ("number", True)
    assert list((await told(lambda crm: crm.ensure_properties(COMPANIES, wanted))).created) == []


async def test_options_that_people_have_added_stay(told: Told, club: Club) -> None:
    theirs = [{"label": "Gold", "value": "gold"}, {"label": "Blue!", "value": "blue"}]
    about = {"label": "Colour", "groupName": "contactinformation", "type": "enumeration", "fieldType": "select"}
    club.standin.properties("contacts", {"name": "colour", "options": theirs, **about})
    wanted = [Property("colour", "Colour", "enumeration", options={"red": "Red", "blue": "Blue"})]
    done = await told(lambda crm: crm.ensure_properties(CONTACTS, wanted))
    assert list(done.extended) == ["colour"]
    options = club.standin.state()["properties"]["contacts"]["colour"]["options"]
    assert [(each["value"], each["label"]) for each in options] == [("gold", "Gold"), ("blue", "Blue!"), ("red", "Red")]
    assert list((await told(lambda crm: crm.ensure_properties(CONTACTS, wanted))).extended) == []


async def test_a_property_of_the_same_name_that_is_not_unique_is_for_people_to_mend(told: Told, club: Club) -> None:
    about = {"label": "Badge", "groupName": "dealinformation", "type": "string", "fieldType": "text"}
    club.standin.properties("deals", {"name": "badge", **about})
    with pytest.raises(Permanent, match="badge of deals exists and is not unique"):
        await told(lambda crm: crm.ensure_properties(DEALS, [Property("badge", "Badge", unique=True)]))


async def test_a_property_that_another_made_meanwhile_is_fine(told: Told, club: Club) -> None:
    club.standin.script("cut", method="POST", path="properties/deals")
    wanted = [Property("badge", "Badge")]
    with pytest.raises(Exception, match="may have been done"):
        await told(lambda crm: crm.ensure_properties(DEALS, wanted))
    assert list((await told(lambda crm: crm.ensure_properties(DEALS, wanted))).created) == []
    assert "badge" in club.standin.state()["properties"]["deals"]
