"""Objects one by one, their associations, and the properties that they may have."""

from __future__ import annotations

from sync.standin.asked import Answer, Asked
from sync.standin.batches import link, links_of, not_found, told
from sync.standin.crm import Crm
from sync.standin.refusal import Refusal, malformed

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
    links = links_of(crm, asked.kind, asked.body.get("associations", []))
    made = crm.create(asked.kind, properties)
    link(crm, made, links)
    asked.touched.add(f"{asked.kind}/{made.id}")
    return 201, made.shown(set(properties))


def update_object(crm: Crm, asked: Asked) -> Answer:
    properties = crm.schema(asked.kind).check(asked.body["properties"])
    found = crm.get(asked.kind, asked.path["id"], asked.query.get("idProperty"))
    asked.touched.add(f"{asked.kind}/{found.id}")
    return 200, crm.update(found, properties).shown(set(properties))


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
    return told([{"from": {"id": path["id"]}, "to": {"id": path["other_id"]}, "associationSpec": spec}], [])


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
    return told(results, not_found(asked.kind, missing))


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
    return told(results, errors, 201)


_PROPERTY_FIELDS = {"options", "description", "displayOrder", "hasUniqueValue", "hidden", "formField"}
