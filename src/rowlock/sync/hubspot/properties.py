"""Custom HubSpot properties: an application declares them, `ensure_properties` creates missing ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rowlock.errors import Permanent
from rowlock.sync.call import Calls
from rowlock.sync.hubspot import paths
from rowlock.sync.hubspot.records import list_of

_FIELDS = {"string": "text", "enumeration": "select", "date": "date", "datetime": "date", "number": "number"}
_GROUPS = {"contacts": "contactinformation", "companies": "companyinformation", "deals": "dealinformation"}


@dataclass(frozen=True, slots=True)
class Property:
    """A property of contacts, companies or deals. `options` maps values to the labels that people see."""

    name: str
    label: str
    type: Literal["string", "enumeration", "date", "datetime", "number"] = "string"
    unique: bool = False  # HubSpot enforces distinct values, so it can be a key
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ensured:
    """Names of the properties that were created, and of those that got more options."""

    created: Sequence[str] = ()
    extended: Sequence[str] = ()


async def ensure_properties(calls: Calls, kind: str, wanted: Sequence[Property]) -> Ensured:
    """Create missing properties and add missing options. Idempotent.

    Never renames, retypes or removes anything. Raises Permanent if an existing property should be unique and is not.
    """
    answer = await calls.get(paths.properties(kind), params={"archived": "false"})
    found = {
        item["name"]: item
        for item in list_of(answer.json, "results", f"the question for properties of {kind}")
        if isinstance(item, Mapping) and isinstance(item.get("name"), str)
    }
    created, extended = [], []
    for one in wanted:
        there = found.get(one.name)
        if there is None:
            if await _create(calls, kind, one):
                created.append(one.name)
            continue
        if one.unique and there.get("hasUniqueValue") is not True:
            raise Permanent(
                f"HubSpot: the property {one.name} of {kind} exists and is not unique, so it cannot be used as a key; "
                "rename or delete it there, then retry: it is created as it should be"
            )
        options = _merged(one, there.get("options"))
        if options is not None and there.get("type") == "enumeration":
            await calls.patch(paths.properties(kind, one.name), json={"options": options})
            extended.append(one.name)
    return Ensured(created, extended)


async def _create(calls: Calls, kind: str, one: Property) -> bool:
    body: dict[str, Any] = {
        "name": one.name,
        "label": one.label,
        "type": one.type,
        "fieldType": _FIELDS[one.type],
        "groupName": _GROUPS[kind],
    }
    if one.unique:
        body["hasUniqueValue"] = True
    if one.options:
        body["options"] = [_option(*item, order) for order, item in enumerate(one.options.items())]
    # 409: another process or an earlier attempt created it.
    answer = await calls.post(paths.properties(kind), json=body, accept=[409])
    return answer.status != 409


def _merged(one: Property, there: Any) -> list[dict[str, Any]] | None:
    """Return the existing options followed by the missing ones; None if none is missing."""
    options = [dict(item) for item in there or () if isinstance(item, Mapping)]
    values = {item.get("value") for item in options}
    missing = [item for item in one.options.items() if item[0] not in values]
    if not missing:
        return None
    return options + [_option(*item, len(options) + order) for order, item in enumerate(missing)]


def _option(value: str, label: str, order: int) -> dict[str, Any]:
    return {"value": value, "label": label, "displayOrder": order, "hidden": False}
