"""Records of HubSpot's CRM as its answers show them, and what is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rowlock.errors import CallUncertain

CONTACTS = "contacts"
COMPANIES = "companies"
DEALS = "deals"

EMAIL = "email"  # the property that no two contacts share


@dataclass(frozen=True, slots=True)
class Record:
    """A contact, company or deal: its id there, and those of its properties that the answer shows."""

    id: str
    properties: Mapping[str, str] = field(default_factory=dict)
    created: bool = False  # by the call that this answers


@dataclass(frozen=True, slots=True)
class Upsert:
    """What a record should have, known by the value of a property that no two records share."""

    key: str
    properties: Mapping[str, str]


def record_of(body: Any, what: str) -> Record:
    """The record in an answer; raises CallUncertain when it is not there, since the work may have been done."""
    if isinstance(body, Mapping) and not isinstance(body.get("id"), str) and isinstance(body.get("entity"), Mapping):
        body = body["entity"]  # as the description of the API has it; the API itself answers flat
    if not isinstance(body, Mapping) or not isinstance(body.get("id"), str) or not body["id"]:
        raise CallUncertain(f"HubSpot's answer to {what} holds no record")
    properties = body.get("properties")
    if not isinstance(properties, Mapping):
        properties = {}
    kept = {str(name): value for name, value in properties.items() if isinstance(value, str)}
    return Record(body["id"], kept, created=body.get("new") is True)


def list_of(body: Any, name: str, what: str) -> Sequence[Any]:
    """A list in an answer; raises CallUncertain when it is not there."""
    found = body.get(name) if isinstance(body, Mapping) else None
    if not isinstance(found, list):
        raise CallUncertain(f"HubSpot's answer to {what} has no {name}")
    return found
