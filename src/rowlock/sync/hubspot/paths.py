"""Paths of HubSpot's API. The API version appears only here."""

from __future__ import annotations

from urllib.parse import quote

_OBJECTS = "/crm/v3/objects"
_PROPERTIES = "/crm/v3/properties"
_ASSOCIATIONS = "/crm/v4/objects"


def objects(kind: str, *parts: str) -> str:
    """Return the path of a kind's records, of one record, or of an action such as `search`."""
    return "/".join([_OBJECTS, kind, *(quote(part, safe="") for part in parts)])


def properties(kind: str, *parts: str) -> str:
    """Return the path of a kind's properties, or of one property."""
    return "/".join([_PROPERTIES, kind, *(quote(part, safe="") for part in parts)])


def association(kind: str, record_id: str, to_kind: str, to_id: str) -> str:
    """Return the path of the default association between two records."""
    return f"{_ASSOCIATIONS}/{kind}/{quote(record_id, safe='')}/associations/default/{to_kind}/{quote(to_id, safe='')}"
