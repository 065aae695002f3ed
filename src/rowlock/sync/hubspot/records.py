"""Records of HubSpot's CRM, parsed from its answers, and the upserts sent to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rowlock.errors import CallUncertain

CONTACTS = "contacts"
COMPANIES = "companies"
DEALS = "deals"

EMAIL = "email"  # the unique property of contacts


@dataclass(frozen=True, slots=True)
class Record:
    """A contact, company or deal: its HubSpot id, and the properties in the answer."""

    id: str
    properties: Mapping[str, str] = field(default_factory=dict)
    created: bool = False  # True if this call created it


@dataclass(frozen=True, slots=True)
class Upsert:
    """The properties to write to the record whose unique property has the value `key`."""

    key: str
    properties: Mapping[str, str]


def record_of(body: Any, what: str) -> Record:
    """Return the record in an answer. Raises CallUncertain if there is none, since the call may have succeeded."""
    if isinstance(body, Mapping) and not isinstance(body.get("id"), str) and isinstance(body.get("entity"), Mapping):
        body = body["entity"]  # the API documentation nests records like this; the API itself does not
    if not isinstance(body, Mapping) or not isinstance(body.get("id"), str) or not body["id"]:
        raise CallUncertain(f"HubSpot's answer to {what} holds no record")
    properties = body.get("properties")
    if not isinstance(properties, Mapping):
        properties = {}
    kept = {str(name): value for name, value in properties.items() if isinstance(value, str)}
    return Record(body["id"], kept, created=body.get("new") is True)


def list_of(body: Any, name: str, what: str) -> Sequence[Any]:
    """Return a list in an answer. Raises CallUncertain if it is missing."""
    found = body.get(name) if isinstance(body, Mapping) else None
    if not isinstance(found, list):
        raise CallUncertain(f"HubSpot's answer to {what} has no {name}")
    return found
