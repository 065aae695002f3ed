"""Members as contacts: identified by e-mail address, created once, never overwritten by an older job."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from backoffice.hubspot.vocabulary import provider_value, status_value, tier_value
from rowlock import Call, Calls, Permanent, Update
from rowlock.sync.hubspot import CONTACTS, Email, HubSpot, Record, Upsert


def _without_address(properties: dict[str, str]) -> dict[str, str]:
    if "email" in properties:
        raise ValueError("a contact is known by its address: it cannot be changed here")
    return properties


Name = Annotated[str, Field(min_length=1, max_length=200)]
Tier = Annotated[str, Field(min_length=1, max_length=30)]
Word = Annotated[str, Field(min_length=1, max_length=30)]
PropertyName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,99}$")]
PropertyValue = Annotated[str, Field(max_length=5_000)]
Properties = Annotated[dict[PropertyName, PropertyValue], Field(max_length=50), AfterValidator(_without_address)]
# HubSpot moves a contact forward through these stages, never back.
LifecycleStage = Literal[
    "subscriber",
    "lead",
    "marketingqualifiedlead",
    "salesqualifiedlead",
    "opportunity",
    "customer",
    "evangelist",
    "other",
]


def member_properties(
    firstName: str | None = None,
    lastName: str | None = None,
    phone: str | None = None,
    tier: str | None = None,
    status: str | None = None,
    provider: str | None = None,
    memberSince: date | None = None,
) -> dict[str, str]:
    """Return the known data of a member as contact properties; unknown fields are left out."""
    known = {
        "firstname": firstName,
        "lastname": lastName,
        "phone": phone,
        "membership_tier": tier and tier_value(tier),
        "membership_status": status and status_value(status),
        "billing_provider": provider and provider_value(provider),
        "member_since": memberSince and memberSince.isoformat(),
    }
    return {name: value for name, value in known.items() if value}


async def create_contact(
    call: Call,
    email: Email,
    firstName: Name | None = None,
    lastName: Name | None = None,
    phone: Word | None = None,
    tier: Tier | None = None,
    status: Word | None = None,
    provider: Word | None = None,
    memberSince: date | None = None,
) -> dict[str, Any]:
    """Find or create the member's contact. On an existing one, fill in only properties that are empty."""
    given = member_properties(firstName, lastName, phone, tier, status, provider, memberSince)
    crm = HubSpot(call)
    # Most members are new: look first only if an earlier attempt may have created the contact.
    contact = await (crm.find_or_create_contact if call.uncertain else crm.create_contact)(email, given)
    if contact.created:
        call.fresh(given)  # record as written by this job, so that no older job overwrites it
        return {"contactId": contact.id, "created": True}
    lacking = call.fresh({name: value for name, value in given.items() if not contact.properties.get(name)})
    if lacking:
        await crm.update(CONTACTS, contact.id, lacking)
    return {"contactId": contact.id, "created": False, "filled": sorted(lacking)}


def status_properties(
    email: Email,
    status: Word | None = None,
    lifecycleStage: LifecycleStage | None = None,
    properties: Properties | None = None,
) -> dict[str, str]:
    """Return the properties that an update of a contact writes. Raises Permanent if there are none."""
    written = dict(properties or {})
    if status is not None:
        written["membership_status"] = status_value(status)
    if lifecycleStage is not None:
        written["lifecyclestage"] = lifecycleStage
    if not written:
        raise Permanent("there is nothing to write: give status, lifecycleStage or properties")
    return written


async def update_contacts(calls: Calls, updates: list[Update]) -> list[dict[str, Any] | Exception]:
    """Write membership status, lifecycle stage and other properties of up to 100 contacts per call."""
    entries = await HubSpot(calls).upsert_contacts([Upsert(one.subject, one.properties) for one in updates])
    return [_told(entry) if isinstance(entry, Record) else entry for entry in entries]


async def sync_tier(call: Call, email: Email, newTier: Tier, oldTier: Tier | None = None) -> dict[str, Any]:
    """Write the member's tier."""
    return await _write(call, email, {"membership_tier": tier_value(newTier)})


async def sync_member(
    call: Call,
    email: Email,
    firstName: Name | None = None,
    lastName: Name | None = None,
    phone: Word | None = None,
    tier: Tier | None = None,
    status: Word | None = None,
    provider: Word | None = None,
    memberSince: date | None = None,
) -> dict[str, Any]:
    """Overwrite the contact's properties with all known data of the member."""
    given = member_properties(firstName, lastName, phone, tier, status, provider, memberSince)
    return await _write(call, email, given)


async def _write(call: Call, email: str, properties: Mapping[str, str]) -> dict[str, Any]:
    fresh = call.fresh(properties)
    if properties and not fresh:
        return {"skipped": True, "reason": "a newer job has written all of this"}
    return _told(await HubSpot(call).upsert(CONTACTS, "email", email, fresh))


def _told(contact: Record) -> dict[str, Any]:
    return {"contactId": contact.id, "created": contact.created}
