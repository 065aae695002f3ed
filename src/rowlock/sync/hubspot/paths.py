"""Where things are in HubSpot's API: its version is named here and nowhere else."""

from __future__ import annotations

from urllib.parse import quote

_OBJECTS = "/crm/v3/objects"
_PROPERTIES = "/crm/v3/properties"
_ASSOCIATIONS = "/crm/v4/objects"


def objects(kind: str, *parts: str) -> str:
    """Records of a kind; one of them, or what can be done with them."""
    return "/".join([_OBJECTS, kind, *(quote(part, safe="") for part in parts)])


def properties(kind: str, *parts: str) -> str:
    """The properties of a kind of record, or one of them."""
    return "/".join([_PROPERTIES, kind, *(quote(part, safe="") for part in parts)])


def association(kind: str, record_id: str, to_kind: str, to_id: str) -> str:
    """The usual relation between two records."""
    return f"{_ASSOCIATIONS}/{kind}/{quote(record_id, safe='')}/associations/default/{to_kind}/{quote(to_id, safe='')}"
