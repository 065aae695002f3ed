"""The endpoints that a connector may use: path, scope, fields and query as in HubSpot's public description."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from sync.standin.crm import Crm, Thing, _now
from sync.standin.refusal import Refusal, malformed
from sync.standin.schema import TYPE_IDS
from sync.standin.windows import SEARCH

BATCH_MAX = 100
Answer = tuple[int, Any]


@dataclass(slots=True)
class Asked:
    """One request, as far as it has been understood."""

    path: dict[str, str]
    query: dict[str, str]
    body: Any
    touched: set[str]  # the objects that it writes, for the judge: kind/id

    @property
    def kind(self) -> str:
        return self.path["kind"]

    def inputs(self, *required: str, known: set[str]) -> list[dict[str, Any]]:
        """The inputs of a batch, with these fields."""
        given = self.body.get("inputs")
        if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
            raise malformed("Invalid input JSON: inputs must be a list of objects")
        if not 0 < len(given) <= BATCH_MAX:
            raise malformed(f"The maximum number of inputs supported in a batch request is {BATCH_MAX}: {len(given)}")
        for each in given:
            if missing := [field for field in required if field not in each]:
                raise malformed(f"Invalid input JSON: required fields were not set: {missing}")
            if unknown := sorted(set(each) - set(required) - known):
                raise malformed(f"Invalid input JSON: unknown fields {unknown}")
            if not isinstance(each.get("id", ""), str):
                raise malformed(f"Invalid input JSON: id is no string: {each['id']!r}")
        ids = Counter((each.get("idProperty"), str(each["id"]).lower()) for each in given if "id" in each)
        if twice := [value for (_, value), times in ids.items() if times > 1]:
            raise malformed(f"Duplicate IDs found in batch input: {twice}")
        return given


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: tuple[str, ...]
    handler: Callable[[Crm, Asked], Answer]
    scope: str
    query: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()  # of the body; none: no body
    required: frozenset[str] = frozenset()
    group: str | None = None

    def match(self, method: str, segments: list[str]) -> dict[str, str] | None:
        if method != self.method or len(segments) != len(self.path):
            return None
        found = {}
        for wanted, given in zip(self.path, segments, strict=True):
            if wanted.startswith("{"):
                found[wanted[1:-1]] = unquote(given)
            elif wanted != given:
                return None
        if found.get("kind", "contacts") not in TYPE_IDS or found.get("other", "contacts") not in TYPE_IDS:
            return None
        return found

    def check(self, asked: Asked) -> None:
        if unknown := sorted(set(asked.query) - self.query):
            raise malformed(f"unknown query parameters: {unknown}")
        if not self.fields:
            if asked.body not in (None, {}):
                raise malformed("this call has no body")
            return
        if not isinstance(asked.body, dict):
            raise malformed("Invalid input JSON: an object is needed")
        if missing := sorted(self.required - set(asked.body)):
            raise malformed(f"Invalid input JSON: required fields were not set: {missing}")
        if unknown := sorted(set(asked.body) - self.fields):
            raise malformed(f"Invalid input JSON: unknown fields {unknown}")


# -- objects ---------------------------------------------------------------------------------------


def _names(asked: Asked) -> set[str]:
    return {name for name in asked.query.get("properties", "").split(",") if name}


def get_object(crm: Crm, asked: Asked) -> Answer:
    found = crm.get(asked.kind, asked.path["id"], asked.query.get("idProperty"))
    shown = found.shown(_names(asked) or {"email", "firstname", "lastname", "name", "domain", "dealname", "amount"})
    others = [other for other in asked.query.get("associations", "").split(",") if other]
    if others:
        shown["associations"] = {
            other: {"results": [{"id": to, "type": "x"} for to in crm.associated(asked.kind, found.id, other)]}
            for other in others
        }
    return 200, shown


def create_object(crm: Crm, asked: Asked) -> Answer:
    properties = crm.schema(asked.kind).check(asked.body["properties"])
    links = _links(crm, asked.kind, asked.body.get("associations", []))
    made = crm.create(asked.kind, properties)
    _link(crm, made, links)
    asked.touched.add(f"{asked.kind}/{made.id}")
    return 201, made.shown(set(properties))


def update_object(crm: Crm, asked: Asked) -> Answer:
    properties = crm.schema(asked.kind).check(asked.body["properties"])
    found = crm.get(asked.kind, asked.path["id"], asked.query.get("idProperty"))
    asked.touched.add(f"{asked.kind}/{found.id}")
    return 200, crm.update(found, properties).shown(set(properties))


def _links(crm: Crm, kind: str, given: Any) -> list[tuple[str, str, list[int]]]:
    """Associations of a new object, checked."""
    found = []
    for each in given:
        if not isinstance(each, dict) or set(each) != {"to", "types"} or not each["types"]:
            raise malformed("an association needs to and types")
        type_ids = []
        for spec in each["types"]:
            if spec.get("associationCategory") != "HUBSPOT_DEFINED" or not isinstance(spec["associationTypeId"], int):
                raise malformed(f"no such association type: {spec}")
            type_ids.append(spec["associationTypeId"])
        others = [other for other in TYPE_IDS if set(type_ids) <= set(_types(kind, other))]
        if len(others) != 1:
            raise malformed(f"no such association types from {kind}: {type_ids}")
        crm.get(others[0], str(each["to"]["id"]))
        found.append((others[0], str(each["to"]["id"]), type_ids))
    return found


def _types(kind: str, other: str) -> tuple[int, ...]:
    from sync.standin.crm import ASSOCIATIONS

    return ASSOCIATIONS.get((kind, other), ())


def _link(crm: Crm, made: Thing, links: list[tuple[str, str, list[int]]]) -> None:
    for other, other_id, type_ids in links:
        crm.associate(made.kind, made.id, other, other_id, type_ids)


# -- batches ---------------------------------------------------------------------------------------


def _batch(results: list[Any], errors: list[dict[str, Any]], status: int = 200) -> Answer:
    body: dict[str, Any] = {"status": "COMPLETE", "results": results, "startedAt": _now(), "completedAt": _now()}
    if errors:
        body |= {"numErrors": len(errors), "errors": errors}
    return (207 if errors else status), body


def _not_found(kind: str, ids: list[str]) -> list[dict[str, Any]]:
    name = {"companies": "COMPANY"}.get(kind, kind[:-1].upper())
    message = f"Could not get some {name} objects, they may be deleted or not exist. Check that ids are valid."
    error = {"status": "error", "category": "OBJECT_NOT_FOUND", "message": message, "context": {"ids": ids}}
    return [error] if ids else []


def batch_read(crm: Crm, asked: Asked) -> Answer:
    inputs = asked.inputs("id", known=set())
    found = {each["id"]: crm.find(asked.kind, each["id"], asked.body.get("idProperty")) for each in inputs}
    names = set(asked.body["properties"])
    missing = [value for value, thing in found.items() if thing is None]
    return _batch([thing.shown(names) for thing in found.values() if thing], _not_found(asked.kind, missing))


def batch_create(crm: Crm, asked: Asked) -> Answer:
    """All or none; with a trace id on each, each on its own."""
    inputs = asked.inputs("properties", known={"associations", "objectWriteTraceId"})
    apart = all("objectWriteTraceId" in each for each in inputs)
    results, errors = [], []
    ready = []
    for each in inputs:
        try:
            properties = crm.schema(asked.kind).check(each["properties"])
            crm.check_new(asked.kind, properties)
            ready.append((each, properties, _links(crm, asked.kind, each.get("associations", []))))
        except Refusal as refusal:
            if not apart:
                raise
            errors.append(_item_error(refusal, each))
    for each, properties, links in ready:
        try:
            made = crm.create(asked.kind, properties)
        except Refusal as refusal:  # the same unique value twice in the batch
            errors.append(_item_error(refusal, each))
            continue
        _link(crm, made, links)
        asked.touched.add(f"{asked.kind}/{made.id}")
        results.append(made.shown(set(properties)) | _trace(each))
    return _batch(results, errors, 201)


def batch_update(crm: Crm, asked: Asked) -> Answer:
    """One bad value refuses all; what is not there is told apart."""
    inputs = asked.inputs("id", "properties", known={"idProperty", "objectWriteTraceId"})
    ready, missing = [], []
    for each in inputs:
        name = each.get("idProperty")
        if name is not None and not crm.schema(asked.kind).properties.get(name, {}).get("hasUniqueValue"):
            raise malformed(f"Unable to perform update/upsert by non-unique {TYPE_IDS[asked.kind]} property {name}")
        properties = crm.schema(asked.kind).check(each["properties"])
        found = crm.find(asked.kind, each["id"], name)
        if found is None:
            missing.append(each["id"])
            continue
        crm.check_change(found, properties)
        ready.append((each, found, properties))
    results = []
    for each, found, properties in ready:
        crm.update(found, properties)
        asked.touched.add(f"{asked.kind}/{found.id}")
        results.append(found.shown(set(properties)) | _trace(each))
    return _batch(results, _not_found(asked.kind, missing))


def batch_upsert(crm: Crm, asked: Asked) -> Answer:
    """By a unique property, all or none by e-mail; each on its own by another, with a trace id on each."""
    inputs = asked.inputs("id", "properties", known={"idProperty", "objectWriteTraceId"})
    apart = all("objectWriteTraceId" in each and each.get("idProperty") != "email" for each in inputs)
    ready, errors = [], []
    for each in inputs:
        name = each.get("idProperty")
        if name is None or name not in crm.schema(asked.kind).properties or not crm.is_unique(asked.kind, name):
            raise malformed(f"Unable to perform update/upsert by non-unique {TYPE_IDS[asked.kind]} property {name}")
        try:
            properties = crm.schema(asked.kind).check({name: each["id"], **each["properties"]})
            found = crm.find(asked.kind, each["id"], name)
            if found is None:
                crm.check_new(asked.kind, properties)
            else:
                crm.check_change(found, properties)
            ready.append((each, found, properties))
        except Refusal as refusal:
            if not apart:
                raise
            errors.append(_item_error(refusal, each))
    results = []
    for each, found, properties in ready:
        done = crm.create(asked.kind, properties) if found is None else crm.update(found, properties)
        asked.touched.add(f"{asked.kind}/{done.id}")
        results.append(done.shown(set(properties)) | {"new": found is None} | _trace(each))
    return _batch(results, errors)


def _trace(each: dict[str, Any]) -> dict[str, str]:
    return {"objectWriteTraceId": each["objectWriteTraceId"]} if "objectWriteTraceId" in each else {}


def _item_error(refusal: Refusal, each: dict[str, Any]) -> dict[str, Any]:
    context = {"objectWriteTraceId": [each["objectWriteTraceId"]]}
    if "id" in each:
        context["ids"] = [each["id"]]
    return {"status": "error", "category": refusal.category, "message": refusal.message, "context": context}


def search(crm: Crm, asked: Asked) -> Answer:
    groups = asked.body.get("filterGroups", [])
    if len(groups) > 5 or any(len(group.get("filters", ())) not in range(1, 7) for group in groups):
        raise malformed("at most 5 filter groups of 1 to 6 filters")
    limit = asked.body.get("limit", 10)
    if not isinstance(limit, int) or not 0 < limit <= 200:
        raise malformed(f"limit must be 1 to 200: {limit!r}")
    sorts = asked.body.get("sorts", [])
    if any(name not in ("createdate", "-createdate") for name in sorts):
        raise malformed(f"the stand-in sorts by createdate only: {sorts}")
    found = sorted(crm.search(asked.kind, groups), key=lambda thing: int(thing.id), reverse="-createdate" in sorts)
    names = set(asked.body.get("properties", ()))
    return 200, {"total": len(found), "results": [thing.shown(names) for thing in found[:limit]]}


# -- associations ----------------------------------------------------------------------------------


def associate_default(crm: Crm, asked: Asked) -> Answer:
    path = asked.path
    type_id = crm.associate(path["kind"], path["id"], path["other"], path["other_id"])
    spec = {"associationCategory": "HUBSPOT_DEFINED", "associationTypeId": type_id}
    return _batch([{"from": {"id": path["id"]}, "to": {"id": path["other_id"]}, "associationSpec": spec}], [])


def batch_associate_default(crm: Crm, asked: Asked) -> Answer:
    results, missing = [], []
    for each in asked.inputs("from", "to", known=set()):
        own_id, other_id = str(each["from"]["id"]), str(each["to"]["id"])
        try:
            type_id = crm.associate(asked.kind, own_id, asked.path["other"], other_id)
        except Refusal as refusal:
            if refusal.status != 404:
                raise
            missing.append(own_id)
            continue
        spec = {"associationCategory": "HUBSPOT_DEFINED", "associationTypeId": type_id}
        results.append({"from": each["from"], "to": each["to"], "associationSpec": spec})
    return _batch(results, _not_found(asked.kind, missing))


def list_associations(crm: Crm, asked: Asked) -> Answer:
    crm.get(asked.kind, asked.path["id"])
    found = crm.associated(asked.kind, asked.path["id"], asked.path["other"])
    return 200, {
        "results": [
            {
                "toObjectId": int(to_id),
                "associationTypes": [
                    {"category": "HUBSPOT_DEFINED", "typeId": type_id, "label": None} for type_id in sorted(types)
                ],
            }
            for to_id, types in found.items()
        ]
    }


# -- properties ------------------------------------------------------------------------------------


def list_properties(crm: Crm, asked: Asked) -> Answer:
    return 200, {"results": list(crm.schema(asked.kind).properties.values())}


def get_property(crm: Crm, asked: Asked) -> Answer:
    return 200, crm.schema(asked.kind).get(asked.path["name"])


def create_property(crm: Crm, asked: Asked) -> Answer:
    made = crm.schema(asked.kind).add(asked.body)
    crm.changes.append([0.0, "property", asked.kind, made["name"], {}])
    return 201, made


def update_property(crm: Crm, asked: Asked) -> Answer:
    return 200, crm.schema(asked.kind).change(asked.path["name"], asked.body)


def create_properties(crm: Crm, asked: Asked) -> Answer:
    results, errors = [], []
    for each in asked.inputs("name", "label", "type", "fieldType", "groupName", known=_PROPERTY_FIELDS):
        try:
            results.append(crm.schema(asked.kind).add(each))
        except Refusal as refusal:
            error = {"status": "error", "category": refusal.category, "message": refusal.message}
            errors.append(error | {"context": {"name": [each["name"]]}})
    return _batch(results, errors, 201)


_PROPERTY_FIELDS = {"options", "description", "displayOrder", "hasUniqueValue", "hidden", "formField"}


def _endpoint(line: str, handler: Callable[[Crm, Asked], Answer], scope: str, **more: Any) -> Endpoint:
    method, path = line.split()
    sets = {name: frozenset(more.pop(name, "").split()) for name in ("query", "fields", "required")}
    sets["fields"] |= sets["required"]
    return Endpoint(method, tuple(path.strip("/").split("/")), handler, scope, **sets, **more)


_OBJECTS = "/crm/v3/objects/{kind}"
_OBJECT = "crm.objects.{kind}"
_PROPERTY = "label type fieldType groupName options description displayOrder hidden formField"
ENDPOINTS = (
    _endpoint(f"POST {_OBJECTS}", create_object, f"{_OBJECT}.write", required="properties", fields="associations"),
    _endpoint(f"POST {_OBJECTS}/batch/read", batch_read, f"{_OBJECT}.read", query="archived",
              required="inputs properties", fields="idProperty propertiesWithHistory"),
    _endpoint(f"POST {_OBJECTS}/batch/create", batch_create, f"{_OBJECT}.write", required="inputs"),
    _endpoint(f"POST {_OBJECTS}/batch/update", batch_update, f"{_OBJECT}.write", required="inputs"),
    _endpoint(f"POST {_OBJECTS}/batch/upsert", batch_upsert, f"{_OBJECT}.write", required="inputs"),
    _endpoint(f"POST {_OBJECTS}/search", search, f"{_OBJECT}.read", group=SEARCH,
              fields="query limit after sorts properties filterGroups"),
    _endpoint(f"GET {_OBJECTS}/{{id}}", get_object, f"{_OBJECT}.read",
              query="properties propertiesWithHistory associations archived idProperty"),
    _endpoint(f"PATCH {_OBJECTS}/{{id}}", update_object, f"{_OBJECT}.write", query="idProperty", required="properties"),
    _endpoint("PUT /crm/v4/objects/{kind}/{id}/associations/default/{other}/{other_id}", associate_default,
              f"{_OBJECT}.write"),
    _endpoint("GET /crm/v4/objects/{kind}/{id}/associations/{other}", list_associations, f"{_OBJECT}.read",
              query="after limit"),
    _endpoint("POST /crm/v4/associations/{kind}/{other}/batch/associate/default", batch_associate_default,
              f"{_OBJECT}.write", required="inputs"),
    _endpoint("GET /crm/v3/properties/{kind}", list_properties, "crm.schemas.{kind}.read",
              query="archived properties dataSensitivity locale"),
    _endpoint("POST /crm/v3/properties/{kind}", create_property, "crm.schemas.{kind}.write", required="name",
              fields=f"{_PROPERTY} hasUniqueValue"),
    _endpoint("POST /crm/v3/properties/{kind}/batch/create", create_properties, "crm.schemas.{kind}.write",
              required="inputs"),
    _endpoint("GET /crm/v3/properties/{kind}/{name}", get_property, "crm.schemas.{kind}.read",
              query="archived properties"),
    _endpoint("PATCH /crm/v3/properties/{kind}/{name}", update_property, "crm.schemas.{kind}.write", fields=_PROPERTY),
)  # fmt: skip
SCOPES = sorted(
    {f"crm.objects.{kind}.{right}" for kind in ("contacts", "companies", "deals") for right in ("read", "write")}
    | {f"crm.schemas.{kind}.{right}" for kind in ("contacts", "companies", "deals") for right in ("read", "write")}
)


def scopes_of(endpoint: Endpoint, path: dict[str, str]) -> list[str]:
    """What the caller must be granted; an association is a change of both sides."""
    kinds = [path["kind"], *([path["other"]] if "other" in path else [])]
    return [endpoint.scope.replace("{kind}", "contacts" if kind == "notes" else kind) for kind in kinds]


def find(method: str, segments: list[str]) -> tuple[Endpoint, dict[str, str]]:
    """The endpoint of a request; fixed words come before names."""
    for endpoint in ENDPOINTS:
        if (path := endpoint.match(method, segments)) is not None:
            return endpoint, path
    raise Refusal(404, "NOT_FOUND", f"no endpoint: {method} /{'/'.join(segments)}", complaint=True)
