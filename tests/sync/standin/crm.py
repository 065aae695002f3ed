"""The data of the account: objects with unique properties, associations, and every change in order."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sync.standin.refusal import Refusal, invalid, malformed
from sync.standin.schema import READ_ONLY, STAGES, TYPE_IDS, Schema

ASSOCIATIONS = {  # the types that HubSpot defines, unlabelled first
    ("contacts", "companies"): (279, 1),
    ("companies", "contacts"): (280, 2),
    ("deals", "contacts"): (3,),
    ("contacts", "deals"): (4,),
    ("deals", "companies"): (341, 5),
    ("companies", "deals"): (342, 6),
    ("notes", "contacts"): (202,),
    ("contacts", "notes"): (201,),
    ("notes", "deals"): (214,),
    ("deals", "notes"): (213,),
    ("notes", "companies"): (190,),
    ("companies", "notes"): (189,),
}
VERSIONS_KEPT = 50
NEEDS = {"contacts": ("email", "firstname", "lastname"), "companies": ("name", "domain"), "deals": ("dealname",)}


@dataclass(slots=True)
class Thing:
    """A contact, company, deal or note."""

    kind: str
    id: str
    properties: dict[str, str]
    versions: list[tuple[float, dict[str, str]]] = field(default_factory=list)  # what it was like, and since when
    updated_at: str = field(default_factory=lambda: now())
    created_at: str = field(default_factory=lambda: now())

    def as_of(self, moment: float) -> dict[str, str] | None:
        """Its properties at that moment; None before it was there."""
        return next((then for since, then in reversed(self.versions) if since <= moment), None)

    def shown(self, names: set[str] | None = None) -> dict[str, Any]:
        all_of_it = {**self.properties, "hs_object_id": self.id, "createdate": self.created_at}
        wanted = all_of_it if names is None else {name: all_of_it.get(name) for name in names | {"hs_object_id"}}
        return {
            "id": self.id,
            "properties": wanted,
            "createdAt": self.created_at,
            "updatedAt": self.updated_at,
            "archived": False,
        }


class Crm:
    def __init__(self, search_lag_seconds: float = 0.0) -> None:
        self.schemas = {kind: Schema(kind) for kind in TYPE_IDS}
        self.things: dict[str, dict[str, Thing]] = {kind: {} for kind in TYPE_IDS}
        self.unique: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)  # kind and property: value to id
        self.associations: dict[tuple[str, str, str], dict[str, set[int]]] = defaultdict(dict)  # to ids, and how
        self.changes: list[list[Any]] = []  # [moment, what, kind, id, properties]
        self.search_lag_seconds = search_lag_seconds
        self._last_id = 100

    def schema(self, kind: str) -> Schema:
        if kind not in self.schemas:
            raise malformed(f"Unable to infer object type from: {kind}")
        return self.schemas[kind]

    # -- finding ----------------------------------------------------------------------------------

    def is_unique(self, kind: str, name: str) -> bool:
        return bool(self.schema(kind).get(name)["hasUniqueValue"]) or (kind, name) == ("contacts", "email")

    def find(self, kind: str, value: str, id_property: str | None = None) -> Thing | None:
        if id_property in (None, "hs_object_id"):
            return self.things[kind].get(value)
        if id_property not in self.schema(kind).properties or not self.is_unique(kind, id_property):
            raise malformed(f"{id_property} is no unique property of {kind}")
        value = value.lower() if id_property == "email" else value
        return self.things[kind].get(self.unique[kind, id_property].get(value, ""))

    def get(self, kind: str, value: str, id_property: str | None = None) -> Thing:
        found = self.find(kind, value, id_property)
        if found is None:
            raise Refusal(404, "OBJECT_NOT_FOUND", "resource not found")
        return found

    def search(self, kind: str, groups: list[dict[str, Any]]) -> list[Thing]:
        """Things that match all filters of any group, as they were a while ago: the index lags behind."""
        moment = time.monotonic() - self.search_lag_seconds
        seen = [(thing, then) for thing in self.things[kind].values() if (then := thing.as_of(moment)) is not None]
        return [
            thing for thing, then in seen if not groups or any(self._matches(kind, then, group) for group in groups)
        ]

    def _matches(self, kind: str, properties: dict[str, str], group: dict[str, Any]) -> bool:
        for each in group["filters"]:
            name, operator = each["propertyName"], each["operator"]
            if name not in self.schema(kind).properties:
                raise malformed(f"There was a problem with the request: no property {name}")
            has = properties.get(name, "")
            wanted = [str(value).lower() for value in each.get("values", [each.get("value", "")])]
            match operator:
                case "EQ" | "IN":
                    good = has.lower() in wanted
                case "NEQ" | "NOT_IN":
                    good = has.lower() not in wanted
                case "HAS_PROPERTY":
                    good = bool(has)
                case "NOT_HAS_PROPERTY":
                    good = not has
                case _:
                    raise malformed(f"the stand-in knows no operator {operator}")
            if not good:
                return False
        return True

    # -- changing ---------------------------------------------------------------------------------

    def check_new(self, kind: str, properties: dict[str, str]) -> None:
        """Refuse what cannot be created; changes nothing."""
        if kind in NEEDS and not any(properties.get(name) for name in NEEDS[kind]):
            raise malformed(f"one of these is needed: {', '.join(NEEDS[kind])}")
        if kind == "notes" and not properties.get("hs_timestamp"):
            raise malformed("Error creating NOTE. Some required properties were not set. (hs_timestamp)")
        self._check_unique(kind, None, properties)

    def create(self, kind: str, properties: dict[str, str]) -> Thing:
        self.check_new(kind, properties)
        self._last_id += 1
        made = Thing(kind, str(self._last_id), {})
        self.things[kind][made.id] = made
        self._put(made, properties)
        self.changes.append([time.monotonic(), "created", kind, made.id, properties])
        return made

    def check_change(self, thing: Thing, properties: dict[str, str]) -> None:
        self._check_unique(thing.kind, thing.id, properties)

    def update(self, thing: Thing, properties: dict[str, str]) -> Thing:
        self.check_change(thing, properties)
        stage, has = properties.get("lifecyclestage"), thing.properties.get("lifecyclestage")
        if stage and has and STAGES.index(stage) < STAGES.index(has):  # only forwards, and without a word
            properties = {name: value for name, value in properties.items() if name != "lifecyclestage"}
        self._put(thing, properties)
        self.changes.append([time.monotonic(), "updated", thing.kind, thing.id, properties])
        return thing

    def _check_unique(self, kind: str, own_id: str | None, properties: dict[str, str]) -> None:
        for name, value in properties.items():
            if not value or not self.is_unique(kind, name):
                continue
            other = self.unique[kind, name].get(value)
            if other in (None, own_id):
                continue
            if name == "email":
                raise Refusal(409, "CONFLICT", f"Contact already exists. Existing ID: {other}")
            message = f"Cannot set {name}={value} on {own_id or 'a new object'}. {other} already has that value."
            raise invalid(message, "CONFLICTING_UNIQUE_VALUE", name)

    def _put(self, thing: Thing, properties: dict[str, str]) -> None:
        for name, value in properties.items():
            if self.is_unique(thing.kind, name):
                self.unique[thing.kind, name].pop(thing.properties.get(name, ""), None)
                if value:
                    self.unique[thing.kind, name][value] = thing.id
            if value:
                thing.properties[name] = value
            else:
                thing.properties.pop(name, None)
        thing.versions = [*thing.versions[-VERSIONS_KEPT:], (time.monotonic(), dict(thing.properties))]
        thing.updated_at = now()

    def types_between(self, kind: str, other: str) -> tuple[int, ...]:
        if (kind, other) not in ASSOCIATIONS:
            raise malformed(f"No association types exist between {kind} and {other}")
        return ASSOCIATIONS[kind, other]

    def associate(self, kind: str, own_id: str, other: str, other_id: str, type_ids: list[int] | None = None) -> int:
        """Both ways; once more changes nothing."""
        known = self.types_between(kind, other)
        back = self.types_between(other, kind)
        if wrong := set(type_ids or ()) - set(known):
            raise malformed(f"no association type {sorted(wrong)} from {kind} to {other}")
        self.get(kind, own_id)
        self.get(other, other_id)
        for type_id in type_ids or (known[0],):
            if type_id not in self.associated(kind, own_id, other).get(other_id, ()):
                self.changes.append([time.monotonic(), "associated", kind, own_id, {other: other_id}])
            self.associations[kind, own_id, other].setdefault(other_id, set()).add(type_id)
            self.associations[other, other_id, kind].setdefault(own_id, set()).add(back[known.index(type_id)])
        return known[0]

    def associated(self, kind: str, own_id: str, other: str) -> dict[str, set[int]]:
        self.types_between(kind, other)
        return self.associations.get((kind, own_id, other), {})

    # -- judging ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            "objects": {
                kind: [{"id": thing.id, "properties": thing.properties} for thing in things.values()]
                for kind, things in self.things.items()
            },
            "associations": [
                [*key, to_id, sorted(types)]
                for key, found in self.associations.items()
                for to_id, types in found.items()
            ],
            "properties": {kind: schema.properties for kind, schema in self.schemas.items()},
        }

    def duplicates(self) -> dict[str, list[list[str]]]:
        """Things of a kind that say the same, by their ids."""
        found: dict[str, list[list[str]]] = {}
        for kind, things in self.things.items():
            alike: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
            for thing in things.values():
                said = {name: value for name, value in thing.properties.items() if name not in READ_ONLY}
                alike[tuple(sorted(said.items()))].append(thing.id)
            found[kind] = [ids for ids in alike.values() if len(ids) > 1]
        return found


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
