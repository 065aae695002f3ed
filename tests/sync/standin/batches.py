"""Batches of up to a hundred objects: all or none, or each separately."""

from __future__ import annotations

from typing import Any

from sync.standin.asked import Answer, Asked
from sync.standin.crm import ASSOCIATIONS, Crm, Thing, now
from sync.standin.refusal import Refusal, malformed
from sync.standin.schema import TYPE_IDS


def told(results: list[Any], errors: list[dict[str, Any]], status: int = 200) -> Answer:
    body: dict[str, Any] = {"status": "COMPLETE", "results": results, "startedAt": now(), "completedAt": now()}
    if errors:
        body |= {"numErrors": len(errors), "errors": errors}
    return (207 if errors else status), body


def not_found(kind: str, ids: list[str]) -> list[dict[str, Any]]:
    name = {"companies": "COMPANY"}.get(kind, kind[:-1].upper())
    message = f"Could not get some {name} objects, they may be deleted or not exist. Check that ids are valid."
    error = {"status": "error", "category": "OBJECT_NOT_FOUND", "message": message, "context": {"ids": ids}}
    return [error] if ids else []


def links_of(crm: Crm, kind: str, given: Any) -> list[tuple[str, str, list[int]]]:
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
        others = [other for other in TYPE_IDS if set(type_ids) <= set(ASSOCIATIONS.get((kind, other), ()))]
        if len(others) != 1:
            raise malformed(f"no such association types from {kind}: {type_ids}")
        crm.get(others[0], str(each["to"]["id"]))
        found.append((others[0], str(each["to"]["id"]), type_ids))
    return found


def link(crm: Crm, made: Thing, links: list[tuple[str, str, list[int]]]) -> None:
    for other, other_id, type_ids in links:
        crm.associate(made.kind, made.id, other, other_id, type_ids)


def batch_read(crm: Crm, asked: Asked) -> Answer:
    inputs = asked.inputs("id", known=set())
    found = {each["id"]: crm.find(asked.kind, each["id"], asked.body.get("idProperty")) for each in inputs}
    names = set(asked.body["properties"])
    missing = [value for value, thing in found.items() if thing is None]
    return told([thing.shown(names) for thing in found.values() if thing], not_found(asked.kind, missing))


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
            ready.append((each, properties, links_of(crm, asked.kind, each.get("associations", []))))
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
        link(crm, made, links)
        asked.touched.add(f"{asked.kind}/{made.id}")
        results.append(made.shown(set(properties)) | _trace(each))
    return told(results, errors, 201)


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
    return told(results, not_found(asked.kind, missing))


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
    return told(results, errors)


def _trace(each: dict[str, Any]) -> dict[str, str]:
    return {"objectWriteTraceId": each["objectWriteTraceId"]} if "objectWriteTraceId" in each else {}


def _item_error(refusal: Refusal, each: dict[str, Any]) -> dict[str, Any]:
    context = {"objectWriteTraceId": [each["objectWriteTraceId"]]}
    if "id" in each:
        context["ids"] = [each["id"]]
    return {"status": "error", "category": refusal.category, "message": refusal.message, "context": context}
