"""Properties that an application keeps at HubSpot: declared here, created there when they are missing."""

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
    """A property of contacts, companies or deals; `options` by value, with the label that people see."""

    name: str
    label: str
    type: Literal["string", "enumeration", "date", "datetime", "number"] = "string"
    unique: bool = False  # no two records may have the same value: it can be used as a key
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ensured:
    """What there was to do: names of properties."""

    created: Sequence[str] = ()
    extended: Sequence[str] = ()


async def ensure_properties(calls: Calls, kind: str, wanted: Sequence[Property]) -> Ensured:
    """Create the properties that are missing, and add options that are missing; twice is the same as once.

    Nothing is renamed, retyped or taken away. Raises Permanent when a property exists that should be unique and is not.
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
    # 409: another process was faster, or an earlier attempt.
    answer = await calls.post(paths.properties(kind), json=body, accept=[409])
    return answer.status != 409


def _merged(one: Property, there: Any) -> list[dict[str, Any]] | None:
    """The options that are there and those that are missing, in this order; None when none is missing."""
    options = [dict(item) for item in there or () if isinstance(item, Mapping)]
    values = {item.get("value") for item in options}
    missing = [item for item in one.options.items() if item[0] not in values]
    if not missing:
        return None
    return options + [_option(*item, len(options) + order) for order, item in enumerate(missing)]


def _option(value: str, label: str, order: int) -> dict[str, Any]:
    return {"value": value, "label": label, "displayOrder": order, "hidden": False}
